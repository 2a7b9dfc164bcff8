"""The pipeline: text -> modules -> targets -> kinds -> regions -> converted regions -> text."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Set
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from if2where.diagnostics.codes import BY_NAME
from if2where.diagnostics.diagnostic import Diagnostic
from if2where.emit import add_import, emit_function
from if2where.kinds.infer import Facts, infer
from if2where.kinds.lattice import Instance, Kind, Mapping, Sequence, Static, Tensor, Unknown
from if2where.module import Module, Source, SourceError, parse_module, splice
from if2where.passes.context import Context, Finding, GuardLog, PassOptions
from if2where.passes.control import ControlPass
from if2where.passes.effects import Effects
from if2where.passes.guards import guard
from if2where.passes.naming import name_versions
from if2where.passes.tidy import tidy
from if2where.passes.twins import Twin, Twins, beside, copyable
from if2where.program import Callee, Program, import_names
from if2where.region import facts as region_facts
from if2where.region import tree
from if2where.select import Selection, Spec, Target, might_matter, select


@dataclass(frozen=True)
class Options:
    """What the command line and the settings decide."""

    scope: str = "auto"
    functions: tuple[str, ...] = ()
    guards: str = "auto"
    checks: str = "keep"
    max_iterations: int | None = None
    allow_random: bool = False
    #: Functions that stay as they are, by the file's path and their name.
    left_out: frozenset[tuple[str, str]] = frozenset()
    guard_log: GuardLog | None = None


@dataclass(frozen=True)
class Conversion:
    """What became of one file. ``text`` is the source's own where nothing was converted."""

    path: str
    text: str
    converted: tuple[str, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()
    notes: tuple[Diagnostic, ...] = ()
    scope: str = "vmapped"
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """One function's conversion, before it is known whether those that it calls converted too."""

    callee: Callee
    text: str
    refusals: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    #: The name under which it reaches torch, where it does.
    torch: str | None = None
    uses_helper: bool = False
    #: Second versions of the function, by name, which go behind it.
    twins: tuple[tuple[str, str], ...] = ()

    @property
    def changed(self) -> bool:
        return self.text != self.callee.unit.text or bool(self.twins)


@dataclass
class Names:
    """Under what a function reaches torch and the package's helper; ``taken`` are names that mean something else."""

    torch: str = "torch"
    helper: str = "any_active"
    has_torch: bool = False
    has_helper: bool = False
    taken: frozenset[str] = field(default_factory=frozenset)


def convert_source(text: str, path: str = "<string>", options: Options | None = None) -> Conversion:
    """Converts one module's text; raises SourceError where it cannot be parsed."""
    result = convert_files([Source(path, text)], options or Options())[0]
    if isinstance(result, SourceError):
        raise result
    return result


def convert_files(sources: Seq[Source], options: Options) -> list[Conversion | SourceError]:
    """Converts modules that may call each other; one result for each, in order."""
    with deep_recursion():
        return _convert_files(sources, options)


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Room for code that is nested, or chained, a few hundred deep."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 7_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def needs_nothing(source: Source, options: Options) -> bool:
    """Whether a look at the text tells that nothing in the file is to be converted."""
    return not options.functions and not might_matter(source.text, options.scope)


def _convert_files(sources: Seq[Source], options: Options) -> list[Conversion | SourceError]:
    results: dict[int, Conversion | SourceError] = {}
    modules: list[tuple[int, Module]] = []
    for k, source in enumerate(sources):
        if needs_nothing(source, options):
            results[k] = Conversion(source.path, source.text, scope=options.scope)
            continue
        try:
            modules.append((k, parse_module(source)))
        except SourceError as error:
            results[k] = error
    selections = {k: select(module, options.scope, options.functions) for k, module in modules}
    program = Program([m for _, m in modules])
    entries: dict[Callee, dict[str, Kind]] = {}
    for k, module in modules:
        for target in selections[k].targets:
            if (module.source.path, target.function.qualname) in options.left_out:
                continue
            callee = _entry(program, target)
            entries[callee] = entry_kinds(program, callee, target.batched)
    facts = infer(program, entries)
    out = {
        c for k, module in modules for c in facts.params if c.module is module and _kept_out(c, selections[k], options)
    }
    trees = [m.tree for m in program.modules]
    rewrites = with_callers_of_refused(rewrite_all(program, facts, options, _names_of, trees, out), facts)
    for k, module in modules:
        results[k] = _assemble(module, selections[k], [r for r in rewrites if r.callee.module is module])
    return [results[k] for k in range(len(sources))]


def _kept_out(callee: Callee, selection: Selection, options: Options) -> bool:
    """Whether the options or a mark keep the function as it is: one of its own, or one on a branch of it."""
    if (callee.module.source.path, callee.name) in options.left_out:
        return True
    if callee.span is not None and id(callee.span.node) in selection.skipped:
        return True
    branches = (n for n in tree.walk(callee.node) if isinstance(n, tree.If | tree.For | tree.While | tree.Conditional))
    return any(n.at is not None and n.at[0] in selection.skipped_lines for n in branches)


# --- entries --------------------------------------------------------------------------------


def _entry(program: Program, target: Target) -> Callee:
    return program.callee(target.function.node)


def entry_kinds(program: Program, callee: Callee, batched: dict[str, Spec]) -> dict[str, Kind]:
    """The kinds of an entry's parameters, as their annotations, defaults and places in the batch tell them."""
    kinds: dict[str, Kind] = {}
    for k, p in enumerate(callee.params):
        spec = batched.get(p.name, "unbatched")
        if k == 0 and callee.owner is not None and not callee.is_staticmethod and spec == "unbatched":
            kinds[p.name] = Instance(callee.owner, False)
        elif p.kind == "star":
            kinds[p.name] = Sequence("tuple", None, _kind_of(p, spec, p.name))
        elif p.kind == "double star":
            kinds[p.name] = Unknown(spec == "batched")
        elif spec == "unbatched" and p.default is not None:
            kinds[p.name] = program.default(p, callee)
        else:
            kinds[p.name] = _kind_of(p, spec, p.name)
    return kinds


def _kind_of(p: tree.Parameter, spec: Any, name: str) -> Kind:
    if isinstance(spec, tuple | list):
        return Sequence("tuple", tuple(_kind_of(p, s, name) for s in spec))
    if isinstance(spec, dict):
        return Mapping(tuple(spec), tuple(_kind_of(p, s, name) for s in spec.values()))
    if spec is None:
        spec = "unbatched"
    elif isinstance(spec, int):
        spec = "batched"
    annotation = _annotation(p)
    if spec == "batched":
        floating = annotation == "float" or re.search(r"\bFloat\d*\[", annotation)
        if annotation == "bool":
            return Tensor(True, "bool", ())
        shape = () if annotation in ("float", "int", "bool") else _annotated_shape(annotation)
        return Tensor(True, f"@{name}+f" if floating else f"@{name}", shape)
    if "Tensor" in annotation and "|" not in annotation and "Optional" not in annotation:
        return Tensor(False, f"@{name}", _annotated_shape(annotation))
    if annotation in ("int", "float", "bool", "str"):
        return Static(annotation)
    return Unknown(False)


def _annotation(p: tree.Parameter) -> str:
    if p.annotation is None or p.annotation.origin is None:
        return ""
    import libcst as cst

    return cst.Module([]).code_for_node(p.annotation.origin)


def _annotated_shape(annotation: str) -> tuple[Any, ...] | None:
    """The shape in a jaxtyping annotation: ``Float[Tensor, "3 n"]`` is (3, None)."""
    found = re.search(r"\[\s*(?:torch\.)?Tensor\s*,\s*[\"']([^\"']*)[\"']", annotation)
    if found is None or "..." in found.group(1) or "*" in found.group(1):
        return None
    return tuple(int(d) if d.isdigit() else None for d in found.group(1).split())


# --- conversion -----------------------------------------------------------------------------


def rewrite_all(
    program: Program,
    facts: Facts,
    options: Options,
    names_of: Callable[[Callee], Names],
    trees: Seq[ast.AST],
    kept_out: Set[Callee] = frozenset(),
) -> list[Rewrite]:
    """The conversion of every function that inference reached.

    ``names_of`` tells how each reaches torch, ``trees`` are where it may be called with plain numbers.
    """
    conversion = _Functions(program, facts, options, names_of)
    callees = [c for c in facts.params if c.parent is None and c not in kept_out]
    numbered = {c: at for c in callees if (at := _called_with_numbers(c, trees)) is not None}
    while True:
        rewrites = [conversion.rewritten(c) for c in callees]
        # A helper that others call with plain numbers stays as it is; the converted one stands beside it.
        more = [r.callee for r in rewrites if r.changed and r.callee in numbered and conversion.may_have_twin(r.callee)]
        if not more:
            break
        names = {c: conversion.twins.named(c) for c in (*conversion.twins.plain, *more)}
        conversion = _Functions(program, facts, options, names_of)
        conversion.twins.plain.update(names)
    rewrites = [
        _refused_for_numbers(r, numbered[r.callee]) if r.changed and r.callee in numbered else r for r in rewrites
    ]
    return [conversion.with_twins(r) for r in rewrites]


def _names_of(callee: Callee) -> Names:
    return module_names(callee.module)


def _refused_for_numbers(rewrite: Rewrite, line: int) -> Rewrite:
    callee = rewrite.callee
    finding = Finding("shared-helper", callee.node.at, f"line {line} calls it with numbers", callee)
    return Rewrite(callee, callee.unit.text, (finding,), ())


def _called_with_numbers(callee: Callee, trees: Seq[ast.AST]) -> int | None:
    """The line of a call with plain numbers only: torch.where takes no Python bool."""
    if callee.span is None or callee.span.parent is not None or callee.owner is not None:
        return None
    name = callee.span.qualname
    for root in trees:
        for node in ast.walk(root):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                if node.args and all(map(_is_number, node.args)):
                    return node.lineno
    return None


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int | float)


