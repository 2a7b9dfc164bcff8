"""Code that needs no guard gets none."""

from __future__ import annotations

import pytest

from if2where import quickstart
from if2where.module import Source
from if2where.ops import table
from if2where.passes.context import GuardLog
from if2where.pipeline import Options, convert_files

TOTAL = ("abs arctan asinh atan ceil clamp cos erf erfc floor neg relu round sgn sigmoid sign sin tanh trunc").split()


def guards_of(text: str) -> list[str]:
    log = GuardLog()
    result = convert_files([Source("module.py", text)], Options(guard_log=log))[0]
    assert result.text != text  # type: ignore[union-attr]
    return log.made


def test_the_quickstart() -> None:
    assert guards_of(quickstart.EXAMPLE) == []


@pytest.mark.parametrize("name", TOTAL)
def test_a_total_operation(name: str) -> None:
    row = table.lookup(name, "torch")
    assert row is not None
    assert row.speculation in ("total", "product")
    call = f"torch.{name}(x)" if name != "clamp" else "torch.clamp(x, -1, 1)"
    text = (
        f"import torch\n\n\ndef f(x, y):\n    if x > 0:\n        return {call} * y\n    elif y > 1:\n"
        f"        x = x - y\n    return x + {call}\n\n\nBATCHED = torch.func.vmap(f)\n"
    )
    assert guards_of(text) == []


def test_a_partial_operation_is_counted() -> None:
    text = (
        "import torch\n\n\ndef f(x):\n    if x > 0:\n        return torch.sqrt(x)\n    return x\n\n\n"
        "B = torch.func.vmap(f)\n"
    )
    assert len(guards_of(text)) == 1
