"""Long chains, deep nests and many branches: the output grows as the input does."""

from __future__ import annotations

import pytest

from if2where.pipeline import convert_source

VMAPPED = "\n\nimport torch\n\ng = torch.func.vmap(f)\n"


def chain(n: int) -> str:
    arms = "".join(f"    elif x > -{k}:\n        y = x * {k}\n" for k in range(1, n))
    return f"def f(x):\n    if x > 0:\n        y = x\n{arms}    else:\n        y = -x\n    return y\n"


def nest(n: int) -> str:
    body = "".join("    " * (k + 1) + f"if x > {k}:\n" + "    " * (k + 2) + f"y = y + {k}\n" for k in range(n))
    return f"def f(x):\n    y = x\n{body}    return y\n"


def sequence(n: int) -> str:
    body = "".join(f"    if x > {k}:\n        y = y + {k}\n" for k in range(n))
    return f"def f(x):\n    y = x\n{body}    return y\n"


def returns(n: int) -> str:
    body = "".join(f"    if x > {n - k}:\n        return x / {k + 1}\n" for k in range(n))
    return f"def f(x):\n{body}    return x\n"


@pytest.mark.parametrize(("make", "n"), [(chain, 100), (nest, 40), (sequence, 1000), (returns, 150)])
def test_grows_linearly(make: object, n: int) -> None:
    assert callable(make)
    small, large = make(n // 2) + VMAPPED, make(n) + VMAPPED
    results = [convert_source(small), convert_source(large)]
    assert all(r.converted == ("f",) for r in results)
    assert len(results[1].text) < 2.2 * len(results[0].text)
    assert len(results[1].text) < 2.5 * len(large)


@pytest.mark.torch
@pytest.mark.parametrize(("make", "n"), [(chain, 100), (nest, 40), (sequence, 300), (returns, 100)])
def test_runs(make: object, n: int) -> None:
    torch = pytest.importorskip("torch")
    from tests.execution import compare, load

    assert callable(make)
    text = make(n) + VMAPPED
    x = torch.linspace(-n, n, 41, dtype=torch.float64)
    assert compare(load(text, "scale_before").f, load(convert_source(text).text, "scale_after").f, (x,), (0,)) == []
