"""Whether each guard is needed: it is left out, and the rest compared with the loop.

``python -m tests.guards [FOLDER]`` goes through the modules of a folder (the fixtures where none is given) and
lists the guards without which no difference was found, on the module's own inputs and on searched ones.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from if2where.module import Source, SourceError
from if2where.passes.context import GuardLog
from if2where.pipeline import Conversion, Options, convert_files
from tests.execution import compare, load
from tests.fixture import CASES, ROOT, constants

EDGES = (0.0, 1.0, -1.0, 1e-200, 1e200, -1e200, float("nan"), float("inf"))
#: What the searched inputs are mixed of, entry by entry.
SMALL = (0.0, 0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 1e-9, 10.0)
#: The same, with values that no operation may be fed for a sample that does not use it.
LARGE = (*SMALL, 1e200, float("inf"), float("nan"))
#: What numbers and unbatched tensors, which every sample shares, are set to.
SHARED = (0.0, 1.0, -1.0)
#: Indices beyond any table.
FAR = 1000
MIXES = 8


@dataclass(frozen=True)
class Guard:
    """One guard of a module's conversion; ``seen``: what goes wrong without it, "" where nothing was found."""

    module: str
    number: int
    what: str
    seen: str


def convert(text: str, log: GuardLog) -> Conversion:
    result = convert_files([Source("module.py", text)], Options(guard_log=log))[0]
    assert not isinstance(result, SourceError), result
    return result


def guards(name: str, text: str) -> list[Guard]:
    """The guards of a module with ENTRY, IN_DIMS and make_inputs."""
    known = constants(text)
    if known.get("EXPECT", "convert") != "convert" or "FAULT" in known:
        return []
    log = GuardLog()
    whole = convert(text, log)
    made = list(log.made)
    if not made or whole.refusals:
        return []
    original = load(text, "guards_original")
    fn, in_dims = getattr(original, known["ENTRY"]), known["IN_DIMS"]
    converted = getattr(load(whole.text, "guards_whole"), known["ENTRY"])
    trials = [t for t in inputs(original.make_inputs, in_dims) if not different(fn, converted, t, in_dims)]
    if all(d in (0, None) for d in in_dims):
        searched = [*mixes(original.make_inputs, in_dims)]
        searched += [s for t in searched[:2] for s in shared(t, in_dims)]
        trials += [u for t in searched for u in usable(fn, converted, t, in_dims)]
    found = []
    for number, what in enumerate(made):
        without = convert(text, GuardLog(left_out=number)).text
        if without == whole.text:
            # Another of the same kind stands for it.
            continue
        try:
            bare = getattr(load(without, "guards_bare"), known["ENTRY"])
        except Exception as error:
            found.append(Guard(name, number, what, f"{type(error).__name__}"))
            continue
        seen = next((d for t in trials if (d := different(fn, bare, t, in_dims))), "")
        found.append(Guard(name, number, what, seen))
    return found


def different(fn: Any, converted: Any, args: Sequence[Any], in_dims: Sequence[Any]) -> str:
    try:
        return "; ".join(compare(fn, converted, args, in_dims, second_order=True))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"


