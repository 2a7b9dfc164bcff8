"""Inputs for a function that nobody has given any: shapes are tried until it runs, values lie at edges and between."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

#: Tried from small to larger, for all arguments alike first.
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2,), (4,), (3, 3), (2, 2), (1,), (5,), (8,), (2, 3))
EDGES = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-8, 1e3, -1e3)
_MOST_TRIALS = 400


class NoInputs(Exception):
    """No inputs were given, and none that the function runs on were found."""


def make_inputs(
    fn: Callable[..., Any], in_dims: Any, samples: int, seed: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments with a batch of ``samples`` in front, and their in_dims.

    Shapes and types come from annotations (jaxtyping's too) and defaults; what they leave open is tried. Raises
    NoInputs where the function runs on nothing that is tried.
    """
    parameters = [
        p
        for p in inspect.signature(fn).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if not parameters:
        raise NoInputs("it has no parameters to give values to")
    dims = tuple(in_dims) if isinstance(in_dims, tuple | list) else (in_dims,) * len(parameters)
    problem: Exception | None = None
    for trial in itertools.islice(_choices(parameters, dims), _MOST_TRIALS):
        generator = torch.Generator().manual_seed(seed)
        args = tuple(_argument(shape, dim, samples, generator) for shape, dim in zip(trial, dims, strict=False))
        try:
            for k in range(min(samples, 12)):
                fn(*(a[k].clone() if d is not None else a for a, d in zip(args, dims, strict=False)))
        except Exception as error:  # the user's code on made-up values: whatever it raises, they do not suit it
            problem = error
            continue
        return args, tuple(0 if d is not None else None for d in dims[: len(args)])
    reason = f"{type(problem).__name__}: {problem}" if problem is not None else "nothing to try"
    raise NoInputs(f"it runs on no inputs that were tried (the last raised {reason})")


def _choices(parameters: Sequence[inspect.Parameter], dims: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """For each parameter a shape, a dtype with a shape, or a plain value."""
    known = [_annotated(p, d) for p, d in zip(parameters, dims, strict=False)]
    open_ = [k for k, options in enumerate(known) if options is None]
    for shape in SHAPES:
        yield tuple(shape if options is None else options[0] for options in known)
    ordered = sorted(itertools.product(SHAPES, repeat=len(open_)), key=lambda c: sum(map(SHAPES.index, c)))
    for combination in ordered if len(open_) <= 4 else ():
        filled = dict(zip(open_, combination, strict=True))
        yield tuple(filled[k] if k in filled else (options or [()])[0] for k, options in enumerate(known))
    for integer in open_:
        yield tuple(
            ("int", ()) if k == integer else () if options is None else options[0] for k, options in enumerate(known)
        )


def _annotated(parameter: inspect.Parameter, dim: Any) -> list[Any] | None:
    """What an annotation leaves to try; None where it says nothing."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    found = re.search(r"\[[^,\]]*Tensor\s*,\s*[\"']([^\"']*)[\"']", text)
    if found is not None:
        words = found.group(1).split()
        return [tuple(int(w) if w.isdigit() else 3 for w in words if w not in ("...",))]
    if text in ("float", "int", "bool") and dim is None:
        return [{"float": 0.5, "int": 2, "bool": True}[text]]
    if text == "float":
        return [()]
    if text in ("int", "bool"):
        return [(text, ())]
    return None


def _argument(choice: Any, dim: Any, samples: int, generator: torch.Generator) -> Any:
    if isinstance(choice, bool | int | float):
        return choice
    what, shape = choice if choice and choice[0] in ("int", "bool") else ("float", choice)
    size = (samples, *shape) if dim is not None else shape
    if what == "bool":
        return torch.rand(size, generator=generator) < 0.5
    if what == "int":
        return torch.randint(-3, 8, size, generator=generator)
    return values(size, generator)


def values(size: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Normal numbers in three sizes, with edge values and ties among them; float64."""
    base = torch.randn(size, generator=generator, dtype=torch.float64)
    if not size:
        return base
    rows = (size[0], *[1] * (len(size) - 1))
    scale = torch.tensor([1.0, 1.0, 0.1, 10.0], dtype=torch.float64)[torch.arange(size[0]) % 4].reshape(rows)
    edges = torch.tensor(EDGES, dtype=torch.float64)[torch.randint(len(EDGES), size, generator=generator)]
    chosen = torch.rand(rows, generator=generator) < 0.25
    return torch.where(chosen, edges, base * scale)
