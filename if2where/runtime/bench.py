"""Speed: the loop over samples against the conversion under vmap, eager and compiled, and against ``torch.cond``."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from if2where.runtime import compare
from if2where.runtime.compare import Batch
from if2where.runtime.cond import NoCond, with_cond
from if2where.runtime.samples import make_inputs
from if2where.settings import SIZES, WAYS
from if2where.units import duration, size

#: Seconds: a way that takes longer than this for one call is not run on more samples.
SLOW = 2.0
#: Seconds spent on one figure, so that it is the median of many calls where they are short.
_SPENT = 0.25
#: Memory is followed event by event, which slows a loop down: above so many samples it is left out there.
_FOLLOWED = 1_000


@dataclass(frozen=True)
class Timing:
    """One way on one number of samples: seconds for a call and for call and backward, MiB at the peak of both.

    None is what was not measured, for the reason in ``note``; ``backward`` is None too where nothing has a gradient.
    """

    way: str
    samples: int
    forward: float | None = None
    backward: float | None = None
    memory: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Bench:
    """The timings of a function, way by way, from few samples to many."""

    name: str
    timings: tuple[Timing, ...]

    def of(self, way: str, samples: int) -> Timing | None:
        return next((t for t in self.timings if t.way == way and t.samples == samples), None)

    def speedup(self, samples: int | None = None) -> float | None:
        """How many times faster the conversion is than the loop, on the most samples that both were run on."""
        both = [
            (loop.samples, loop.forward / converted.forward)
            for loop in self.timings
            if loop.way == "loop" and loop.forward
            for converted in [self.of("converted", loop.samples)]
            if converted is not None and converted.forward and samples in (None, loop.samples)
        ]
        return max(both)[1] if both else None

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, for json."""
        return {"name": self.name, "timings": [asdict(t) for t in self.timings]}

    def __str__(self) -> str:
        lines = [self.name, f"{'samples':>8}  {'way':10}  {'forward':>10}  {'+ backward':>10}  {'peak':>10}"]
        lines += [
            f"{t.samples:8,}  {t.way:10}  {duration(t.forward):>10}  {duration(t.backward):>10}  {size(t.memory):>10}"
            + (f"  {t.note}" if t.note else "")
            for t in sorted(self.timings, key=lambda t: (t.samples, WAYS.index(t.way)))
        ]
        return "\n".join(lines)

    __repr__ = __str__


def bench(
    fn: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    in_dims: Any = 0,
    *,
    converted: Callable[..., Any] | None = None,
    sizes: Sequence[int] = SIZES,
    ways: Sequence[str] = WAYS,
    seed: int = 0,
    samples: int = 64,
) -> Bench:
    """Times ``fn`` sample by sample against its conversion under vmap, on batches of ``sizes`` samples.

    ``inputs`` are the arguments with their samples along ``in_dims``, repeated as often as a size asks for; without
    them, ``samples`` of them are made. ``converted`` is a per-sample version (``if2where.convert(fn)`` where none is
    given), ``ways`` some of ``WAYS``. Each figure is the median of calls after a first one that is not counted. A way
    that takes longer than two seconds is not run on more samples. Raises as ``verify`` does.
    """
    if converted is None:
        from if2where.runtime.functions import convert

        converted = convert(fn, in_dims=in_dims)
    if inputs is None:
        inputs, in_dims = make_inputs(fn, in_dims, samples, seed)
    batch = compare.batch_of(inputs, in_dims)
    calls = _calls(fn, converted, batch, ways)
    timings: list[Timing] = []
    for way in ways:
        call, slow = calls[way], False
        for n in sizes:
            if isinstance(call, str):
                timings.append(Timing(way, n, note=call))
                break
            if slow:
                timings.append(Timing(way, n, note=f"not run: above {SLOW:g} s on fewer samples"))
                continue
            found = _timing(way, call, batch.rows([k % batch.size for k in range(n)]))
            timings.append(found)
            if found.note:
                break
            slow = max(found.forward or 0, found.backward or 0) > SLOW
    return Bench(getattr(fn, "__qualname__", type(fn).__name__), tuple(timings))


def _calls(
    fn: Callable[..., Any], converted: Callable[..., Any], batch: Batch, ways: Sequence[str]
) -> dict[str, Callable[[Batch], Sequence[torch.Tensor]] | str]:
    """Each way as a function from a batch to its outputs, or why there is none."""

    def mapped(one: Callable[..., Any]) -> Callable[..., Any]:
        whole: Callable[..., Any] = torch.func.vmap(lambda *a: compare.as_tensors(one(*a)), in_dims=batch.dims)
        return whole

    def loop(b: Batch) -> list[torch.Tensor]:
        results = [compare.as_tensors(fn(*b.sample(k, clone=False))) for k in range(b.size)]
        return [torch.stack(column) for column in zip(*results, strict=True)]

    calls: dict[str, Callable[[Batch], Sequence[torch.Tensor]] | str] = {"loop": loop}
    whole = mapped(converted)
    calls["converted"] = lambda b: whole(*b.args)
    if "compiled" in ways:
        torch._dynamo.reset()
        compiled = torch.compile(mapped(converted))
        calls["compiled"] = lambda b: compiled(*b.args)
    if "torch.cond" in ways:
        try:
            conditional = mapped(with_cond(fn))
        except NoCond as error:
            calls["torch.cond"] = f"cannot be written: {error}"
        else:
            calls["torch.cond"] = lambda b: conditional(*b.args)
    return calls


def _timing(way: str, call: Callable[[Batch], Sequence[torch.Tensor]], batch: Batch) -> Timing:
    live = batch.with_floating([t.detach().clone().requires_grad_() for _, t, _ in batch.floating()])

    def forward() -> None:
        with torch.no_grad():
            call(batch)

    def backward() -> bool:
        out = [o for o in call(live) if o.requires_grad]
        if out:
            torch.autograd.grad(sum(o.sum() for o in out), [t for _, t, _ in live.floating()], allow_unused=True)
        return bool(out)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            forward()
            has_gradient = backward()
            timed = _median(forward), _median(backward) if has_gradient else None
            memory = _peak(backward) if way != "loop" or batch.size <= _FOLLOWED else None
        except Exception as error:  # what torch cannot compile or map is a finding, not a failure
            reason = (str(error).strip().splitlines() or [""])[0][:120]
            return Timing(way, batch.size, note=f"raises {type(error).__name__}: {reason}")
    return Timing(way, batch.size, *timed, memory)


def _median(call: Callable[[], object]) -> float:
    _settle()
    found: list[float] = []
    until = time.perf_counter() + _SPENT
    while not found or (time.perf_counter() < until and len(found) < 200):
        start = time.perf_counter()
        call()
        _settle()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def _settle() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _peak(call: Callable[[], object]) -> float:
    """MiB that a call holds at most, by what torch allocates."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return float(torch.cuda.max_memory_allocated() - before) / 2**20
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    assert profile.profiler is not None
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 2**20