def inputs(make_inputs: Any, in_dims: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The module's own inputs, and those with each argument at edges, alone and all together."""
    for seed in (0, 1):
        yield make_inputs(seed, 16)
    base = make_inputs(2, 16)
    floating = [
        k
        for k, (a, dim) in enumerate(zip(base, in_dims, strict=False))
        if isinstance(a, torch.Tensor) and a.is_floating_point() and dim == 0
    ]
    for chosen in [[k] for k in floating] + ([floating] if len(floating) > 1 else []):
        for edge in EDGES:
            args = [a.clone() if isinstance(a, torch.Tensor) else a for a in base]
            for k in chosen:
                args[k][::2] = edge
            yield tuple(args)
    for a in floating:
        for b in floating:
            if a < b and base[a].shape == base[b].shape:
                args = [x.clone() if isinstance(x, torch.Tensor) else x for x in base]
                args[a][::2] = args[b][::2]
                yield tuple(args)


def mixes(make_inputs: Any, in_dims: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Inputs in which entries, rows and whole samples are edge values, whole numbers or identity matrices at random."""
    for seed in range(MIXES):
        g = torch.Generator().manual_seed(seed)
        args = list(make_inputs(seed + 3, 32))
        chosen = LARGE if seed % 2 else SMALL
        for k, (a, dim) in enumerate(zip(args, in_dims, strict=False)):
            if not isinstance(a, torch.Tensor) or dim != 0 or a.dtype == torch.bool:
                continue
            if not a.is_floating_point():
                high = FAR if seed % 2 else 9
                picked = torch.randint(-high if seed % 2 else -2, high, a.shape, generator=g).to(a.dtype)
                args[k] = torch.where(torch.rand(a.shape, generator=g) < 0.3, picked, a)
                continue
            edges = torch.tensor(chosen, dtype=a.dtype)
            picked = edges[torch.randint(len(chosen), a.shape, generator=g)]
            row = torch.rand(len(a), *[1] * (a.dim() - 1), generator=g)
            entry = torch.rand(a.shape, generator=g)
            whole = edges[torch.randint(len(chosen), row.shape, generator=g)]
            a = torch.where(row < 0.25, picked, torch.where(row < 0.5, whole.expand(a.shape), a))
            a = torch.where((row > 0.75) & (entry < 0.3), picked, a)
            if a.dim() == 3 and a.shape[1] == a.shape[2]:
                a[row.flatten() > 0.9] = torch.eye(a.shape[1], dtype=a.dtype)
            args[k] = a
        yield tuple(args)


def shared(trial: tuple[Any, ...], in_dims: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The trial with what all samples share set to an edge value."""
    for k, (a, dim) in enumerate(zip(trial, in_dims, strict=False)):
        if dim is None and isinstance(a, float):
            yield from ((*trial[:k], edge, *trial[k + 1 :]) for edge in SHARED)
        elif dim is None and isinstance(a, torch.Tensor) and a.is_floating_point():
            yield from ((*trial[:k], torch.full_like(a, edge), *trial[k + 1 :]) for edge in SHARED)


def usable(fn: Any, converted: Any, trial: tuple[Any, ...], in_dims: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The trial where the conversion equals the loop; or else those of its samples for which it does."""
    if not different(fn, converted, trial, in_dims):
        yield trial
        return
    batch = next(len(a) for a, d in zip(trial, in_dims, strict=False) if d == 0)
    good = []
    for k in range(batch):
        one = tuple(a[k : k + 1] if d == 0 else a for a, d in zip(trial, in_dims, strict=False))
        if not different(fn, converted, one, in_dims):
            good.append(k)
    if good:
        yield tuple(a[good] if d == 0 else a for a, d in zip(trial, in_dims, strict=False))


def modules(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*/before.py")):
        yield path.parent.name, path.read_text(encoding="utf-8", errors="surrogateescape")
    for path in sorted(folder.glob("*.py")):
        yield path.stem, path.read_text(encoding="utf-8")


def survey(folder: Path) -> list[Guard]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            g for name, text in modules(folder) if "# -*- coding" not in text for g in guards(name, with_vmap(text))
        ]


def with_vmap(text: str) -> str:
    """The module as its user has it: with the function vmapped."""
    known = constants(text)
    if "vmap(" in text or "ENTRY" not in known:
        return text
    return f"{text}\n\nBATCHED = torch.func.vmap({known['ENTRY']}, in_dims={known['IN_DIMS']!r})\n"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    found = survey(folder)
    for guard in found:
        if not guard.seen:
            print(f"{guard.module}, guard {guard.number} ({guard.what}): no difference found without it")
    needed = sum(bool(g.seen) for g in found)
    print(f"{len(found)} guards, {needed} shown necessary, {len(found) - needed} not")


if __name__ == "__main__":
    main()

__all__ = ["CASES", "Guard", "guards", "survey"]
