"""``any_active``: the one helper that converted code may need, for loops that the data end."""

from __future__ import annotations

from typing import Any

import torch


class _AnyActive(torch.autograd.Function):  # type: ignore[misc]
    """Whether a mask holds anywhere in the batch, as a 0-dim bool tensor that is not batched.

    An ``autograd.Function`` with a ``vmap`` static method is handed the whole batch; see "Extending
    torch.func with autograd.Function" in PyTorch's documentation. The answer is not batched, so that
    Python may ask for its truth under vmap.
    """

    @staticmethod
    def forward(mask: torch.Tensor) -> torch.Tensor:
        return mask.any()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        return None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], mask: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _AnyActive.apply(mask), None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _truth(mask: torch.Tensor) -> bool:
    return bool(_AnyActive.apply(mask))


def any_active(mask: torch.Tensor | bool) -> bool:
    """Whether some sample of the batch is still in the loop.

    ``mask`` is a bool tensor of any shape (batched under any nesting of vmap), or a Python bool. The
    result is a plain Python bool, outside autograd; under ``torch.compile`` it breaks the graph.
    """
    if isinstance(mask, bool):
        return mask
    return bool(_truth(mask))
