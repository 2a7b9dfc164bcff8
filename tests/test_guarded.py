"""A harmful operation behind, and before, each kind of branch: over a thousand programs, to the second derivative."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests import guarded  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

PROGRAMS = dict(guarded.programs())


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 1000


@pytest.mark.parametrize("operation", guarded.OPERATIONS, ids=lambda o: o.name)
def test_equals_the_loop(operation: guarded.Operation) -> None:
    """Values, first and second derivatives, jvp and vmap(grad), with no NaN that the loop has not."""
    mine = {n: t for n, t in PROGRAMS.items() if n.startswith(f"{operation.name}, ")}
    assert len(mine) >= 30
    wrong = {n: found for n, t in mine.items() if (found := guarded.differences(t))}
    assert wrong == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["sqrt", "log", "reciprocal", "quotient", "exp", "product with a NaN", "norm"])
def test_equals_the_loop_in_less_precision(name: str, dtype: torch.dtype) -> None:
    mine = {n: t for n, t in PROGRAMS.items() if n.startswith(f"{name}, argument, ")}
    assert len(mine) >= 10
    wrong = {n: found for n, t in mine.items() if (found := guarded.differences(t, dtype, second_order=False))}
    assert wrong == {}