class _Functions:
    """Converts the functions of a program, and the second versions of them that this asks for."""

    def __init__(self, program: Program, facts: Facts, options: Options, names_of: Callable[[Callee], Names]) -> None:
        self.program = program
        self.facts = facts
        self.names_of = names_of
        self.options = options
        log = options.guard_log or GuardLog()
        log.made.clear()
        self.pass_options = PassOptions(
            options.guards, options.checks, options.max_iterations, options.allow_random, log
        )
        self.effects = Effects(facts)
        self.twins = Twins(self.twin_text)
        #: The second versions as they were made, by function.
        self.made: dict[Callee, list[Rewrite]] = {}

    def may_have_twin(self, callee: Callee) -> bool:
        """Whether a converted version may stand beside the function: its callers in scope then call that one."""
        callers = self.facts.callers.get(callee, frozenset())
        return copyable(callee) and bool(callers) and all(c.module is callee.module for c in callers)

    def rewritten(self, callee: Callee) -> Rewrite:
        twin = self.twins.plain.get(callee)
        if twin is None:
            return self.rewrite(callee)
        made = self.rewrite(callee, twin)
        if made.refusals:
            return made
        self.twins.texts.setdefault(callee, []).append((twin.name, made.text))
        return replace(made, text=callee.unit.text)

    def twin_text(self, callee: Callee, twin: Twin) -> str | None:
        made = self.rewrite(callee, twin)
        if made.refusals:
            return None
        self.made.setdefault(callee, []).append(made)
        return made.text

    def with_twins(self, rewrite: Rewrite) -> Rewrite:
        """The function with its second versions behind it, and what they need to be imported."""
        made = self.made.get(rewrite.callee, [])
        return replace(
            rewrite,
            twins=tuple(self.twins.texts.get(rewrite.callee, [])),
            torch=next((m.torch for m in (rewrite, *made) if m.torch is not None), None),
            uses_helper=rewrite.uses_helper or any(m.uses_helper for m in made),
        )

    def rewrite(self, callee: Callee, twin: Twin | None = None) -> Rewrite:
        """The function converted; as its ``twin`` where one is given: under another name, with a mask."""
        ctx = Context(self.program, self.facts, callee, self.pass_options, self.twins)
        mask = tree.Name(twin.mask) if twin is not None and twin.mask is not None else None
        if mask is not None:
            ctx.version_kinds[region_facts.key(mask)] = Tensor(True, "bool", ())
        new = ControlPass(ctx, self.effects, mask).run()
        if ctx.refusals:
            return Rewrite(callee, callee.unit.text, tuple(ctx.refusals), tuple(ctx.notes))
        if self.options.guards != "none":
            new = guard(ctx, new, mask)
        new = tidy(ctx, new)
        names = self.names_of(callee)
        taken = names.taken | _identifiers(callee.node) | {names.torch, names.helper}
        if mask is not None:
            taken |= {mask.id}
        torch = names.torch if names.torch not in bound_otherwise(callee.node) else _another_name(taken)
        new = name_versions(ctx, new, taken | {torch})
        if twin is not None and isinstance(new, tree.FunctionDef):
            extra = (tree.Parameter(mask.id, "keyword"),) if mask is not None else ()
            new = replace(new, name=twin.name, params=(*new.params, *extra))
        made_torch = any(isinstance(n, tree.Select | tree.TorchName) for n in tree.walk(new))
        text = emit_function(callee.unit, new, torch, names.helper)
        return Rewrite(callee, text, (), tuple(ctx.notes), torch if made_torch else None, ctx.uses_helper)


