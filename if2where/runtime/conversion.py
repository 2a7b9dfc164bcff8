"""One conversion of one object: entry, inference, rewriting, and the object built anew."""

from __future__ import annotations

import difflib
import functools
import types
from dataclasses import dataclass
from typing import Any

import torch

from if2where.diagnostics.diagnostic import Diagnostic, render_text
from if2where.kinds.infer import Facts, infer
from if2where.kinds.lattice import Function, Instance, Kind, Mapping, Sequence, Static, Tensor, Unknown, depends
from if2where.pipeline import (
    Names,
    Options,
    Rewrite,
    bound_otherwise,
    diagnostic_of,
    entry_kinds,
    rewrite_all,
    with_callers_of_refused,
)
from if2where.program import Callee
from if2where.region import tree
from if2where.runtime.live import (
    LiveClass,
    LiveProgram,
    Trace,
    is_batched,
    is_converted,
    is_mapped,
    library,
    library_code,
    plain,
    unwrapped,
    value_of,
)
from if2where.runtime.loops import any_active
from if2where.runtime.rebuild import Rebuilder, shown_text
from if2where.runtime.targets import Target, in_class, target_of

#: How often inference is done again because something was seen late.
_ROUNDS = 20


class ConversionRefused(Exception):
    """A function that cannot be converted exactly. ``diagnostics`` says where and why."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__("\n".join(map(render_text, diagnostics)))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[type[ConversionRefused], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)


@dataclass(frozen=True)
class Call:
    """How a function is going to be called: by ``in_dims``, and by the arguments where they are known."""

    in_dims: Any = 0
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True)
class Converted:
    """A conversion that was made: of what, into what, and what the names in it stood for."""

    fn: Any
    result: Any
    traces: tuple[Trace, ...]


def convert_object(fn: Any, options: Options, call: Call) -> Converted:
    """With the helpers of installed packages; where that is refused, with those called as they are.

    A package keeps caches and prints warnings, which a conversion has to refuse, in functions that are
    harmless under vmap. Not so where random numbers are drawn: that must not be hidden.
    """
    conversion = Conversion(fn, options, call, LiveProgram())
    try:
        return conversion.run()
    except ConversionRefused as refused:
        if not conversion.program.met_installed or any(d.code.name == "random-in-branch" for d in refused.diagnostics):
            raise
    return Conversion(fn, options, call, LiveProgram(follow_installed=False)).run()


class Conversion:
    """One conversion of one object."""

    def __init__(self, fn: Any, options: Options, call: Call, program: LiveProgram) -> None:
        self.fn = fn
        self.options = options
        self.call = call
        self.program = program
        self.first: Callee | None = None

    def run(self) -> Converted:
        if isinstance(self.fn, type):
            raise TypeError(f"cannot convert {self.fn!r}: it is a class; convert its instance, or a method")
        if is_mapped(self.fn) or is_converted(self.fn):
            return Converted(self.fn, self.fn, ())
        if library(self.fn) is not None and not hasattr(self.fn, "__wrapped__"):
            return Converted(self.fn, self.fn, ())  # torch's own functions need nothing
        facts = self.infer(self.entry())
        reached = [c.span.node for c in facts.params if c.span is not None]
        rewrites = rewrite_all(self.program, facts, self.options, self.names, reached)
        rewrites = with_callers_of_refused(rewrites, facts)
        refusals = sorted(
            {diagnostic_of(f, r.callee.module.source.path) for r in rewrites for f in r.refusals},
            key=lambda d: (d.path, d.line, d.col, d.code.code),
        )
        if refusals:
            raise ConversionRefused(tuple(refusals))
        changed = {r.callee: r for r in rewrites if r.changed}

        def extra(callee: Callee) -> dict[str, Any]:
            """What the new text needs and the function's own scope lacks."""
            names, rewrite = self.names(callee), changed[callee]
            at_hand = names.has_torch and rewrite.torch == names.torch
            found = {rewrite.torch: torch} if rewrite.torch is not None and not at_hand else {}
            return {**found, names.helper: any_active} if rewrite.uses_helper else found

        twins = {c: dict(r.twins) for c, r in changed.items() if r.twins}
        rebuilder = Rebuilder(self.program, {c: r.text for c, r in changed.items()}, extra, twins)
        result = rebuilder.stand_in(self.fn)
        if changed and result is self.fn:
            raise TypeError(f"{self.fn!r}: {', '.join(c.name for c in changed)} is called where it cannot be replaced")
        if changed:
            self.label(result, list(changed.values()))
        return Converted(self.fn, result, self.program.trace(rebuilder.leads))

    # --- what is converted ------------------------------------------------------------------

    def entry(self) -> dict[Callee, dict[str, Kind]]:
        """The function to start from, and the kinds of its parameters."""
        target = target_of(self.fn)
        if target.receiver is not None and not isinstance(target.receiver, type):
            self.program.observe(target.receiver)
        if library_code(target.function):
            for value in (*target.args, *target.keywords.values()):
                self.program.observe(value)  # partial(functional_call, model)
            dims = self.call.in_dims
            first = dims[0] if isinstance(dims, tuple | list) and dims else dims
            if target.function.__name__ == "functional_call":
                self.program.batched_state = first is not None
            return {}  # nn.Sequential and its like: only what is in it can need converting
        entries = self.applied(target, self.call.in_dims)
        ((self.first, kinds),) = entries.items()
        self.observe_arguments(self.first, kinds, (target.receiver is not None) + len(target.args))
        return entries

    def applied(self, target: Target, in_dims: Any) -> dict[Callee, dict[str, Kind]]:
        """The function with what it is bound to, its other parameters batched by in_dims."""
        callee = self.program.callee_of(target.function, self.owner(target))
        method = target.receiver is None and in_class(callee)
        kinds = entry_kinds(self.program, callee, self.batched(callee, target, method, in_dims))
        bound = ([] if target.receiver is None else [target.receiver]) + list(target.args)
        for p, value in zip(callee.positional, bound, strict=False):
            kinds[p.name] = self.program.observe(value)
        for name, value in target.keywords.items():
            if name in kinds:
                kinds[name] = self.program.observe(value)
        return {callee: kinds}

    def owner(self, target: Target) -> LiveClass | None:
        """The class of a method's object that defines it; the method is noted as one that the class converts."""
        if target.receiver is None:
            return None
        cls = target.receiver if isinstance(target.receiver, type) else type(target.receiver)
        for base in cls.__mro__:
            for name, value in vars(base).items():
                raw = plain(value)
                if raw is not None and unwrapped(raw) is target.function:
                    info = self.program.class_info(cls)
                    if info is not None and target.through_class:
                        self.program.methods(info, name)
                    return self.program.class_info(base)
        return None

    def batched(self, callee: Callee, target: Target, method: bool, dims: Any) -> dict[str, Any]:
        """The in_dims of each parameter that vmap's arguments can reach."""
        given = None if self.call.args is None else len(self.call.args)
        specs: dict[str, Any] = {}
        filled = (target.receiver is not None) + len(target.args)
        positional = list(callee.positional)[filled:]
        for k, p in enumerate(positional):
            if isinstance(dims, tuple | list):
                spec = dims[k] if k < len(dims) else None
            elif given is not None:
                spec = dims if k < given else None
            else:
                spec = dims if p.default is None else None
            if p.name in target.keywords or (method and k == 0 and not isinstance(dims, tuple | list)):
                spec = None  # the object, of a method that is decorated in its class
            specs[p.name] = "unbatched" if spec is None else "batched" if isinstance(spec, int) else spec
        for p in callee.params:
            if p.kind == "star":
                rest = dims[len(positional) :] if isinstance(dims, tuple | list) else [dims]
                specs[p.name] = "unbatched" if all(d is None for d in rest) else "batched"
        return specs

    def observe_arguments(self, callee: Callee, kinds: dict[str, Kind], filled: int) -> None:
        if self.call.args is None:
            return
        dims = self.call.in_dims
        for k, (p, value) in enumerate(zip(callee.positional[filled:], self.call.args, strict=False)):
            spec = (dims[k] if k < len(dims) else None) if isinstance(dims, tuple | list) else dims
            kinds[p.name] = self.argument(value, spec, p.name)
        for name, value in (self.call.kwargs or {}).items():
            if name in kinds and any(p.name == name and p.kind != "double star" for p in callee.params):
                kinds[name] = self.argument(value, None, name)

    def argument(self, value: Any, spec: Any, name: str | None) -> Kind:
        """The kind of an argument as vmap is given it; ``name`` where its dtype can be written as the parameter's."""
        if isinstance(value, torch.Tensor):
            batched = spec is not None or is_batched(value)
            shape = (None,) * max(value.dim() - (spec is not None), 0)
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
        """What only torch calls, batched in its arguments: children of nn.Sequential, functions given to grad."""
        found: dict[Callee, dict[str, Kind]] = {}
        for callee in list(facts.params):
            for node in tree.walk(callee.node):
                func = facts.kind(node.func) if isinstance(node, tree.Call) else None
                if not isinstance(func, Static) or func.what not in ("torch", "if2where", "module"):
                    continue
                assert isinstance(node, tree.Call)
                state = node.args[1].value if len(node.args) > 1 else None
                if str(func.value).endswith(".functional_call") and state and depends(facts.kind(state)):
                    self.program.late = self.program.late or not self.program.batched_state
                    self.program.batched_state = True
                for kind in (facts.kind(a.value) for a in node.args):
                    for given in kind.keys if isinstance(kind, Function) else ():
                        if given not in facts.params:
                            found[given] = entry_kinds(self.program, given, _all_batched(given))
        for partial in list(self.program.partials.values()):
            found.update((c, k) for c, k in self.applied(target_of(partial), 0).items() if c not in facts.params)
        for seen in list(self.program.objects.values()):
            for module in list(seen.values()):
                for child in module.modules() if isinstance(module, torch.nn.Module) else ():
                    kind = self.program.observe(child)
                    for callee in self.program.methods(kind.key, "forward") if isinstance(kind, Instance) else ():
                        if callee not in facts.params:
                            found[callee] = entry_kinds(self.program, callee, _all_batched(callee))
                            found[callee][callee.params[0].name] = kind
        return found

    def names(self, callee: Callee) -> Names:
        """How the function reaches torch: by a global that is torch, else by a free variable of that name."""
        functions = self.program.functions[callee]
        scope = functions[0].__globals__
        taken = frozenset(scope) | {n for f in functions for n in f.__code__.co_freevars}
        used = {n.id for n in tree.walk(callee.node) if isinstance(n, tree.Name)}
        bound = bound_otherwise(callee.node)
        candidates = [n for n in dict.fromkeys(["torch", *scope]) if n not in bound]
        named = [n for n in candidates if all(value_of(n, f) is torch for f in functions)]
        name = next((n for n in named if n in used), named[0] if named else _fresh("torch", taken | used | bound))
        helper = _fresh("any_active", used | bound)
        return Names(name, helper, bool(named), True, taken)

    # --- putting it together ----------------------------------------------------------------

    def label(self, made: Any, changed: list[Rewrite]) -> None:
        """What the result tells of itself."""
        order = sorted(changed, key=lambda r: r.callee is not self.first)
        shown = [(r.callee.module.source.path, *_texts(r)) for r in order]
        facts = {
            "source": _source(made) or "\n".join(b for _, _, b in shown),
            "diff": functools.partial(_diff, tuple(shown)),
            "refusals": (),
            "notes": tuple(diagnostic_of(f, r.callee.module.source.path) for r in changed for f in r.notes),
            "original": self.fn,
        }
        holder = made.__func__ if isinstance(made, types.MethodType) else made
        for name, value in facts.items():
            if isinstance(holder, types.FunctionType | functools.partial):
                setattr(holder, name, value)
            elif not hasattr(type(self.fn), name):  # an object's class: its __dict__ is the original's own
                setattr(type(holder), name, staticmethod(value) if callable(value) else value)


def _source(made: Any) -> str:
    """The text of the function under a callable."""
    if isinstance(made, types.MethodType | functools.partial):
        return _source(made.__func__ if isinstance(made, types.MethodType) else made.func)
    return vars(made).get("source", "") if isinstance(made, types.FunctionType) else ""


def _all_batched(callee: Callee) -> dict[str, Any]:
    return {p.name: "batched" for p in callee.params if p.default is None and p.kind != "double star"}


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
