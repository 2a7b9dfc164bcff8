"""Peak memory of a branch that reads an ``nn.Linear``, forward and backward under vmap.

``python -m tests.benchmarks.linear_memory`` prints one row for each way to write it and each number of samples:
the conversion, the same by hand, and with a guard on the weight, which costs a copy of it per sample.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from rich.console import Console
from rich.table import Table

SIZE = 128
SAMPLES = (10, 1_000, 10_000)
WAYS = ("converted", "by hand", "guarded weight")

SOURCE = """\
import torch


def f(x, weight, bias):
    if x.sum() > 0:
        return torch.nn.functional.linear(x, weight, bias).tanh().sum()
    return -x.sum()


BATCHED = torch.func.vmap(f, in_dims=(0, None, None))
"""


def run(way: str, samples: int) -> float:
    """MiB by which the process grows at its peak; meant for a process of its own."""
    import torch
    from torch.nn.functional import linear

    from if2where import convert_source

    def by_hand(x, weight, bias):  # type: ignore[no-untyped-def]
        return torch.where(x.sum() > 0, linear(x, weight, bias).tanh().sum(), -x.sum())

    def guarded(x, weight, bias):  # type: ignore[no-untyped-def]
        mask = x.sum() > 0
        return torch.where(mask, (torch.where(mask, weight, 1) @ x + bias).tanh().sum(), -x.sum())

    namespace: dict[str, object] = {}
    exec(convert_source(SOURCE).text, namespace)
    fn = {"converted": namespace["f"], "by hand": by_hand, "guarded weight": guarded}[way]
    layer = torch.nn.Linear(SIZE, SIZE)

    def once(n: int) -> None:
        out = torch.func.vmap(fn, in_dims=(0, None, None))(torch.randn(n, SIZE), layer.weight, layer.bias)
        out.sum().backward()

    once(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    once(samples)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    if len(sys.argv) == 3:
        print(run(sys.argv[1], int(sys.argv[2])))
        return
    table = Table("", *(f"{n:,} samples" for n in SAMPLES), title=f"peak memory, MiB ({SIZE} x {SIZE} weight)")
    for way in WAYS:
        cells = []
        for samples in SAMPLES:
            if way == "guarded weight" and samples > 1_000:
                cells.append("(not run)")
                continue
            command = [sys.executable, "-m", "tests.benchmarks.linear_memory", way, str(samples)]
            cells.append(f"{float(subprocess.run(command, capture_output=True, text=True, check=True).stdout):.0f}")
        table.add_row(way, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
