"""Measures what the speculation table claims: each torch operation at edge operands, to the second derivative.

The operations and their sample operands are torch's own test data (``op_db``), in float64, so that a new
torch operation is measured without a word here. An operation is given one sample after another with one
operand, or all, at an edge: zero, one, minus one, tiny, large, the identity, a bad index. What is not
finite, what raises, and what reaches other entries from an infinite one, makes its class.

``python -m if2where.ops.probe`` prints the operations, their measured and their listed classes.
Needs torch and ``expecttest``, which torch's test data imports.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from if2where.ops import table

#: The classes, from mild to strong; an effect is a class beside them.
ORDER = ("total", "product", "partial", "faulting")

#: Entries of an operand. Exponentials overflow at the large one, products of a few of them do not.
FILLED = (0.0, -1.0, 1.0, 1e-160)
FIRST = (0.0, 1.0, 1e4, -1e4)
BAD_INDICES = (0, -(10**4), 10**4)

#: How many samples of an operation are measured, of how many that are made, and their entries together.
SAMPLES = 8
DRAWN = 120
ENTRIES = 1500

#: Not a public name of the namespaces that the table covers.
LEFT_OUT = ("_", "torch.", "masked.", "signal.", "sparse.", "jiterator_")

#: Variants whose operands are not the operation's: it is given a product of them.
COMPOSED = ("singular",)

#: What they hold is not defined.
UNINITIALISED = ("empty", "resize")

#: Torch reads out of bounds, and the process may end: at an infinite operand (the grid under reflection),
#: at a bad index (a target). They are not given these.
UNBOUNDED = ("grid_sample", "ctc_loss")

#: Samples whose operands stand in another order than in the call: where each stands in the call.
ORDERS = {
    "nn.functional.embedding": (1, 0),
    "nn.functional.embedding_bag": (1, 0),
    "polygamma": (1, 0),
    "special.polygamma": (1, 0),
    "where": (1, 0),
}

#: What torch raises by value: a bad index, a singular matrix, an entry outside the domain.
RAISED = (RuntimeError, IndexError, ValueError, ZeroDivisionError)

NAMESPACES = {"nn.functional": "functional", "special": "special", "linalg": "linalg", "fft": "fft"}


@dataclass(frozen=True)
class Measurement:
    """What was seen of one operation. Each entry names an operand, by its place in the call, and its edge."""

    name: str
    namespace: str
    evaluations: int = 0
    value: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    differentiable: bool = False

    @property
    def called(self) -> str:
        return f"{self.namespace}.{self.name}"


def classify(measurement: Measurement) -> str:
    """The mildest class that what was measured allows."""
    if measurement.effects:
        return "effect"
    if measurement.raised:
        return "faulting"
    if measurement.value or measurement.first or measurement.second:
        return "partial"
    return "product" if measurement.spread else "total"


@dataclass(frozen=True)
class Sample:
    """One call: its leaves, how to call with others in their place, and where each leaf stands."""

    call: Callable[[Sequence[Any]], Any]
    leaves: tuple[Any, ...]
    #: The position (or the keyword) of each leaf's argument.
    places: tuple[int | str, ...]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def entries(self) -> int:
        return sum(x.numel() for x in self.tensors)

    @property
    def kind(self) -> str:
        """What tells samples apart: the plain arguments, and the shapes and dtypes of the operands."""
        parts = ((x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in self.leaves)
        return repr([*zip(self.places, parts, strict=True)])

    @property
    def operands(self) -> list[int]:
        return [k for k, leaf in enumerate(self.leaves) if _is_floating(leaf)]

    @property
    def indices(self) -> list[int]:
        return [k for k, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.int64]


@dataclass
class _Log:
    evaluations: int = 0
    value: dict[str, None] = field(default_factory=dict)
    first: dict[str, None] = field(default_factory=dict)
    second: dict[str, None] = field(default_factory=dict)
    raised: dict[str, None] = field(default_factory=dict)
    spread: dict[str, None] = field(default_factory=dict)
    effects: dict[str, None] = field(default_factory=dict)
    differentiable: bool = False


def operations() -> list[Any]:
    """The entries of ``op_db`` that are public torch functions or methods."""
    listed = (op for op in op_db if not op.name.startswith(LEFT_OUT))
    return [op for op in listed if place_of(op.name) is not None and not any(w in op.name for w in UNINITIALISED)]


def place_of(op_name: str) -> tuple[str, str] | None:
    """The namespace and the last name of an entry: "linalg.norm" is in linalg; "sqrt" in torch, or on Tensor.

    None for one that is no public function or method; "cauchy" is the method ``cauchy_``.
    """
    path, _, last = op_name.rpartition(".")
    if path:
        return NAMESPACES[path], last
    for name in (last, f"{last}_"):
        for namespace, owner in (("torch", torch), ("Tensor", torch.Tensor)):
            found = getattr(owner, name, None)
            if callable(found) and not isinstance(found, type | torch.dtype):
                return namespace, name
    return None


def measure(op: Any, safe: table.Operation | None = None) -> Measurement:
    """The operation (an ``OpInfo``) at the edges; with ``safe``, the operands that this row guards hold its values."""
    place = place_of(op.name)
    assert place is not None, op.name
    namespace, name = place
    log = _Log()
    bounded = not any(name in op.name for name in UNBOUNDED)
    effects = [_measure_sample(sample, log, safe, bounded) for sample in samples(op, torch.float64)]
    if effects and all(effects):
        # One that has it for some arguments only is settled by those.
        log.effects = dict.fromkeys(effects)
    for sample in samples(op, torch.int64, 2):
        _measure_integers(sample, log, safe)
    return Measurement(
        name,
        namespace,
        log.evaluations,
        value=tuple(log.value),
        first=tuple(log.first),
        second=tuple(log.second),
        raised=tuple(log.raised),
        spread=tuple(log.spread),
        effects=tuple(log.effects),
        differentiable=log.differentiable,
    )


def samples(op: Any, dtype: torch.dtype, wanted: int = SAMPLES) -> list[Sample]:
    """A few small samples, spread over the kinds of call that torch's data has."""
    floating = dtype == torch.float64
    if dtype not in op.dtypes and not (floating and torch.float32 in op.dtypes):
        if not floating or torch.int64 not in op.dtypes:
            return []
        dtype = torch.int64
    kinds: dict[str, Sample] = {}
    # Not op.sample_inputs, nor torch.manual_seed: they format a stack for each seed of each absent accelerator.
    torch.default_generator.manual_seed(0)
    made = op.sample_inputs_func(op, "cpu", dtype, op.supports_autograd and dtype == torch.float64)
    for k, given in enumerate(made):
        if k == DRAWN:
            break
        sample = _sample(op, given)
        if sample.tensors and all(x.numel() for x in sample.tensors) and not _senseless(op.name, sample):
            kinds.setdefault(sample.kind, sample)
    drawn = sorted(kinds.values(), key=lambda x: x.entries)
    drawn = [x for x in drawn if x.entries <= ENTRIES] or drawn[:1]
    if len(drawn) <= wanted:
        return drawn
    return [drawn[round(k * (len(drawn) - 1) / (wanted - 1))] for k in range(wanted)]


