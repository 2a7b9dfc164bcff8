"""An original run sample by sample against a batched version: values, dtypes, shapes, arguments, derivatives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

Run = Callable[..., Any]


@dataclass(frozen=True)
class Difference:
    """Where a batched version differs: ``what`` is compared, ``sample`` None where all of them share it."""

    what: str
    sample: int | None
    got: str
    want: str
    size: float = math.nan

    def __str__(self) -> str:
        where = "" if self.sample is None else f", sample {self.sample}"
        return f"{self.what}{where}: {self.got} where the loop has {self.want}"


def leaves(out: Any) -> list[Any]:
    """The numbers and tensors of a result, in order; dataclasses by their fields."""
    if dataclasses.is_dataclass(out) and not isinstance(out, type):
        out = [getattr(out, f.name) for f in dataclasses.fields(out)]
    found = pytree.tree_leaves(out)
    return [x for leaf in found for x in (leaves(leaf) if dataclasses.is_dataclass(leaf) else [leaf])]


def as_tensors(out: Any) -> tuple[torch.Tensor, ...]:
    """The leaves of a result as tensors: vmap returns nothing else."""
    return tuple(
        v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64 if isinstance(v, float) else None)
        for v in leaves(out)
        if v is not None
    )


@dataclass(frozen=True)
class Batch:
    """Arguments with the samples along the first dimension where ``dims`` says 0, alike for all where it says None."""

    args: tuple[Any, ...]
    dims: tuple[Any, ...]

    @property
    def size(self) -> int:
        return next(
            int(leaf.shape[0])
            for a, d in zip(self.args, self.dims, strict=True)
            if d is not None
            for leaf in pytree.tree_leaves(a)
            if isinstance(leaf, torch.Tensor)
        )

    def sample(self, k: int, clone: bool = True) -> list[Any]:
        """The arguments of one sample, on copies."""

        def one(leaf: Any, batched: bool) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            part = leaf[k] if batched else leaf
            return part.clone() if clone else part

        return [
            pytree.tree_map(lambda leaf, b=d is not None: one(leaf, b), a)
            for a, d in zip(self.args, self.dims, strict=True)
        ]

    def rows(self, which: Sequence[int]) -> Batch:
        """Only these samples."""
        index = torch.tensor(list(which), dtype=torch.long)
        args = tuple(
            pytree.tree_map(lambda leaf: leaf[index] if isinstance(leaf, torch.Tensor) else leaf, a)
            if d is not None
            else a
            for a, d in zip(self.args, self.dims, strict=True)
        )
        return Batch(args, self.dims)

    def copied(self) -> Batch:
        return Batch(tuple(pytree.tree_map(_copy, a) for a in self.args), self.dims)

    def floating(self) -> list[tuple[str, torch.Tensor, bool]]:
        """The floating tensors among the arguments: a name, the tensor, whether it is batched."""
        found = []
        for k, (a, d) in enumerate(zip(self.args, self.dims, strict=True)):
            for j, leaf in enumerate(pytree.tree_leaves(a)):
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                    many = len(pytree.tree_leaves(a)) > 1
                    found.append((f"argument {k}" + (f", leaf {j}" if many else ""), leaf, d is not None))
        return found

    def with_floating(self, new: Sequence[torch.Tensor]) -> Batch:
        """The same with other tensors in the place of the floating ones."""
        fresh = iter(new)

        def put(leaf: Any) -> Any:
            return next(fresh) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

        return Batch(tuple(pytree.tree_map(put, a) for a in self.args), self.dims)


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def batch_of(inputs: Sequence[Any], in_dims: Any) -> Batch:
    """The arguments with their samples moved to the front."""
    dims = tuple(in_dims) if isinstance(in_dims, tuple | list) else (in_dims,) * len(inputs)
    if len(dims) != len(inputs):
        raise ValueError(f"in_dims has {len(dims)} entries for {len(inputs)} arguments")

    def front(leaf: Any, dim: int) -> Any:
        return leaf.movedim(dim, 0) if isinstance(leaf, torch.Tensor) else leaf

    args = tuple(
        a if d is None else pytree.tree_map(lambda leaf, d=d: front(leaf, d), a)
        for a, d in zip(inputs, dims, strict=True)
    )
    return Batch(args, tuple(None if d is None else 0 for d in dims))


def tolerance(dtype: torch.dtype, factor: float = 1.0) -> dict[str, float]:
    """``torch.testing.assert_close``'s for the dtype, in float64 wide enough for the rounding of sums."""
    rtol, atol = {
        torch.float64: (1e-7, 1e-7),
        torch.float32: (1.3e-6, 1e-5),
        torch.bfloat16: (1.6e-2, 1e-5),
        torch.float16: (1e-3, 1e-5),
    }.get(dtype, (0.0, 0.0))
    return {"rtol": rtol * factor, "atol": atol * factor}


@dataclass(frozen=True)
class Outputs:
    """What the loop gave: a column for each output leaf, and the arguments after the calls."""

    columns: list[list[Any]]
    after: list[list[Any]]


def loop(fn: Run, batch: Batch) -> Outputs:
    """Calls the original on each sample, on copies."""
    rows, after = [], []
    for k in range(batch.size):
        args = batch.sample(k)
        rows.append([_copy(v) for v in leaves(fn(*args)) if v is not None])
        after.append([x for a, d in zip(args, batch.dims, strict=True) if d is not None for x in pytree.tree_leaves(a)])
    widths = {len(r) for r in rows}
    if len(widths) != 1:
        raise ValueError(f"the original returns {' or '.join(map(str, sorted(widths)))} values, by the sample")
    return Outputs([list(c) for c in zip(*rows, strict=True)], [list(c) for c in zip(*after, strict=True)])


