"""What ``if2where.vmap`` adds to a call: ``python -m tests.benchmarks.vmap_overhead``.

Against ``torch.func.vmap`` of the very function that if2where.vmap has made, built anew for each call, as
``torch.func.vmap(f)(x)`` does, and built once. The two are timed in turns within one run, so that what the
machine does besides falls on both alike; the figure is the median of the ratios of neighbours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import if2where


def piecewise(t, b):
    tmp = t * b
    if tmp > 5:
        root = t * b
    else:
        root = -t
    return root


def ratios(a: Callable[[], Any], b: Callable[[], Any], rounds: int, calls: int = 20) -> list[float]:
    """How long ``a`` takes, in units of ``b``: one ratio a round."""
    found = []
    for k in range(rounds):
        spent = {}
        for f in (a, b) if k % 2 else (b, a):
            start = time.perf_counter()
            for _ in range(calls):
                f()
            spent[f] = time.perf_counter() - start
        found.append(spent[a] / spent[b])
    return found


def overheads(samples: int = 1000, rounds: int = 300) -> dict[str, float]:
    """The median overhead, as a share of the bare call, against each way of calling it bare."""
    t, b = torch.rand(samples) * 10, torch.rand(samples)
    mapped = if2where.vmap(piecewise)
    assert torch.equal(mapped(t, b), torch.stack([piecewise(u, v) for u, v in zip(t, b, strict=True)]))
    converted = if2where.convert(piecewise)
    kept = torch.func.vmap(converted)
    bare = {
        "torch.func.vmap(f)(x)": lambda: torch.func.vmap(converted)(t, b),
        "g = torch.func.vmap(f); g(x)": lambda: kept(t, b),
    }
    return {name: statistics.median(ratios(lambda: mapped(t, b), call, rounds)) - 1 for name, call in bare.items()}


if __name__ == "__main__":
    for name, overhead in overheads().items():
        print(f"if2where.vmap over {name}: {overhead:+.2%}")
