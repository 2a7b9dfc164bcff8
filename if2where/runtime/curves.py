"""Values and gradients of a function and of its conversion along each scalar input, through its branch points."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from if2where.runtime import compare
from if2where.runtime.compare import Batch
from if2where.runtime.coverage import Recorder, watched

_POINTS = 161
_MOST_CURVES = 6
#: Samples that are tried as the one whose other inputs stay as they are.
_BASES = 12


@dataclass(frozen=True)
class Curve:
    """One input swept, the others as in ``sample``: the sum of the outputs and its gradient, NaN where it raises.

    ``points``, ``values``, ``gradients`` and their ``converted_`` counterparts have one entry a point;
    ``branch_points`` are where some test of the original comes out otherwise.
    """

    name: str
    sample: int
    points: list[float]
    values: list[float]
    converted_values: list[float]
    gradients: list[float]
    converted_gradients: list[float]
    branch_points: list[float]

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain data, for json."""
        return asdict(self)


def curves(fn: Callable[..., Any], converted: Callable[..., Any], batch: Batch) -> list[Curve]:
    """A curve for each floating input that is a number in each sample, six at most."""
    found: list[Curve] = []
    for k, (name, leaf, batched) in enumerate(batch.floating()):
        if batched and leaf[0].numel() == 1 and len(found) < _MOST_CURVES:
            found.append(_curve(fn, converted, batch, k, _readable(fn, name)))
    return found


def _readable(fn: Callable[..., Any], name: str) -> str:
    """``argument 0`` as the function's own name for it, where it has one."""
    place = re.fullmatch(r"argument (\d+)(.*)", name)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return name
    if place is None or int(place[1]) >= len(parameters):
        return name
    parameter = parameters[int(place[1])]
    return f"{parameter.name}{place[2]}" if parameter.kind is not parameter.VAR_POSITIONAL else name


def _curve(fn: Callable[..., Any], converted: Callable[..., Any], batch: Batch, which: int, name: str) -> Curve:
    leaf = batch.floating()[which][1]
    seen = leaf.detach().double().flatten()
    seen = seen[torch.isfinite(seen)]
    low, high = (float(torch.quantile(seen, q)) for q in (0.05, 0.95))
    margin = 0.1 * (high - low) or 1.0
    points = torch.linspace(low - margin, high + margin, _POINTS, dtype=torch.float64)
    recorder = Recorder()
    copy = watched(fn, recorder)
    best, crossings = 0, list[float]()
    for sample in range(min(batch.size, _BASES)):
        changes = _changes(copy, recorder, _swept(batch, which, sample, points), points)
        if len(changes) > len(crossings) or not sample:
            best, crossings = sample, changes
    swept = _swept(batch, which, best, points)
    values, gradients = _along(lambda b: _loop(fn, b), swept, which)
    mapped = torch.func.vmap(lambda *a: compare.as_tensors(converted(*a)), in_dims=batch.dims)
    new_values, new_gradients = _along(lambda b: list(mapped(*b.args)), swept, which)
    return Curve(name, best, points.tolist(), values, new_values, gradients, new_gradients, crossings)


def _swept(batch: Batch, which: int, sample: int, points: torch.Tensor) -> Batch:
    """One sample as often as there are points, with the input at each of them."""
    many = batch.rows([sample] * len(points))
    leaves = [t for _, t, _ in many.floating()]
    leaves[which] = points.to(leaves[which].dtype).reshape(leaves[which].shape)
    return many.with_floating(leaves)


def _changes(copy: Callable[..., Any], recorder: Recorder, swept: Batch, points: torch.Tensor) -> list[float]:
    outcomes: list[dict[tuple[int, int], bool] | None] = []
    for k in range(swept.size):
        recorder.last.clear()
        try:
            copy(*swept.sample(k))
        except Exception:  # the user's code, at a point that nobody gave
            outcomes.append(None)
        else:
            outcomes.append(dict(recorder.last))
    return [
        float(points[k] + points[k + 1]) / 2
        for k, (a, b) in enumerate(itertools.pairwise(outcomes))
        if a is not None and b is not None and a != b
    ]


def _loop(fn: Callable[..., Any], batch: Batch) -> list[torch.Tensor]:
    rows = []
    for k in range(batch.size):
        try:
            rows.append(compare.as_tensors(fn(*batch.sample(k))))
        except Exception:  # the user's code, at a point that nobody gave
            rows.append(())
    width = next((row for row in rows if row), ())
    nothing = [torch.full_like(t, math.nan, dtype=torch.float64) for t in width]
    return [torch.stack([o.double() for o in column]) for column in zip(*(row or nothing for row in rows), strict=True)]


def _along(outputs: Callable[[Batch], list[torch.Tensor]], swept: Batch, which: int) -> tuple[list[float], list[float]]:
    live = [t.detach().clone().requires_grad_() for _, t, _ in swept.floating()]
    outs = [o for o in outputs(swept.with_floating([t * 1 for t in live])) if not o.is_complex()]
    total = torch.stack([o.double().reshape(len(o), -1).sum(1) for o in outs]).sum(0)
    if not total.requires_grad:
        return total.tolist(), [0.0] * len(total)
    (slope,) = torch.autograd.grad(total.sum(), [live[which]], allow_unused=True)
    zeros = [0.0] * len(total)
    return total.tolist(), slope.double().flatten().tolist() if slope is not None else zeros
