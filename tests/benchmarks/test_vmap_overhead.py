"""The overhead of if2where.vmap stays below 5% of a bare call."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_overhead() -> None:
    from tests.benchmarks.vmap_overhead import overheads

    assert overheads(rounds=100)["torch.func.vmap(f)(x)"] < 0.05
