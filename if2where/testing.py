"""For test suites: that a function is the same under vmap, converted or as somebody wrote it by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from if2where.runtime.verify import Verification


def assert_vmap_equivalent(
    fn: Callable[..., Any], inputs: Sequence[Any] | None = None, in_dims: Any = 0, **options: Any
) -> Verification:
    """Fails, with the report, unless the function's loop and its batched version agree; takes what ``verify`` takes.

    ``converted=`` or ``batched=`` hold a version written by hand against the loop. Gives the report back.
    """
    from if2where.runtime.verify import verify

    return verify(fn, inputs, in_dims, **options).raise_for_mismatch()
