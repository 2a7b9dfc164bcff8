"""A bounded run of the fuzzer; ``python -m tests.fuzz`` runs as long as one likes."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_random_programs() -> None:
    from tests.fuzz.check import check

    counts: Counter[str] = Counter()
    faults = []
    for seed in range(1000, 1100):
        outcome = check(seed)
        counts[outcome.kind] += 1
        if outcome.kind in ("mismatch", "crash"):
            faults.append(f"{seed}: {outcome.kind}: {outcome.detail}")
    assert faults == []
    assert counts["equal"] > 80