def _another_name(taken: frozenset[str]) -> str:
    """A name for torch in a function that means something else by the module's own."""
    return next(n for k in range(len(taken) + 1) if (n := f"_torch{k or ''}") not in taken)


def bound_otherwise(root: tree.Node) -> frozenset[str]:
    """The names that the function, or one inside it, binds to something else than the module does."""
    imported = {n for s in tree.walk(root) if isinstance(s, tree.Import) for n, dotted in s.names if dotted == n}
    found = {p.name for p in tree.walk(root) if isinstance(p, tree.Parameter)}
    found |= {n for s in tree.walk(root) if isinstance(s, tree.Stmt) for n, _ in region_facts.writes(s)}
    return frozenset(found - imported)


def _identifiers(root: tree.Node) -> frozenset[str]:
    found = {n.id for n in tree.walk(root) if isinstance(n, tree.Name)}
    found |= {p.name for p in tree.walk(root) if isinstance(p, tree.Parameter)}
    return frozenset(found)


def with_callers_of_refused(rewrites: list[Rewrite], facts: Facts) -> list[Rewrite]:
    """A function that calls a refused one is refused with it, where it would have been changed."""
    by_callee = {r.callee: r for r in rewrites}
    refused = {r.callee for r in rewrites if r.refusals}
    while True:
        more = [
            r
            for r in by_callee.values()
            if r.changed
            and r.callee not in refused
            and any(r.callee in _roots(facts.callers.get(c, frozenset())) for c in refused)
        ]
        if not more:
            break
        for r in more:
            refused.add(r.callee)
            at = r.callee.node.at
            finding = Finding("caller-of-refused", at, "", r.callee)
            by_callee[r.callee] = Rewrite(r.callee, r.callee.unit.text, (finding,), ())
    return list(by_callee.values())


