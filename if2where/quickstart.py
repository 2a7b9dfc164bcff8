"""The quickstart: converts the example, runs it under vmap, and holds it against the loop."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from if2where.runtime.verify import Verification

#: The question that many people ask: a loop over samples, because the function has an ``if`` on the data.
EXAMPLE = '''\
"""One multiplication, one branch: per sample it is plain Python, and vmap refuses it."""

import torch


def func(t, b):
    tmp = t * b
    if tmp > 5:
        root = t * b
    else:
        root = -t
    return root


ENTRY = "func"
IN_DIMS = (0, 0)


def make_inputs(seed, batch):
    return torch.arange(1.0, batch + 1), torch.ones(batch)


BATCHED = torch.func.vmap(func, in_dims=IN_DIMS)
'''


def run() -> int:
    """Prints the diff, the comparison and the speed; 0 where everything agrees, 2 where torch is missing."""
    import click

    from if2where.converting import diff
    from if2where.pipeline import convert_source

    result = convert_source(EXAMPLE, "quickstart.py")
    click.echo(diff("quickstart.py", EXAMPLE, result.text))
    # torch's profiler, which tells the peak of memory, is not to write into the output.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        import torch  # noqa: F401
    except ImportError:
        click.echo("torch is not installed: `pip install if2where[torch]` runs the rest of the quickstart", err=True)
        return 2
    original, converted = _load(EXAMPLE, "original").func, _load(result.text, "converted").func
    rows = _compare(original, converted)
    _show(rows)
    verified = _verified(original, converted)
    click.echo(f"\n{verified}\n")
    click.echo(_speed(original, converted))
    return int(not (verified.ok and all(ok for *_, ok in rows)))


def _load(text: str, name: str) -> types.ModuleType:
    from if2where.runtime.sources import execute

    module = types.ModuleType(name)
    execute(text, f"{name}.py", module.__dict__)
    return module


def _compare(original: Callable[..., Any], converted: Callable[..., Any]) -> list[tuple[str, str, str, bool]]:
    """Values and gradients: of the loop over samples, and of the converted function under vmap."""
    import torch
    from torch.func import vmap

    t = torch.arange(1.0, 9.0)

    def inputs(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.ones(shape, requires_grad=True)

    rows = []
    for title, in_dims, shape in (
        ("vmap(func)(t, b)", (0, 0), (8,)),
        ("vmap(func, in_dims=(0, None))(t, b)", (0, None), ()),
    ):
        b_loop, b_vmap = inputs(shape), inputs(shape)
        loop = torch.stack([original(t[i], b_loop[i] if shape else b_loop) for i in range(8)])
        mapped = vmap(converted, in_dims=in_dims)(t, b_vmap)
        loop.sum().backward()
        mapped.sum().backward()
        rows.append((f"{title}: values", _text(loop), _text(mapped), torch.equal(loop, mapped)))
        assert b_loop.grad is not None
        assert b_vmap.grad is not None
        rows.append((f"{title}: b.grad", _text(b_loop.grad), _text(b_vmap.grad), torch.equal(b_loop.grad, b_vmap.grad)))
    return rows


def _text(tensor: Any) -> str:
    return str([int(v) for v in tensor.tolist()] if tensor.dim() else int(tensor))


def _show(rows: list[tuple[str, str, str, bool]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "loop", "converted, under vmap", "")
    for title, loop, mapped, ok in rows:
        table.add_row(title, loop, mapped, "equal" if ok else "DIFFERENT")
    Console().print(table)


def _verified(original: Callable[..., Any], converted: Callable[..., Any]) -> Verification:
    """The whole report: with samples on both sides of the test and next to it, and second derivatives."""
    import torch

    from if2where.runtime.verify import verify

    inputs = torch.arange(1.0, 65.0), torch.ones(64)
    return verify(original, inputs, (0, 0), converted=converted, second_order=True)


def _speed(original: Callable[..., Any], converted: Callable[..., Any], samples: int = 10_000) -> str:
    import torch

    from if2where.runtime.bench import bench

    inputs = torch.rand(samples) * 10, torch.rand(samples)
    sizes = (1, 100, samples)
    found = bench(original, inputs, (0, 0), converted=converted, sizes=sizes, ways=("loop", "converted"))
    return f"{found}\n{samples:,} samples: {found.speedup():,.0f} x faster than the loop"
