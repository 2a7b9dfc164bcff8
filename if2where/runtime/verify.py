"""Verification: a function run sample by sample against its conversion, or against anybody's batched version."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from if2where.runtime import compare
from if2where.runtime.compare import Batch, Difference, Target
from if2where.runtime.coverage import Recorder, Test, watched
from if2where.runtime.samples import make_inputs

#: Steps of the search for a test's boundary, by dtype: a few units in the last place are left between its two ends.
_BISECTIONS = {torch.float64: 44, torch.float32: 18, torch.bfloat16: 5, torch.float16: 7}
_MOST_BOUNDARIES = 24


class VerificationError(AssertionError):
    """A version that is not the same as the loop."""


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    ``samples`` were compared, in ``compared`` outputs and derivatives; ``differences`` are where the batched
    version is not the same; ``tests`` are the original's tests with how many samples took either side;
    ``flips`` are samples that lie so near to a test's boundary that vmap's own rounding takes them across.
    """

    name: str
    samples: int
    compared: tuple[str, ...]
    differences: tuple[Difference, ...]
    tests: tuple[Test, ...] = ()
    flips: tuple[int, ...] = ()
    allow_unexercised: bool | tuple[int, ...] = False
    _shown: int = field(default=5, repr=False)

    @property
    def unexercised(self) -> tuple[Test, ...]:
        """The tests of which no sample took one side, and that are not allowed to be so."""
        if self.allow_unexercised is True:
            return ()
        allowed = self.allow_unexercised or ()
        return tuple(t for t in self.tests if t.missing and t.line not in allowed)

    @property
    def ok(self) -> bool:
        """Whether something was compared, all of it is equal, and every test was taken both ways."""
        return bool(self.samples and self.compared) and not self.differences and not self.unexercised

    @property
    def worst(self) -> Difference | None:
        """The largest difference."""
        ranked = sorted(self.differences, key=lambda d: -math.inf if math.isnan(d.size) else d.size)
        return ranked[-1] if ranked else None

    def raise_for_mismatch(self) -> Verification:
        """Raises VerificationError, with the report, unless ``ok``; gives itself back otherwise."""
        if not self.ok:
            raise VerificationError(str(self))
        return self

    def __str__(self) -> str:
        lines = [f"{self.name}: {'equal' if self.ok else 'NOT VERIFIED'} in {self.samples} samples"]
        lines.append(f"  compared: {', '.join(self.compared) or 'nothing'}")
        lines += [f"  {d}" for d in self.differences[: self._shown]]
        if len(self.differences) > self._shown:
            lines.append(f"  and {len(self.differences) - self._shown} more")
        for t in self.tests:
            note = f"; no sample took the {t.missing} side" if t.missing else ""
            lines.append(f"  line {t.line}: {t.text}: true {t.true}, false {t.false}{note}")
        if self.flips:
            lines.append(f"  rounding flips at a test's boundary: {len(self.flips)}")
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for json."""
        return {
            "name": self.name,
            "ok": self.ok,
            "samples": self.samples,
            "compared": list(self.compared),
            "differences": [
                {"what": d.what, "sample": d.sample, "got": d.got, "want": d.want} for d in self.differences
            ],
            "tests": [
                {"line": t.line, "col": t.col, "text": t.text, "true": t.true, "false": t.false} for t in self.tests
            ],
            "unexercised": [{"line": t.line, "side": t.missing} for t in self.unexercised],
            "rounding_flips": list(self.flips),
        }


def verify(
    fn: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    in_dims: Any = 0,
    *,
    converted: Callable[..., Any] | None = None,
    batched: Callable[..., Any] | None = None,
    second_order: bool = False,
    forward_mode: bool = False,
    nested: bool = False,
    seed: int = 0,
    samples: int = 64,
    allow_unexercised: bool | Sequence[int] = False,
) -> Verification:
    """Compares ``fn``, run eagerly on one sample after the other, with a version for all of them.

    ``converted`` is a per-sample version, which is vmapped (``if2where.convert(fn)`` where none is given),
    ``batched`` one that takes the whole batch. ``inputs`` are the arguments with their batch dimensions along
    ``in_dims``; without them, ``samples`` of them are made. Samples at both sides of every test's boundary are
    added. Compared are values, shapes, dtypes and the arguments after the call; the gradients by every floating
    argument, parameter and captured tensor; with ``second_order`` the second derivatives, with ``forward_mode``
    the jvp, with ``nested`` also ``vmap(vmap(...))``.

    A test of which no sample takes one side makes the verification fail, unless ``allow_unexercised`` is True or
    holds its line. Raises ConversionRefused where there is nothing to compare with, NoInputs where none are found.
    """
    if converted is None and batched is None:
        from if2where.runtime.functions import convert

        converted = convert(fn, in_dims=in_dims)
    given = inputs is not None
    if inputs is None:
        inputs, in_dims = make_inputs(fn, in_dims, samples, seed)
    batch = compare.batch_of(inputs, in_dims)
    recorder = Recorder()
    copy = watched(fn, recorder)
    batch = _with_boundaries(copy, recorder, batch, seed)
    recorder.counts.clear()
    compare.loop(copy, batch)
    allowed = allow_unexercised if isinstance(allow_unexercised, bool) else tuple(allow_unexercised)
    check = _Check(fn, converted, batched, batch, seed)
    check.run(second_order, forward_mode, nested)
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return Verification(
        name if given else f"{name} (on made-up inputs)",
        batch.size,
        tuple(check.compared),
        tuple(check.differences),
        recorder.tests(),
        tuple(check.flips),
        allowed,
    )


class _Check:
    """One comparison, from values to derivatives: what comes later is left out where something differs before."""

    def __init__(
        self,
        fn: Callable[..., Any],
        converted: Callable[..., Any] | None,
        batched: Callable[..., Any] | None,
        batch: Batch,
        seed: int,
    ) -> None:
        self.fn = fn
        self.converted = converted
        self.batched = batched
        self.batch = batch
        self.seed = seed
        self.compared: list[str] = []
        self.differences: list[Difference] = []
        self.flips: list[int] = []

    def whole(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """The outputs of the version for all samples."""
        if self.batched is not None:
            return compare.as_tensors(self.batched(*batch.args))
        converted = self.converted
        assert converted is not None
        return self._tensors(
            torch.func.vmap(lambda *a: compare.as_tensors(converted(*a)), in_dims=batch.dims)(*batch.args)
        )

    @staticmethod
    def _tensors(out: Any) -> tuple[torch.Tensor, ...]:
        return tuple(out)

    def run(self, second_order: bool, forward_mode: bool, nested: bool) -> None:
        with torch.no_grad():
            want = compare.loop(self.fn, self.batch)
            passed = self.batch.copied()
            try:
                got = self.whole(passed)
            except Exception as error:  # whatever the version raises, the loop has not raised it
                reason = str(error).strip().splitlines() or [""]
                what = "conversion under vmap" if self.batched is None else "batched version"
                self.differences.append(
                    Difference(f"the {what}", None, f"raises {type(error).__name__}: {reason[-1][:200]}", "a result")
                )
                self.compared.append("whether it runs")
                return
        after = [
            leaf
            for a, d in zip(passed.args, passed.dims, strict=True)
            if d is not None
            for leaf in pytree.tree_leaves(a)
        ]
        found = list(compare.values(want, got, after))
        wrong = {d.sample for d in found if d.sample is not None and d.what.startswith("output")}
        self.flips = sorted(k for k in wrong if self.is_flip(k, got))
        self.differences += [d for d in found if d.sample not in self.flips]
        self.compared.append("values, shapes, dtypes and arguments after the call")
        if self.differences:
            return
        self.derivatives(want, second_order)
        if forward_mode and not self.differences:
            self.forward()
        if nested and self.converted is not None and not self.differences:
            self.nested(got)

    def is_flip(self, sample: int, got: Sequence[torch.Tensor]) -> bool:
        """Whether the original itself gives what was got, a few units in the last place beside the sample."""
        one = self.batch.rows([sample])
        generator = torch.Generator().manual_seed(self.seed)
        for k in range(24):
            moved = [
                t
                + (torch.randint(-3, 4, t.shape, generator=generator) * (1 + k // 8))
                * torch.finfo(t.dtype).eps
                * t.abs()
                for _, t, _ in one.floating()
            ]
            with torch.no_grad():
                near = compare.Outputs(compare.loop(self.fn, one.with_floating(moved)).columns, [])
            if not list(compare.values(near, [g[sample : sample + 1] for g in got], [])):
                return True
        return False

    def derivatives(self, want: compare.Outputs, second_order: bool) -> None:
        columns = [compare.stacked(c) for c in want.columns]
        finite = torch.stack([torch.isfinite(c).reshape(len(c), -1).all(1) for c in columns]).all(0)
        kept = [k for k in range(self.batch.size) if bool(finite[k]) and k not in self.flips]
        batch = self.batch.rows(kept)
        with _captured(self.fn) as captured:
            targets = [Target(n, t, b) for n, t, b in batch.floating()] + [Target(n, t, False) for n, t in captured]
            if not targets or not kept:
                return
            tensors = [t for _, t in captured]
            for order in (1, 2) if second_order else (1,):
                what = "gradient" if order == 1 else "second derivative"
                a = compare.gradients(self.loop_columns, batch, tensors, order, self.seed)
                b = compare.gradients(self.whole, batch, tensors, order, self.seed)
                if a is None and b is None:
                    return
                self.differences += compare.derivative_differences(what, a, b, targets, range(len(kept)))
                self.compared.append(f"{what}s by {', '.join(t.name for t in targets)}")
                if self.differences:
                    return

    def loop_columns(self, batch: Batch) -> list[torch.Tensor]:
        return [compare.stacked(c) for c in compare.loop(self.fn, batch).columns]

    def forward(self) -> None:
        primals = tuple(t for _, t, _ in self.batch.floating())
        if not primals:
            return
        generator = torch.Generator().manual_seed(self.seed + 1)
        tangents = tuple(
            (torch.rand(p.shape, generator=generator, dtype=torch.float64) - 0.5).to(p.dtype) for p in primals
        )

        def run(outputs: Callable[[Batch], Sequence[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
            def call(*live: torch.Tensor) -> tuple[torch.Tensor, ...]:
                return tuple(o.double() for o in outputs(self.batch.with_floating([t * 1 for t in live])))

            return tuple(torch.func.jvp(call, primals, tangents)[1])

        for k, (a, b) in enumerate(zip(run(self.loop_columns), run(self.whole), strict=True)):
            target = [Target(f"output {k}", a, True)]
            rows = [r for r in range(self.batch.size) if r not in self.flips and bool(torch.isfinite(a[r]).all())]
            self.differences += compare.derivative_differences("jvp", [a], [b], target, rows)
        self.compared.append("jvp")

    def nested(self, got: Sequence[torch.Tensor]) -> None:
        """The samples as a batch of batches."""
        half = self.batch.size // 2
        batch = self.batch.rows(range(2 * half))

        def fold(leaf: Any) -> Any:
            return leaf.reshape(2, half, *leaf.shape[1:]) if isinstance(leaf, torch.Tensor) else leaf

        args = [pytree.tree_map(fold, a) if d is not None else a for a, d in zip(batch.args, batch.dims, strict=True)]
        converted = self.converted
        assert converted is not None
        inner = torch.func.vmap(lambda *a: compare.as_tensors(converted(*a)), in_dims=batch.dims)
        outs = torch.func.vmap(inner, in_dims=batch.dims)(*args)
        for k, (a, b) in enumerate(zip(got, outs, strict=True)):
            folded = b.reshape(2 * half, *b.shape[2:])
            if not torch.allclose(
                a[: 2 * half].double(), folded.double(), equal_nan=True, **compare.tolerance(a.dtype)
            ):
                self.differences.append(
                    Difference(f"output {k} under vmap(vmap)", None, "other values", "those of vmap")
                )
        self.compared.append("vmap(vmap)")


@contextmanager
def _captured(fn: Any) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """The floating tensors that the function reads besides its arguments, each asked for its gradient meanwhile."""
    found: dict[int, tuple[str, torch.Tensor]] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.is_leaf:
            found.setdefault(id(value), (name, value))
        elif isinstance(value, torch.nn.Module):
            for inner, parameter in value.named_parameters():
                found.setdefault(id(parameter), (f"{name}.{inner}", parameter))

    inner = fn
    if isinstance(fn, torch.nn.Module):
        add("self", fn)
        inner = type(fn).forward
    elif isinstance(fn, types.MethodType):
        add("self", fn.__self__)
        inner = fn.__func__
    if isinstance(inner, types.FunctionType):
        read = inspect.getclosurevars(inner)
        for name, value in {**read.globals, **read.nonlocals}.items():
            add(f"`{name}`", value)
    before = [(t, t.requires_grad) for _, t in found.values()]
    for t, _ in before:
        t.requires_grad_(True)
    try:
        yield list(found.values())
    finally:
        for t, asked in before:
            t.requires_grad_(asked)


# --- boundaries -----------------------------------------------------------------------------


def _with_boundaries(fn: Callable[..., Any], recorder: Recorder, batch: Batch, seed: int) -> Batch:
    """The batch with, for each test that samples take both ways, two more that lie close to either side of its boundary."""
    outcomes = []
    for k in range(batch.size):
        recorder.last.clear()
        fn(*batch.sample(k))
        outcomes.append(dict(recorder.last))
    found: list[Batch] = []
    for place in sorted({p for o in outcomes for p in o})[:_MOST_BOUNDARIES]:
        true = [k for k, o in enumerate(outcomes) if o.get(place) is True]
        false = [k for k, o in enumerate(outcomes) if o.get(place) is False]
        if true and false:
            found += _bisected(fn, recorder, batch, place, true[-1], false[-1])
    if not found:
        return batch
    joined = tuple(
        pytree.tree_map(lambda *leaves: torch.cat(leaves) if isinstance(leaves[0], torch.Tensor) else leaves[0], *parts)
        if d is not None
        else parts[0]
        for d, *parts in zip(batch.dims, batch.args, *(f.args for f in found), strict=True)
    )
    return Batch(joined, batch.dims)


def _bisected(
    fn: Callable[..., Any], recorder: Recorder, batch: Batch, place: tuple[int, int], true: int, false: int
) -> list[Batch]:
    a, b = batch.rows([true]), batch.rows([false])
    floating = [(x, y) for (_, x, is_batched), (_, y, _) in zip(a.floating(), b.floating(), strict=True) if is_batched]
    if not floating or any(not bool(torch.isfinite(t).all()) for pair in floating for t in pair):
        return []
    steps = min(_BISECTIONS.get(x.dtype, 0) for x, _ in floating)

    def between(t: float) -> Batch:
        mixed = [
            x + t * (y - x) if is_batched else x
            for (_, x, is_batched), (_, y, _) in zip(a.floating(), b.floating(), strict=True)
        ]
        return a.with_floating(mixed)

    def outcome(t: float) -> bool | None:
        recorder.last.clear()
        try:
            fn(*between(t).sample(0))
        except Exception:  # the user's code, at a point that nobody gave: it does not count as a sample
            return None
        return recorder.last.get(place)

    low, high = 0.0, 1.0
    if outcome(low) is not True or outcome(high) is not False:
        return []  # the samples differ in something else than their floating arguments
    for _ in range(steps):
        middle = (low + high) / 2
        side = outcome(middle)
        if side is None:
            return []
        low, high = (middle, high) if side else (low, middle)
    return [between(low), between(high)]