def _senseless(name: str, sample: Sample) -> bool:
    """A negative epsilon under a variance, which torch's data has."""
    return name.endswith(("_norm", "normalize")) and any(isinstance(x, float) and x < 0 for x in sample.leaves)


def _sample(op: Any, given: Any) -> Sample:
    arguments = (given.input, *given.args)
    leaves, spec = pytree.tree_flatten((arguments, given.kwargs))
    order = ORDERS.get(op.name, ())
    places: list[int | str] = []
    for k, argument in enumerate(arguments):
        position = order[k] if k < len(order) else k
        places += [position] * len(pytree.tree_leaves(argument))
    for key, argument in given.kwargs.items():
        places += [key] * len(pytree.tree_leaves(argument))

    def call(new: Sequence[Any]) -> Any:
        args, kwargs = pytree.tree_unflatten(list(new), spec)
        return op.op(*args, **kwargs)

    return Sample(call, tuple(leaves), tuple(places))


# --- edges ----------------------------------------------------------------------------------


def _edges(sample: Sample, free: Sequence[int]) -> Iterator[tuple[str, dict[int, torch.Tensor]]]:
    """Operands to put in place of the sample's, each with its name."""
    groups: list[tuple[int, ...]] = [(k,) for k in free]
    if len(free) > 1:
        groups.append(tuple(free))
    for group in groups:
        where = "all" if len(group) > 1 else f"{sample.places[group[0]]}"
        originals = {k: sample.leaves[k] for k in group}
        for edge in FILLED:
            yield f"{where}={edge:g}", {k: torch.full_like(x, edge) for k, x in originals.items()}
        for edge in FIRST:
            yield f"{where}[0]={edge:g}", {k: _with_first(x, edge) for k, x in originals.items()}
        if all(x.dim() >= 2 and x.shape[-1] == x.shape[-2] for x in originals.values()):
            yield f"{where}=eye", {k: _eye(x) for k, x in originals.items()}


def _with_first(x: torch.Tensor, edge: float) -> torch.Tensor:
    new = x.detach().clone(memory_format=torch.contiguous_format)
    new.view(-1)[0] = edge
    return new


def _eye(x: torch.Tensor) -> torch.Tensor:
    return torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype).expand(x.shape).clone()


