"""In which dtype a Python float that became a tensor is held: that of the floating tensors it meets.

A Python float has no dtype of its own. What it meets is found by following it through the
function's assignments and arithmetic to the tensors it is combined with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from if2where.kinds.infer import Facts
from if2where.kinds.lattice import (
    DEFAULT_FLOAT,
    Kind,
    Number,
    Static,
    Tensor,
    depends,
    is_floating,
    promote,
    symbol_names,
)
from if2where.program import Callee
from if2where.region import tree

Root = str | tree.Expr


@dataclass
class Meetings:
    """For each number variable or expression of a function, the tensors that it meets."""

    facts: Facts
    parents: dict[Root, Root] = field(default_factory=dict)
    met: dict[Root, list[tuple[str | None, tree.Expr]]] = field(default_factory=dict)

    def find(self, root: Root) -> Root:
        while root in self.parents:
            root = self.parents[root]
        return root

    def union(self, a: Root, b: Root) -> None:
        a, b = self.find(a), self.find(b)
        if a is not b and a != b:
            self.parents[a] = b
            self.met.setdefault(b, []).extend(self.met.pop(a, []))

    def meet(self, root: Root, dtype: str | None, tensor: tree.Expr) -> None:
        self.met.setdefault(self.find(root), []).append((dtype, tensor))

    def of(self, root: Root) -> list[tuple[str | None, tree.Expr]]:
        return self.met.get(self.find(root), [])


def meetings(callee: Callee, facts: Facts, depth: int = 2) -> Meetings:
    """Where the number variables of a function meet tensors, its callees looked into as deep as told."""
    found = Meetings(facts)
    body = callee.node.body if isinstance(callee.node, tree.FunctionDef) else (tree.Return(callee.node.body),)
    for node in tree.walk(body):
        if isinstance(node, tree.Assign):
            for target in node.targets:
                _assign(found, target, node.value)
        elif isinstance(node, tree.AugAssign):
            _pair(found, node.target, node.value)
            for r in roots(facts, node.target):
                for s in roots(facts, node.value):
                    found.union(r, s)
        elif isinstance(node, tree.Binary):
            _pair(found, node.left, node.right)
        elif isinstance(node, tree.Conditional):
            _pair(found, node.body, node.orelse)
        elif isinstance(node, tree.BoolOp):
            _pair(found, node.left, node.right)
        elif isinstance(node, tree.Call):
            args = [a.value for a in node.args]
            for k, a in enumerate(args):
                for b in args[k + 1 :]:
                    _pair(found, a, b)
            if depth:
                _through_calls(found, node, facts, depth)
    return found


def _through_calls(found: Meetings, node: tree.Call, facts: Facts, depth: int) -> None:
    for inner in facts.callees.get(node, ()):
        if not any(isinstance(facts.kind(a.value), Number) or _static_float(facts.kind(a.value)) for a in node.args):
            continue
        theirs = meetings(inner, facts, depth - 1)
        names = [p.name for p in inner.positional]
        if inner.owner is not None and not inner.is_staticmethod:
            names = names[1:]
        tensors = {n: a.value for n, a in zip(names, node.args, strict=False)}
        for name, arg in zip(names, node.args, strict=False):
            for dtype, _ in theirs.of(name):
                for r in roots(facts, arg.value):
                    exemplar = next(
                        (t for t in tensors.values() if getattr(facts.kind(t), "dtype", None) == dtype), arg.value
                    )
                    found.meet(r, dtype, exemplar)


def _static_float(kind: Kind) -> bool:
    return isinstance(kind, Static) and kind.what == "float"


def _assign(found: Meetings, target: tree.Expr, value: tree.Expr) -> None:
    if isinstance(target, tree.Name):
        for r in roots(found.facts, value):
            found.union(r, target.id)
        kind = found.facts.kind(value)
        if isinstance(kind, Tensor) and not isinstance(found.facts.kind(target), Number):
            found.meet(target.id, kind.dtype, value)
    elif isinstance(target, tree.Tuple) and isinstance(value, tree.Tuple) and len(target.items) == len(value.items):
        for t, v in zip(target.items, value.items, strict=True):
            _assign(found, t, v)


def _pair(found: Meetings, a: tree.Expr, b: tree.Expr) -> None:
    for number, tensor in ((a, b), (b, a)):
        kind = found.facts.kind(tensor)
        if isinstance(kind, Tensor):
            for r in roots(found.facts, number):
                found.meet(r, kind.dtype, tensor)
    for r in roots(found.facts, a):
        for s in roots(found.facts, b):
            found.union(r, s)


def roots(facts: Facts, node: tree.Expr) -> Iterator[Root]:
    """The number variables and conditional expressions that a number expression is made of."""
    kind = facts.kind(node)
    if not (isinstance(kind, Number | Static) or (isinstance(kind, Tensor) and kind.optional)):
        return
    if isinstance(node, tree.Name):
        yield node.id
    elif isinstance(node, tree.Conditional):
        yield node
        yield from roots(facts, node.body)
        yield from roots(facts, node.orelse)
    elif isinstance(node, (tree.BoolOp, tree.Binary)):
        yield node
        yield from roots(facts, node.left)
        yield from roots(facts, node.right)
    elif isinstance(node, tree.Unary):
        yield from roots(facts, node.operand)
    elif isinstance(node, tree.Call):
        yield node
        for a in node.args:
            yield from roots(facts, a.value)


def float_dtype(found: Meetings, root: Root | None, scope: dict[str, tree.Name], kinds: dict[str, Kind]) -> tree.Expr:
    """An expression for the dtype in which a number that became a tensor is held.

    ``scope`` maps the variables in reach to their current versions, ``kinds`` to what they are.
    """
    held = held_dtype(found, root)
    return dtype_expr(held, [t for _, t in found.of(root)] if root is not None else [], scope, kinds)


def held_dtype(found: Meetings, root: Root | None) -> str:
    """The one dtype that the number meets (or the widest, where it covers the others); "float64" where there is none."""
    dtypes = {d for d, _ in found.of(root)} if root is not None else set()
    floating = {d for d in dtypes if d is not None and (is_floating(d) or d.startswith("@"))}
    if None in dtypes or not floating:
        return "float64"
    widest = None
    for d in sorted(floating):
        widest = d if widest is None else promote(widest, d)
    return widest if widest in floating else "float64"


def dtype_expr(dtype: str, tensors: list[tree.Expr], scope: dict[str, tree.Name], kinds: dict[str, Kind]) -> tree.Expr:
    """An expression for a dtype or symbol, over variables in reach whose tensors have it."""
    if dtype == DEFAULT_FLOAT:
        return tree.Call(tree.TorchName("get_default_dtype"))
    if not dtype.startswith("@"):
        return tree.TorchName(dtype)
    candidates = [t.id for t in tensors if isinstance(t, tree.Name)] + list(scope)
    for name in candidates:
        kind = kinds.get(name)
        if name in scope and isinstance(kind, Tensor) and not kind.optional and kind.dtype == dtype:
            if is_floating(dtype):
                return tree.Attribute(scope[name], "dtype")
            return floating_dtype(scope[name])
    parts: list[tree.Expr] = []
    for symbol in symbol_names(dtype):
        part = next(
            (v for n, v in scope.items() if getattr(kinds.get(n), "dtype", None) in (f"@{symbol}", f"@{symbol}+f")),
            None,
        )
        if part is None:
            return tree.TorchName("float64")
        parts.append(floating_dtype(part))
    whole = parts[0] if parts else tree.TorchName("float64")
    for p in parts[1:]:
        whole = tree.Call(tree.TorchName("promote_types"), (tree.Argument(whole), tree.Argument(p)))
    return whole


def floating_dtype(variable: tree.Expr) -> tree.Expr:
    """The dtype of a tensor that has met a Python float, whatever its own is."""
    return tree.Call(tree.TorchName("result_type"), (tree.Argument(variable), tree.Argument(tree.Constant(1.0))))


def is_data_float(kind: Kind) -> bool:
    return isinstance(kind, Number) and kind.what == "float" and depends(kind)
