"""A weight that a branch reads is not copied for each sample, forward or backward."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from if2where.pipeline import convert_source  # noqa: E402
from tests.execution import load  # noqa: E402

pytestmark = pytest.mark.torch

BRANCHES = {
    "linear": "    if x.sum() > 0:\n        return torch.nn.functional.linear(x, weight, bias).sum()\n    return -x.sum()\n",
    "product": "    if x.sum() > 0:\n        return (weight @ x + bias).tanh().sum()\n    return -x.sum()\n",
    "behind a NaN test": (
        "    if torch.isnan(x).any():\n        return 0 * bias.sum()\n    return (weight @ x + bias).sum()\n"
    ),
    "before a root": (
        "    h = weight @ x + bias\n    sq = (h * h).sum()\n    if sq > 1e-12:\n        return torch.sqrt(sq)\n"
        "    return 0 * sq\n"
    ),
}
SIZE, SAMPLES = 64, 1000


class LargestResult(TorchDispatchMode):
    """Notes how many elements the largest result of any operation has."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().size() >= leaf.element_size() * math.prod(
                leaf.shape
            ):
                self.largest = max(self.largest, leaf.numel())
        return out


def largest(fn) -> int:  # type: ignore[no-untyped-def]
    """Elements of the largest tensor that the mapped function and its derivative make."""
    x = torch.randn(SAMPLES, SIZE)
    weight = torch.randn(SIZE, SIZE, requires_grad=True)
    bias = torch.randn(SIZE, requires_grad=True)
    with LargestResult() as mode:
        out = torch.func.vmap(fn, in_dims=(0, None, None))(x, weight, bias)
        out.sum().backward()
    assert weight.grad is not None
    return mode.largest


@pytest.mark.parametrize("name", BRANCHES)
def test_no_copy_for_each_sample(name: str) -> None:
    text = (
        f"import torch\n\n\ndef f(x, weight, bias):\n{BRANCHES[name]}\n\n"
        "BATCHED = torch.func.vmap(f, in_dims=(0, None, None))\n"
    )
    result = convert_source(text)
    assert result.text != text
    assert largest(load(result.text, "weights_converted").f) <= 2 * SAMPLES * SIZE


def test_a_guarded_weight_would_be_copied() -> None:
    """The measure sees what it is for."""

    def guarded(x, weight, bias):  # type: ignore[no-untyped-def]
        mask = x.sum() > 0
        return torch.where(mask, (torch.where(mask, weight, 1) @ x + bias).sum(), -x.sum())

    assert largest(guarded) >= SAMPLES * SIZE * SIZE
