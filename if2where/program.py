"""The program: the modules given together, and what a name in one of them stands for.

Functions are parsed into region trees only when somebody asks for them.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from if2where.kinds import calls
from if2where.kinds.lattice import (
    MISSING,
    STATIC,
    ClassObject,
    Function,
    Instance,
    Kind,
    Mapping,
    Sequence,
    Static,
    Tensor,
    Unknown,
    join,
)
from if2where.module import Function as FunctionSpan
from if2where.module import Module
from if2where.region import facts, tree
from if2where.region.build import FunctionUnit, build_function


@dataclass(frozen=True, eq=False)
class ClassInfo:
    """A class of the program; compared by identity."""

    node: ast.ClassDef
    module: Module

    def __repr__(self) -> str:
        return f"<class {self.node.name}>"


@dataclass(frozen=True, eq=False)
class Callee:
    """A function of the program with its region tree; ``unit`` is the outermost function rewritten with it."""

    node: tree.FunctionDef | tree.Lambda
    module: Module
    unit: FunctionUnit
    span: FunctionSpan | None
    parent: Callee | None
    owner: ClassInfo | None

    @property
    def params(self) -> tuple[tree.Parameter, ...]:
        return self.node.params

    @cached_property
    def positional(self) -> tuple[tree.Parameter, ...]:
        return tuple(p for p in self.params if p.kind in ("positional", "normal"))

    @cached_property
    def _bound(self) -> frozenset[str]:
        names = {p.name for p in self.params}
        if isinstance(self.node, tree.FunctionDef):
            names |= {n for n, _ in facts.writes(self.node.body)}
            for stmt in tree.walk(self.node.body):
                if isinstance(stmt, tree.Scope):
                    names -= set(stmt.names)
        return frozenset(names)

    def binds(self, name: str) -> bool:
        return name in self._bound

    @property
    def name(self) -> str:
        if self.span is not None:
            return self.span.qualname
        return self.node.name if isinstance(self.node, tree.FunctionDef) else "<lambda>"

    def _decorated(self, name: str) -> bool:
        if not isinstance(self.node, tree.FunctionDef):
            return False
        return any(isinstance(d, tree.Name) and d.id == name for d in self.node.decorators)

    @property
    def is_staticmethod(self) -> bool:
        return self.owner is not None and self._decorated("staticmethod")

    @property
    def is_classmethod(self) -> bool:
        return self.owner is not None and self._decorated("classmethod")

    @property
    def is_property(self) -> bool:
        return self.owner is not None and (self._decorated("property") or self._decorated("cached_property"))


@dataclass(frozen=True)
class _Names:
    """What the top level of a module binds."""

    functions: dict[str, list[ast.AST]] = field(default_factory=dict)
    classes: dict[str, ClassInfo] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)


class Program:
    """The modules converted together. Function trees are built on demand and kept."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules: list[Module] = []
        self._names: dict[int, _Names] = {}
        self._spans: dict[int, tuple[Module, FunctionSpan]] = {}
        self._callees: dict[int, Callee] = {}
        self._nested: dict[tree.Node, Callee] = {}
        self._evaluating: set[tuple[int, str]] = set()
        for m in modules:
            self.add(m)

    def add(self, module: Module) -> None:
        self.modules.append(module)
        self._names[id(module)] = _names(module)
        self._spans.update((id(f.node), (module, f)) for f in module.functions)

    # --- functions --------------------------------------------------------------------------

    def callee(self, node: ast.AST) -> Callee:
        """The function at an ast node, its tree built when first asked for."""
        if id(node) not in self._callees:
            module, span = self._spans[id(node)]
            unit = build_function(module.source.text, span)
            owner = self._owner(module, span)
            self._callees[id(node)] = Callee(unit.root, module, unit, span, None, owner)
        return self._callees[id(node)]

    def nested(self, node: tree.FunctionDef | tree.Lambda, parent: Callee) -> Callee:
        if node not in self._nested:
            self._nested[node] = Callee(node, parent.module, parent.unit, None, parent, None)
        return self._nested[node]

    def span_of(self, node: ast.AST) -> tuple[Module, FunctionSpan]:
        return self._spans[id(node)]

    def _owner(self, module: Module, span: FunctionSpan) -> ClassInfo | None:
        if span.owner is None:
            return None
        for info in self._names[id(module)].classes.values():
            if any(child is span.node for child in info.node.body):
                return info
        return None

    # --- names ------------------------------------------------------------------------------

    def lookup(self, name: str, callee: Callee) -> Kind:
        """What a name that the function does not bind stands for: enclosing functions, the module, builtins."""
        span = callee.span
        root = callee
        while span is None and root.parent is not None:
            root = root.parent
            span = root.span
        outer = span.parent if span is not None else None
        while outer is not None:
            siblings = [
                f.node
                for f in callee.module.functions
                if f.parent is not None
                and f.parent.node is outer.node
                and isinstance(f.node, ast.FunctionDef)
                and f.node.name == name
            ]
            if siblings:
                return Function(frozenset(self.callee(n) for n in siblings))
            found = _local_import(outer.node, name)
            if found is not None:
                return self.imported(found, callee.module)
            outer = outer.parent
        return self.global_name(name, callee.module)

    def global_name(self, name: str, module: Module) -> Kind:
        names = self._names[id(module)]
        if name in names.functions:
            return Function(frozenset(self.callee(n) for n in names.functions[name]))
        if name in names.classes:
            return ClassObject(names.classes[name])
        if name in names.values:
            if (id(module), name) in self._evaluating:
                return Unknown(False)
            self._evaluating.add((id(module), name))
            kinds = [self.value(v, module) for v in names.values[name]]
            self._evaluating.discard((id(module), name))
            result = kinds[0]
            for k in kinds[1:]:
                result = join(result, k)
            return result if len(kinds) == 1 else _forget(result)
        if name in names.imports:
            return self.imported(names.imports[name], module)
        if hasattr(builtins, name):
            return Static("builtin", name)
        return Unknown(False)

    def imported(self, dotted: str, module: Module) -> Kind:
        if dotted.split(".")[0] in ("torch", "functorch"):
            return Static("torch", dotted)
        if dotted.startswith("if2where."):
            return Static("if2where", dotted)
        if dotted.split(".")[0] == "math":
            return Static("math", dotted)
        if dotted.split(".")[0] in ("numpy", "np", "scipy"):
            return Static("numpy", dotted)
        parts = dotted.lstrip(".").split(".")
        for other in self.modules:
            if other is module or not parts:
                continue
            stem = other.source.path.replace("\\", "/").removesuffix(".py").rsplit("/", 1)[-1]
            if len(parts) >= 2 and parts[-2] == stem:
                return self.global_name(parts[-1], other)
            if parts[-1] == stem:
                return Static("program", other)
        return Static("module", dotted)

    def member(self, module: Any, name: str) -> Kind:
        return self.global_name(name, module)

    # --- classes ----------------------------------------------------------------------------

    def bases(self, info: ClassInfo) -> Iterator[ClassInfo]:
        """The class and its bases that are in the program, in order of lookup."""
        yield info
        for base in info.node.bases:
            if isinstance(base, ast.Name):
                kind = self.global_name(base.id, info.module)
                if isinstance(kind, ClassObject) and kind.key is not info:
                    yield from self.bases(kind.key)

    def methods(self, info: ClassInfo, name: str) -> frozenset[Callee]:
        for cls in self.bases(info):
            found = [
                n for n in cls.node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == name
            ]
            if found:
                return frozenset([self.callee(found[-1])])
        return frozenset()

    def inherited(self, receiver: ClassInfo, owner: ClassInfo, name: str) -> frozenset[Callee]:
        """The method that ``super()`` finds in a method of the owner, for an object of the receiver's class."""
        lineage = list(self.bases(receiver))
        for cls in lineage[lineage.index(owner) + 1 :] if owner in lineage else ():
            found = [n for n in cls.node.body if isinstance(n, ast.FunctionDef) and n.name == name]
            if found:
                return frozenset([self.callee(found[-1])])
        return frozenset()

    def class_attribute(self, info: ClassInfo, name: str) -> Kind | None:
        for cls in self.bases(info):
            for stmt in cls.node.body:
                targets = (
                    stmt.targets
                    if isinstance(stmt, ast.Assign)
                    else [stmt.target]
                    if isinstance(stmt, ast.AnnAssign)
                    else []
                )
                value = getattr(stmt, "value", None)
                if value is not None and any(isinstance(t, ast.Name) and t.id == name for t in targets):
                    return self.value(value, cls.module)
        return None

    def fields(self, info: ClassInfo) -> tuple[str, ...] | None:
        """The fields of a NamedTuple or dataclass, in order; None for other classes."""
        tuple_like = any(_last(b) == "NamedTuple" for b in info.node.bases)
        data = any(_last(d.func if isinstance(d, ast.Call) else d) == "dataclass" for d in info.node.decorator_list)
        if not (tuple_like or data):
            return None
        own = [s.target.id for s in info.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        inherited: list[str] = []
        for base in info.node.bases:
            if isinstance(base, ast.Name):
                kind = self.global_name(base.id, info.module)
                if isinstance(kind, ClassObject):
                    inherited += self.fields(kind.key) or ()
        return tuple(dict.fromkeys([*inherited, *own]))

    # --- values -----------------------------------------------------------------------------

    def default(self, param: tree.Parameter, callee: Callee) -> Kind:
        assert param.default is not None
        return _tree_value(param.default)

    def value(self, node: ast.expr, module: Module) -> Kind:
        """The kind of a module-level expression: all of it is the same for every sample."""
        if isinstance(node, ast.Constant):
            return calls.constant(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, module)
            return (
                calls.constant(-inner.value)
                if isinstance(inner, Static) and isinstance(inner.value, int | float)
                else inner
            )
        if isinstance(node, ast.Lambda):
            return Function(frozenset([self.callee(node)]))
        if isinstance(node, ast.Name):
            return self.global_name(node.id, module)
        if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in node.elts):
            form = "tuple" if isinstance(node, ast.Tuple) else "list"
            return Sequence(form, tuple(self.value(e, module) for e in node.elts))
        if isinstance(node, ast.Dict) and all(isinstance(k, ast.Constant) for k in node.keys):
            keys = tuple(k.value for k in node.keys if isinstance(k, ast.Constant))
            return Mapping(keys, tuple(self.value(v, module) for v in node.values))
        if isinstance(node, ast.BinOp):
            op = _OPERATORS.get(type(node.op))
            if op is not None:
                return calls.binary(op, self.value(node.left, module), self.value(node.right, module))
        if isinstance(node, ast.Attribute):
            base = self.value(node.value, module)
            return (
                calls.attribute(base, node.attr, self, module) if isinstance(base, Static | Tensor) else Unknown(False)
            )
        if isinstance(node, ast.Call):
            return self._call_value(node, module)
        return Unknown(False)

    def _call_value(self, node: ast.Call, module: Module) -> Kind:
        func = self.value(node.func, module)
        if isinstance(func, ClassObject):
            return Instance(func.key, False)
        if isinstance(func, Static) and func.what in ("torch", "math", "builtin"):
            positional = [self.value(a, module) for a in node.args if not isinstance(a, ast.Starred)]
            keywords = {k.arg: self.value(k.value, module) for k in node.keywords if k.arg is not None}
            return calls.library_call(func, positional, keywords, lambda *_: Unknown(False))
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, module)
            if isinstance(base, Instance) and node.func.attr in (
                "eval",
                "train",
                "to",
                "double",
                "float",
                "half",
                "cuda",
                "cpu",
                "requires_grad_",
            ):
                return base
            if isinstance(base, Tensor):
                method = calls.attribute(base, node.func.attr, self, module)
                args = [self.value(a, module) for a in node.args if not isinstance(a, ast.Starred)]
                return calls.library_call(method, args, {}, lambda *_: Unknown(False))
        return Unknown(False)


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
}


