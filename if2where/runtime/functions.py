"""Function objects: ``convert`` gives the converted function, ``vmap`` maps it over a batch."""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import torch

from if2where.diagnostics.diagnostic import Diagnostic
from if2where.kinds.infer import Facts, infer
from if2where.kinds.lattice import Instance, Kind, Mapping, Sequence, Static, Tensor, Unknown
from if2where.pipeline import (
    Names,
    Options,
    Rewrite,
    deep_recursion,
    diagnostic_of,
    entry_kinds,
    rewrite_all,
    with_callers_of_refused,
)
from if2where.program import Callee
from if2where.region import tree
from if2where.runtime.live import LiveProgram, value_of
from if2where.runtime.loops import any_active
from if2where.runtime.rebuild import Rebuilder, shown_text

#: How often inference is done again because something was seen late.
_ROUNDS = 20


class ConversionRefused(Exception):
    """A function that cannot be converted exactly. ``diagnostics`` says where and why."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        lines = [
            f"{d.path}:{d.line}:{d.col}: {d.code.code} {d.message}{f' (in {d.function})' if d.function else ''}"
            f"\n    {d.code.hint}"
            for d in diagnostics
        ]
        super().__init__("\n".join(lines))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[type[ConversionRefused], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)


@dataclass(frozen=True)
class _Call:
    """How a function is going to be called: by ``in_dims``, and by the arguments where they are known."""

    in_dims: Any = 0
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None


@overload
def convert(
    fn: None = None,
    *,
    in_dims: Any = 0,
    example_inputs: tuple[Any, ...] | None = None,
    guards: str = "auto",
    checks: str = "keep",
    max_iterations: int | None = None,
    allow_random: bool = False,
) -> Callable[[Any], Any]: ...


@overload
def convert(
    fn: Callable[..., Any],
    *,
    in_dims: Any = 0,
    example_inputs: tuple[Any, ...] | None = None,
    guards: str = "auto",
    checks: str = "keep",
    max_iterations: int | None = None,
    allow_random: bool = False,
) -> Any: ...


def convert(
    fn: Callable[..., Any] | None = None,
    *,
    in_dims: Any = 0,
    example_inputs: tuple[Any, ...] | None = None,
    guards: str = "auto",
    checks: str = "keep",
    max_iterations: int | None = None,
    allow_random: bool = False,
) -> Any:
    """The function with its data-dependent branches turned into ``torch.where``, for ``torch.func.vmap``.

    ``fn`` is a function, lambda, method, ``functools.partial``, ``nn.Module`` or other callable object;
    ``in_dims`` is vmap's (an int, None, or a tuple with an entry for each argument), ``example_inputs`` a
    tuple of arguments as vmap gets them (with their batch dimensions), from which kinds are taken instead
    of guessed. Without ``fn``, a decorator.

    Functions that ``fn`` calls are converted with it; nothing of theirs or of ``fn`` itself is changed. A
    function that needs no conversion is given back as it is. Raises ConversionRefused where the conversion
    would not be exact, SourceUnavailable where there is no source to convert.
    """
    if fn is None:
        return functools.partial(
            convert,
            in_dims=in_dims,
            example_inputs=example_inputs,
            guards=guards,
            checks=checks,
            max_iterations=max_iterations,
            allow_random=allow_random,
        )
    options = Options("vmapped", guards=guards, checks=checks, max_iterations=max_iterations, allow_random=allow_random)
    return _convert(fn, options, _Call(in_dims, example_inputs))


def _convert(fn: Any, options: Options, call: _Call) -> Any:
    with deep_recursion():
        return _Conversion(fn, options, call).run()


class _Conversion:
    """One conversion of one object."""

    def __init__(self, fn: Any, options: Options, call: _Call) -> None:
        self.fn = fn
        self.options = options
        self.call = call
        self.program = LiveProgram()

    def run(self) -> Any:
        callee, kinds = self.entry()
        facts = self.infer({callee: kinds})
        rewrites = with_callers_of_refused(rewrite_all(self.program, facts, self.options, self.names), facts)
        refusals = sorted(
            {diagnostic_of(f, r.callee.module.source.path) for r in rewrites for f in r.refusals},
            key=lambda d: (d.path, d.line, d.col, d.code.code),
        )
        if refusals:
            raise ConversionRefused(tuple(refusals))
        changed = [r for r in rewrites if r.changed]
        if not changed:
            return self.fn
        return self.rebuild(callee, changed)

    # --- what is converted ------------------------------------------------------------------

    def entry(self) -> tuple[Callee, dict[str, Kind]]:
        """The function to start from, and the kinds of its parameters."""
        function, first = _function_of(self.fn)
        owner = None
        if first is not None:
            for cls in (first if isinstance(first, type) else type(first)).__mro__:
                if any(_under(v) is function for v in vars(cls).values()):
                    owner = self.program.class_info(cls)
        callee = self.program.callee_of(function, owner)
        kinds = entry_kinds(self.program, callee, self.batched(callee, first is not None))
        if first is not None and callee.params:
            kinds[callee.params[0].name] = self.program.observe(first)
        self.observe_arguments(callee, kinds, first is not None)
        return callee, kinds

    def batched(self, callee: Callee, bound: bool) -> dict[str, Any]:
        """The in_dims of each parameter."""
        dims = self.call.in_dims
        given = None if self.call.args is None else len(self.call.args)
        specs: dict[str, Any] = {}
        positional = list(callee.positional)[1 if bound else 0 :]
        for k, p in enumerate(positional):
            if isinstance(dims, tuple | list):
                spec = dims[k] if k < len(dims) else None
            elif given is not None:
                spec = dims if k < given else None
            else:
                spec = dims if p.default is None else None
            specs[p.name] = "unbatched" if spec is None else "batched" if isinstance(spec, int) else spec
        for p in callee.params:
            if p.kind == "star":
                rest = dims[len(positional) :] if isinstance(dims, tuple | list) else [dims]
                specs[p.name] = "unbatched" if all(d is None for d in rest) else "batched"
        return specs

    def observe_arguments(self, callee: Callee, kinds: dict[str, Kind], bound: bool) -> None:
        if self.call.args is None:
            return
        dims = self.call.in_dims
        for k, (p, value) in enumerate(zip(list(callee.positional)[1 if bound else 0 :], self.call.args, strict=False)):
            spec = (dims[k] if k < len(dims) else None) if isinstance(dims, tuple | list) else dims
            kinds[p.name] = self.argument(value, spec, p.name)
        for name, value in (self.call.kwargs or {}).items():
            if name in kinds and any(p.name == name and p.kind != "double star" for p in callee.params):
                kinds[name] = self.argument(value, None, name)

    def argument(self, value: Any, spec: Any, name: str | None) -> Kind:
        """The kind of an argument as vmap is given it; ``name`` where its dtype can be written as the parameter's."""
        if isinstance(value, torch.Tensor):
            batched = spec is not None
            shape = (None,) * max(value.dim() - batched, 0)
            if name is None or value.dtype == torch.bool:
                dtype = str(value.dtype).removeprefix("torch.")
            else:
                dtype = f"@{name}+f" if value.is_floating_point() else f"@{name}"
            return Tensor(batched, dtype, shape)
        if type(value) in (tuple, list):
            inner = spec if isinstance(spec, tuple | list) else [spec] * len(value)
            items = tuple(self.argument(v, s, None) for v, s in zip(value, inner, strict=True))
            return Sequence("tuple" if isinstance(value, tuple) else "list", items)
        if type(value) is dict:
            specs = spec if isinstance(spec, dict) else dict.fromkeys(value, spec)
            return Mapping(tuple(value), tuple(self.argument(v, specs[k], None) for k, v in value.items()))
        if value is None:
            return Static("none", None)
        if type(value) in (bool, int, float, str):
            return Static(type(value).__name__)
        return self.program.observe(value) if spec is None else Unknown(True)

    def infer(self, entries: dict[Callee, dict[str, Kind]]) -> Facts:
        """Inference, done again while what was seen late would have changed an answer."""
        for _ in range(_ROUNDS):
            self.program.late = False
            facts = infer(self.program, entries)
            more = self.unreached(facts)
            entries = {**entries, **more}
            if not more and not self.program.late:
                break
        return facts

    def unreached(self, facts: Facts) -> dict[Callee, dict[str, Kind]]:
        """The forwards that only torch's own containers call (nn.Sequential, say): batched in their arguments."""
        found: dict[Callee, dict[str, Kind]] = {}
        for seen in list(self.program.objects.values()):
            for module in list(seen.values()):
                for child in module.modules() if isinstance(module, torch.nn.Module) else ():
                    kind = self.program.observe(child)
                    for callee in self.program.methods(kind.key, "forward") if isinstance(kind, Instance) else ():
                        if callee not in facts.params:
                            specs = {p.name: "batched" for p in callee.positional[1:] if p.default is None}
                            found[callee] = entry_kinds(self.program, callee, specs)
                            found[callee][callee.params[0].name] = kind
        return found

    def names(self, callee: Callee) -> Names:
        """How the function reaches torch: by a global that is torch, else by a free variable of that name."""
        functions = self.program.functions[callee]
        scope = functions[0].__globals__
        taken = frozenset(scope) | {n for f in functions for n in f.__code__.co_freevars}
        named = [n for n in dict.fromkeys(["torch", *scope]) if all(value_of(n, f) is torch for f in functions)]
        used = {n.id for n in tree.walk(callee.node) if isinstance(n, tree.Name)}
        name = next((n for n in named if n in used), named[0] if named else _fresh("torch", taken | used))
        helper = _fresh("any_active", frozenset(used))
        return Names(name, helper, bool(named), True, taken)

    # --- putting it together ----------------------------------------------------------------

    def rebuild(self, entry: Callee, changed: list[Rewrite]) -> Any:
        by_callee = {r.callee: r for r in changed}

        def extra(callee: Callee) -> dict[str, Any]:
            names, rewrite = self.names(callee), by_callee[callee]
            at_hand = names.has_torch and rewrite.torch == names.torch
            found = {rewrite.torch: torch} if rewrite.torch is not None and not at_hand else {}
            return {**found, names.helper: any_active} if rewrite.uses_helper else found

        texts = {c: r.text for c, r in by_callee.items()}
        rebuilder = Rebuilder(self.program, texts, extra, {c: dict(r.twins) for c, r in by_callee.items() if r.twins})
        made = rebuilder.stand_in(self.fn)
        notes = tuple(diagnostic_of(f, r.callee.module.source.path) for r in changed for f in r.notes)
        order = sorted(changed, key=lambda r: r.callee is not entry)
        shown = [(r, *_texts(r)) for r in order]
        facts = {
            "source": shown[0][2],
            "diff": functools.partial(_diff, tuple((r.callee.module.source.path, a, b) for r, a, b in shown)),
            "refusals": (),
            "notes": notes,
            "original": self.fn,
        }
        holder = made.__func__ if isinstance(made, types.MethodType) else made
        for name, value in facts.items():
            if isinstance(holder, types.FunctionType | functools.partial):
                setattr(holder, name, value)
            elif not hasattr(type(self.fn), name):  # an object's class: its __dict__ is the original's own
                setattr(type(holder), name, value)
        return made


def _texts(rewrite: Rewrite) -> tuple[str, str]:
    module, span = rewrite.callee.module, rewrite.callee.span
    return shown_text(module, span, None)[0], shown_text(module, span, rewrite.text)[0]


def _diff(texts: tuple[tuple[str, str, str], ...]) -> str:
    """A unified diff of the converted functions, the one that was asked for first."""
    return "".join(
        "".join(difflib.unified_diff(a.splitlines(keepends=True), b.splitlines(keepends=True), path, path))
        for path, a, b in texts
    )


def _fresh(name: str, taken: frozenset[str] | set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _under(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _function_of(fn: Any) -> tuple[types.FunctionType, Any]:
    """The function under a callable object, and the object or class that is its first argument."""
    if isinstance(fn, types.FunctionType):
        return fn, None
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return fn.__func__, fn.__self__
    raise TypeError(f"cannot convert {fn!r}: not a function")
