"""Gradients where a bare torch.where gives NaN, by the kind of trap, in three precisions."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from if2where.pipeline import convert_source  # noqa: E402
from tests.execution import compare, load  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)

HEAD = "import torch\n\n\n"


def check(text: str, inputs: list[torch.Tensor], in_dims: tuple[int | None, ...], per_sample: bool = True) -> None:
    """Converts, and compares with the loop."""
    original = load(text, "trap_original").f
    result = convert_source(text)
    assert result.refusals == ()
    assert result.text != text
    converted = load(result.text, "trap_converted").f
    exact = inputs[0].dtype == torch.float64
    found = compare(original, converted, inputs, in_dims, second_order=exact, forward_mode=exact, per_sample=per_sample)
    assert found == []


def mapped(in_dims: str = "0") -> str:
    return f"\n\nBATCHED = torch.func.vmap(f, in_dims={in_dims})\n"


@DTYPES
def test_trap_01_the_branch_not_taken(dtype: torch.dtype) -> None:
    text = HEAD + "def f(x, y):\n    if x > 0:\n        return torch.sqrt(x) * y / x\n    return 0 * x\n" + mapped()
    check(text, [torch.tensor([0.0, 1.0, -1.0, 4.0], dtype=dtype), torch.ones(4, dtype=dtype)], (0, 0))


@DTYPES
def test_trap_02_an_index_out_of_range(dtype: torch.dtype) -> None:
    text = (
        HEAD + "def f(table, k, x):\n    if k < 3 and k >= 0:\n        return table[k] * x\n    return x\n"
        "\n\nBATCHED = torch.func.vmap(f, in_dims=(None, 0, 0))\n"
    )
    table = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
    # Torch indexes no tensor that grad follows by a mapped number, branch or no branch.
    check(text, [table, torch.tensor([0, 2, 3, -7, 40]), torch.ones(5, dtype=dtype)], (None, 0, 0), per_sample=False)


@DTYPES
def test_trap_02_an_integer_division_by_zero(dtype: torch.dtype) -> None:
    text = HEAD + "def f(n, k, x):\n    if k != 0:\n        return x * (n // k) + n % k\n    return x\n" + mapped()
    n, k = torch.tensor([5, -5, 7, 1]), torch.tensor([2, 2, 0, 0])
    check(text, [n, k, torch.ones(4, dtype=dtype)], (0, 0, 0))


def test_trap_02_a_singular_matrix() -> None:
    text = (
        HEAD
        + "def f(a, b):\n    if torch.det(a) != 0:\n        return torch.linalg.solve(a, b).sum()\n    return b.sum()\n"
        + mapped()
    )
    a = torch.stack([torch.eye(2), torch.zeros(2, 2), torch.ones(2, 2), 2 * torch.eye(2)]).double()
    check(text, [a, torch.ones(4, 2, dtype=torch.float64)], (0, 0))


@DTYPES
def test_trap_26_before_the_branch_whose_test_reads_it(dtype: torch.dtype) -> None:
    text = (
        HEAD + "def f(w):\n    th = torch.sqrt((w * w).sum())\n    if th < 1e-8:\n        return w\n"
        "    return torch.sin(th) / th * w\n" + mapped()
    )
    check(text, [torch.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 3.0], [0.0, 0.0]], dtype=dtype)], (0,))


@DTYPES
def test_trap_28_a_nan_test_before_a_product(dtype: torch.dtype) -> None:
    text = (
        HEAD + "def f(weight, reading):\n    if torch.isnan(reading).any():\n        return 0 * weight.sum()\n"
        "    return (weight @ reading).tanh()\n\n\nBATCHED = torch.func.vmap(f, in_dims=(None, 0))\n"
    )
    reading = torch.tensor([[1.0, 2.0], [float("nan"), 1.0], [0.0, 0.0]], dtype=dtype)
    check(text, [torch.tensor([0.5, -0.25], dtype=dtype), reading], (None, 0))


@DTYPES
def test_trap_31_scripted_code_called_four_times(dtype: torch.dtype, tmp_path: Path) -> None:
    """The second call and those behind it are optimised: a guard that they drop would show."""
    text = (
        HEAD + "@torch.jit.script\ndef kernel(x):\n    r = torch.sqrt(x)\n    if x > 1:\n        y = torch.log(r)\n"
        "    else:\n        y = 0 * x\n    return y\n\n\ndef f(x, y):\n    return kernel(x) * y\n" + mapped()
    )
    converted = convert_source(text)
    assert "torch.where" in converted.text
    assert ".detach()" not in converted.text.split("def f(")[0].replace("r.detach()", "")
    path = tmp_path / "scripted.py"
    path.write_text(converted.text)
    module = load_file(path)
    for _ in range(4):
        x = torch.tensor([0.0, 0.5, 4.0, -1.0], dtype=dtype, requires_grad=True)
        out = torch.func.vmap(module.f)(x, torch.ones(4, dtype=dtype))
        (grad,) = torch.autograd.grad(out.sum(), x)
        want = torch.tensor([0.0, 0.0, 0.125, 0.0], dtype=dtype)
        assert torch.allclose(grad, want), grad


def load_file(path: Path):  # type: ignore[no-untyped-def]
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