def safe_operand(x: torch.Tensor, safe: table.Safe) -> torch.Tensor:
    """The operand as a guard makes it where nothing is demanded."""
    if isinstance(safe, int | float):
        # As torch.where does with a number: an integer operand becomes floating where the number is.
        floating = x.is_floating_point() or isinstance(safe, int)
        return torch.full_like(x, safe, dtype=x.dtype if floating else torch.float64)
    if safe in ("eye", "oblong eye"):
        return _eye(x)
    if safe in ("diagonal", "oblong diagonal"):
        return _eye(x) * torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    return torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape)


def _guarded(sample: Sample, safe: table.Operation | None) -> dict[int, torch.Tensor] | None:
    """The leaves that the row guards, at its safe values; None where the row cannot be put in place here."""
    held: dict[int, torch.Tensor] = {}
    for guarded in safe.operands if safe is not None else ():
        for k, (leaf, place) in enumerate(zip(sample.leaves, sample.places, strict=True)):
            if not isinstance(leaf, torch.Tensor) or not (place == guarded.position or place == guarded.keyword):
                continue
            square = leaf.dim() >= 2 and leaf.shape[-1] == leaf.shape[-2]
            if guarded.safe in ("eye", "diagonal") and not square:
                return None
            if str(guarded.safe).startswith("oblong") and leaf.dim() < 2:
                return None
            held[k] = safe_operand(leaf, guarded.safe)
    return held


# --- evaluation -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """How far an evaluation came (0: it raised; 1: a value; 2: derivatives; 3: second ones) and what was not finite."""

    stage: int
    finite: tuple[bool, ...] = ()
    gradients: tuple[torch.Tensor | None, ...] = ()
    effect: str = ""
    error: str = ""


def _evaluate(sample: Sample, put: dict[int, torch.Tensor], cotangent: float | None = None, stages: int = 3) -> _Seen:
    """The call with some operands replaced; ``cotangent`` fills the cotangent (random where it is None)."""
    leaves: list[Any] = list(sample.leaves)
    tracked: list[torch.Tensor] = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaves[k] = put.get(k, leaf).detach().clone()
            if leaf.requires_grad and leaves[k].is_floating_point():
                tracked.append(leaves[k].requires_grad_())
    versions = [x._version for x in leaves if isinstance(x, torch.Tensor)]
    state = torch.get_rng_state()
    try:
        result = sample.call(leaves)
    except RAISED as error:
        return _Seen(0, error=f"{type(error).__name__}")
    effect = "" if torch.equal(state, torch.get_rng_state()) else "random"
    if versions != [x._version for x in leaves if isinstance(x, torch.Tensor)]:
        effect = "in place"
    values = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.layout == torch.strided]
    values = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in values]
    values = [x for x in values if x.is_floating_point()]
    finite = [all(bool(x.detach().isfinite().all()) for x in values)]
    values = [x for x in values if x.requires_grad and x.numel()]
    if not values or not tracked or stages < 2:
        return _Seen(1, tuple(finite), effect=effect)
    generator = torch.Generator().manual_seed(1)

    def directional(outputs: list[torch.Tensor]) -> torch.Tensor:
        return sum(
            (
                (
                    x
                    * (
                        torch.rand(x.shape, generator=generator, dtype=x.dtype) + 0.5
                        if cotangent is None
                        else cotangent
                    )
                )
                .sum()
                .double()
                for x in outputs
            ),
            start=torch.zeros((), dtype=torch.float64),
        )

    gradients: tuple[torch.Tensor | None, ...] = ()
    for _ in range(stages - 1):
        try:
            made = torch.autograd.grad(directional(values), tracked, create_graph=True, allow_unused=True)
        except RAISED as error:
            return _Seen(len(finite), tuple(finite), gradients, effect, type(error).__name__)
        gradients = gradients or tuple(made)
        finite.append(all(bool(g.detach().isfinite().all()) for g in made if g is not None))
        values = [g for g in made if g is not None and g.requires_grad]
        if not values:
            break
    return _Seen(len(finite), tuple(finite), gradients, effect)


def _measure_sample(sample: Sample, log: _Log, safe: table.Operation | None, bounded: bool) -> str:
    """Adds what is seen to the log; the effect, for an operation that has one, and then nothing else."""
    held = _guarded(sample, safe)
    base = _evaluate(sample, {})
    if base.effect or held is None:
        return base.effect
    if base.stage == 0:
        return ""
    log.differentiable |= base.stage > 1
    if all(bool(x.isfinite().all()) for x in sample.tensors):
        _record(log, "safe" if held else "sample", base, _evaluate(sample, held) if held else base)
    free = [k for k in sample.operands if k not in held]
    for name, put in _edges(sample, free):
        _record(log, name, base, _evaluate(sample, {**held, **put}, stages=base.stage))
    for k in sample.indices if bounded else ():
        if k not in held:
            for index in BAD_INDICES:
                bad = {k: torch.full_like(sample.leaves[k], index)}
                _record(log, f"{sample.places[k]}={index}", base, _evaluate(sample, {**held, **bad}, stages=1))
    if base.stage > 1 and bounded and safe is None:
        _measure_spread(sample, log)
    return ""