def _roots(callees: frozenset[Callee]) -> set[Callee]:
    found = set()
    for c in callees:
        while c.parent is not None:
            c = c.parent
        found.add(c)
    return found


# --- putting it together --------------------------------------------------------------------


def module_names(module: Module) -> Names:
    names = Names()
    taken: set[str] = set()
    for stmt in ast.walk(module.tree):
        if isinstance(stmt, ast.Name):
            taken.add(stmt.id)
        elif isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            taken.add(stmt.name)
    for stmt in module.tree.body:
        if isinstance(stmt, ast.Import | ast.ImportFrom):
            for bound, dotted in import_names(stmt):
                taken.add(bound)
                if dotted == "torch" and not names.has_torch:
                    names.torch, names.has_torch = bound, True
                if dotted in ("if2where.any_active", "if2where.runtime.any_active"):
                    names.helper, names.has_helper = bound, True
    names.taken = frozenset(taken)
    return names


def diagnostic_of(finding: Finding, path: str) -> Diagnostic:
    line, col = finding.at or (finding.callee.node.at or (1, 1))
    return Diagnostic(BY_NAME[finding.name], path, line, col, finding.detail, finding.callee.name)


def _assemble(module: Module, selection: Selection, rewrites: list[Rewrite]) -> Conversion:
    path, text = module.source.path, module.source.text
    refusals = sorted(
        {diagnostic_of(f, path) for r in rewrites for f in r.refusals}, key=lambda d: (d.line, d.col, d.code.code)
    )
    changed = [r for r in rewrites if r.changed and not r.refusals]
    notes = [diagnostic_of(f, path) for r in changed for f in r.notes]
    new = splice(text, [(*_span(r), r.text + "".join(beside(r.callee, r.twins))) for r in _outermost(changed)])
    names = module_names(module)
    missing = {r.torch for r in changed if r.torch is not None} - ({names.torch} if names.has_torch else set())
    for torch in sorted(missing):
        new = add_import(new, ast.parse(new), "import torch" if torch == "torch" else f"import torch as {torch}")
    if any(r.uses_helper for r in changed) and not names.has_helper:
        new = add_import(new, ast.parse(new), "from if2where import any_active")
    if changed:
        ast.parse(new)
    converted = tuple(r.callee.name for r in changed)
    return Conversion(path, new, converted, tuple(refusals), tuple(notes), selection.scope, selection.unmatched)


def _span(r: Rewrite) -> tuple[int, int]:
    assert r.callee.span is not None
    return r.callee.span.span


def _outermost(rewrites: list[Rewrite]) -> list[Rewrite]:
    kept = []
    for r in rewrites:
        start, end = _span(r)
        if not any(_span(o)[0] <= start and end <= _span(o)[1] and o is not r for o in rewrites):
            kept.append(r)
    return kept