def stacked(column: Sequence[Any]) -> torch.Tensor:
    """A column of the loop's as one float64 (or complex) tensor that autograd follows."""
    parts = [v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64) for v in column]
    return torch.stack([p if p.is_complex() else p.double() for p in parts])


def values(want: Outputs, got: Sequence[torch.Tensor], after: Sequence[Any]) -> Iterator[Difference]:
    """Differences in the number of outputs, their shapes, dtypes and values, and in the arguments after the call."""
    if len(want.columns) != len(got):
        yield Difference("outputs", None, str(len(got)), str(len(want.columns)))
        return
    for k, (column, tensor) in enumerate(zip(want.columns, got, strict=True)):
        yield from _column(f"output {k}", column, tensor)
    for k, (column, leaf) in enumerate(zip(want.after, after, strict=True)):
        if isinstance(leaf, torch.Tensor):
            yield from _column(f"argument {k} after the call", column, leaf)


def _column(what: str, column: Sequence[Any], tensor: torch.Tensor) -> Iterator[Difference]:
    tensors = [v for v in column if isinstance(v, torch.Tensor)]
    dtypes = {v.dtype for v in tensors}
    # A Python number has no dtype: its value is what counts.
    if len(tensors) == len(column) and len(dtypes) == 1 and tensor.dtype not in dtypes:
        yield Difference(f"dtype of {what}", None, str(tensor.dtype), str(dtypes.pop()))
    for k, v in enumerate(column):
        one = torch.as_tensor(v, dtype=None if isinstance(v, torch.Tensor) else torch.float64).detach()
        if tensor.shape[1:] != one.shape:
            yield Difference(f"shape of {what}", k, str(tuple(tensor.shape[1:])), str(tuple(one.shape)))
            return
        found = tensor[k].detach()
        coarse = min((x for x in (found.dtype, one.dtype)), key=_precision)
        wide = torch.complex128 if one.is_complex() or found.is_complex() else torch.float64
        a, b = found.to(wide), one.to(wide)
        if not torch.allclose(a, b, equal_nan=True, **tolerance(coarse)):
            yield Difference(what, k, _show(found), _show(one), _size(a, b))


def _precision(dtype: torch.dtype) -> float:
    return -torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def _show(value: torch.Tensor) -> str:
    text = str(value.tolist())
    return text if len(text) < 60 else f"{text[:57]}..."


def _size(a: torch.Tensor, b: torch.Tensor) -> float:
    gap = (a - b).abs()
    return float(gap[torch.isfinite(gap)].max()) if bool(torch.isfinite(gap).any()) else math.inf


# --- derivatives ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Something that derivatives are taken by."""

    name: str
    tensor: torch.Tensor
    batched: bool


def cotangents(columns: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(c.shape, generator=generator, dtype=torch.float64) + 0.5 for c in columns]


def gradients(
    outputs: Callable[[Batch], Sequence[torch.Tensor]],
    batch: Batch,
    captured: Sequence[torch.Tensor],
    order: int,
    seed: int,
) -> list[torch.Tensor] | None:
    """The derivatives of a random combination of the outputs by every floating argument and captured tensor.

    ``order`` 2 gives those of a fixed combination of the first. None where nothing carries a gradient.
    Outputs that are not finite are left out: their derivatives say nothing.
    """
    live = [t.detach().clone().requires_grad_() for _, t, _ in batch.floating()]
    targets = [*live, *captured]
    outs = [o if o.is_complex() else o.double() for o in outputs(batch.with_floating([t * 1 for t in live]))]
    terms = [
        (torch.where(torch.isfinite(o.detach()), o, torch.zeros_like(o)) * w).sum().real
        for o, w in zip(outs, cotangents(outs, seed), strict=True)
        if o.requires_grad
    ]
    if not terms:
        return None
    loss = torch.stack(terms).sum()
    for _ in range(order - 1):
        first = torch.autograd.grad(loss, targets, create_graph=True, allow_unused=True)
        parts = [
            (
                torch.where(torch.isfinite(g.detach()), g, torch.zeros_like(g)).double()
                * (1 + 0.25 * (torch.arange(g.numel()).reshape(g.shape) % 3))
            ).sum()
            for g in first
            if g is not None and g.requires_grad
        ]
        if not parts:
            return None
        loss = torch.stack(parts).sum()
    found = torch.autograd.grad(loss, targets, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, targets, strict=True)]


def derivative_differences(
    what: str,
    want: list[torch.Tensor] | None,
    got: list[torch.Tensor] | None,
    targets: Sequence[Target],
    samples: Sequence[int],
) -> Iterator[Difference]:
    """Differences between two lists of derivatives; a missing one is zero. ``samples`` are those that count."""
    for k, target in enumerate(targets):
        zeros = torch.zeros_like(target.tensor)
        a = want[k] if want is not None else zeros
        b = got[k] if got is not None else zeros
        tol = tolerance(a.dtype, 100)
        rows: Sequence[int | None] = samples if target.batched else [None]
        for row in rows:
            x, y = (a, b) if row is None else (a[row], b[row])
            # An infinite derivative of the loop's own may come out as NaN: it is not finite either way.
            y = torch.where(torch.isfinite(x) | torch.isfinite(y), y, x)
            if not torch.allclose(x.double(), y.double(), equal_nan=True, **tol):
                yield Difference(f"{what} by {target.name}", row, _show(y), _show(x), _size(y.double(), x.double()))