def _record(log: _Log, name: str, base: _Seen, seen: _Seen) -> None:
    """Adds what was not finite, and what was raised before the sample itself would have."""
    log.evaluations += 1
    if seen.stage == 0 or (seen.error and seen.stage < base.stage):
        log.raised[f"{name}: {seen.error}"] = None
    for kept, finite in zip((log.value, log.first, log.second), seen.finite):
        if not finite:
            kept[name] = None


def _measure_spread(sample: Sample, log: _Log) -> None:
    """Whether an infinite entry makes the derivative of another entry, or of another operand, not finite."""
    tracked = [k for k in sample.operands if sample.leaves[k].requires_grad]
    for k in sample.operands:
        for edge in (math.inf, math.nan):
            seen = _evaluate(sample, {k: _with_first(sample.leaves[k], edge)}, cotangent=0.0, stages=2)
            log.evaluations += 1
            for at, gradient in zip(tracked, seen.gradients):
                if gradient is None:
                    continue
                others = gradient.detach().reshape(-1)[1 if at == k else 0 :]
                if not others.isfinite().all():
                    log.spread[f"{sample.places[k]}[0]={edge:g}"] = None


def _measure_integers(sample: Sample, log: _Log, safe: table.Operation | None) -> None:
    """Integer operands: a division by zero raises, where floats give infinity."""
    held = _guarded(sample, safe)
    if held is None or _evaluate(sample, {}, stages=1).stage == 0:
        return
    base = _Seen(1)
    if held:
        _record(log, "safe (int)", base, _evaluate(sample, held, stages=1))
    for k in sample.indices:
        if k not in held:
            for edge in BAD_INDICES:
                put = {k: torch.full_like(sample.leaves[k], edge)}
                seen = _evaluate(sample, {**held, **put}, stages=1)
                _record(log, f"{sample.places[k]}={edge} (int)", base, _Seen(seen.stage, error=seen.error))


def _is_floating(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


# --- the whole ------------------------------------------------------------------------------


def join(measurements: Sequence[Measurement]) -> Measurement:
    """One measurement of the variants of one operation."""

    def together(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(x for one in lists for x in one))

    return Measurement(
        measurements[0].name,
        measurements[0].namespace,
        sum(m.evaluations for m in measurements),
        value=together(m.value for m in measurements),
        first=together(m.first for m in measurements),
        second=together(m.second for m in measurements),
        raised=together(m.raised for m in measurements),
        spread=together(m.spread for m in measurements),
        effects=together(m.effects for m in measurements),
        differentiable=any(m.differentiable for m in measurements),
    )


def entries() -> dict[tuple[str, str], list[Any]]:
    """The entries of ``op_db``, by namespace and last name."""
    found: dict[tuple[str, str], list[Any]] = {}
    for op in operations():
        place = place_of(op.name)
        assert place is not None
        found.setdefault(place, []).append(op)
    return found


def measure_all(only: Callable[[str], bool] = lambda name: True) -> dict[tuple[str, str], Measurement]:
    """Each operation, by namespace and last name."""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        return {place: join([measure(op) for op in ops]) for place, ops in entries().items() if only(".".join(place))}


def measure_safe(place: tuple[str, str], row: table.Operation) -> Measurement:
    """The operation with the operands that the row guards at its safe values, the others at the edges."""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        return join([measure(op, row) for op in entries()[place] if op.variant_test_name not in COMPOSED])


def main() -> None:
    """Prints each operation's measured and listed class, with what was seen, and the counts of each class."""
    measured = measure_all()
    console = Console()
    shown = Table("operation", "measured", "listed", "seen")
    for (namespace, name), found in sorted(measured.items(), key=lambda item: (classify(item[1]), item[0])):
        row = table.lookup(name, namespace)
        seen = {
            "value": found.value,
            "first": found.first,
            "second": found.second,
            "raises": found.raised,
            "spreads": found.spread,
            "effect": found.effects,
        }
        text = "; ".join(f"{what} {', '.join(at[:3])}" for what, at in seen.items() if at)
        shown.add_row(found.called, classify(found), row.speculation if row else "unlisted", text)
    console.print(shown)
    for title, counts in (
        ("measured", Counter(map(classify, measured.values()))),
        ("listed", table.counts()),
    ):
        console.print(f"{title}: {sum(counts.values())} ({', '.join(f'{n} {c}' for c, n in sorted(counts.items()))})")


if __name__ == "__main__":
    main()
