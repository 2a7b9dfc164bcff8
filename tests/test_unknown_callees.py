"""Functions that are not looked into: their arguments are cut off from autograd in the samples that do not call them."""

from __future__ import annotations

import pytest

from if2where.pipeline import convert_source

#: Two ways to reach a function of another module, here one whose slope at 0 is infinite.
IMPORTS = {"from operator import pow as power": "power", "import operator": "operator.pow"}
TEXT = """\
{line}

import torch


def f(x):
    if x > 0:
        return {name}(x, 0.5)
    return 2 * x


batched = torch.func.vmap(f)
"""


@pytest.mark.torch
@pytest.mark.parametrize("line", IMPORTS)
def test_imported_function(line: str) -> None:
    torch = pytest.importorskip("torch")
    from tests.execution import compare, load

    text = TEXT.format(line=line, name=IMPORTS[line])
    result = convert_source(text)
    assert "torch.where(x_gt_0, x, x.detach())" in result.text
    x = torch.tensor([0.0, -0.0, 1.0, 2.5], dtype=torch.float64)
    original, converted = load(text, "unknown_before").f, load(result.text, "unknown_after").f
    # Detaching stops the NaN at the call, it does not keep it from being made.
    assert compare(original, converted, (x,), (0,), second_order=True, anomaly=False) == []
    bare = load(
        text.replace("if x > 0:\n        return", "return torch.where(x > 0,").replace(
            "0.5)\n    return 2 * x", "0.5), 2 * x)"
        ),
        "bare",
    ).f
    assert compare(original, bare, (x,), (0,), anomaly=False)