def _forget(kind: Kind) -> Kind:
    return Static(kind.what) if isinstance(kind, Static) and kind.what in ("bool", "int", "float", "str") else kind


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _tree_value(node: tree.Expr) -> Kind:
    if isinstance(node, tree.Constant):
        return calls.constant(node.value)
    if isinstance(node, tree.Unary) and node.op == "-" and isinstance(node.operand, tree.Constant):
        value = node.operand.value
        return calls.constant(-value) if isinstance(value, int | float) else STATIC
    if isinstance(node, tree.Tuple | tree.List):
        return Sequence("tuple" if isinstance(node, tree.Tuple) else "list", tuple(map(_tree_value, node.items)))
    return Unknown(False)


def _local_import(node: ast.AST, name: str) -> str | None:
    if isinstance(node, ast.Lambda):
        return None
    for stmt in ast.walk(node):
        if isinstance(stmt, ast.Import | ast.ImportFrom):
            for bound, dotted in import_names(stmt):
                if bound == name:
                    return dotted
    return None


def import_names(stmt: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with the dotted name of what it stands for."""
    if isinstance(stmt, ast.Import):
        for alias in stmt.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0], alias.name.split(".")[0])
    else:
        base = "." * stmt.level + (stmt.module or "")
        for alias in stmt.names:
            yield alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name


def _names(module: Module) -> _Names:
    names = _Names()
    lambdas = {id(f.node) for f in module.functions if isinstance(f.node, ast.Lambda)}
    for stmt in _top_level(module.tree.body):
        if isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef):
            names.functions.setdefault(stmt.name, []).append(stmt)
        elif isinstance(stmt, ast.ClassDef):
            names.classes[stmt.name] = ClassInfo(stmt, module)
        elif isinstance(stmt, ast.Import | ast.ImportFrom):
            names.imports.update(import_names(stmt))
        elif isinstance(stmt, ast.Assign | ast.AnnAssign) and stmt.value is not None:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            for t in targets:
                if isinstance(t, ast.Name):
                    if id(stmt.value) in lambdas:
                        names.functions.setdefault(t.id, []).append(stmt.value)
                    else:
                        names.values.setdefault(t.id, []).append(stmt.value)
    return names


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for stmt in body:
        yield stmt
        if isinstance(stmt, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(stmt, part, []))
            for handler in getattr(stmt, "handlers", []):
                yield from _top_level(handler.body)


__all__ = ["MISSING", "Callee", "ClassInfo", "Program", "import_names"]
