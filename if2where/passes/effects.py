"""What a call may do besides giving a value, asked where it would be run for samples that would not run it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from if2where.kinds.infer import Facts
from if2where.kinds.lattice import Bound, Function, Instance, Kind, Sequence, Static, Tensor, Unknown
from if2where.passes.context import Context
from if2where.program import Callee
from if2where.region import tree

_LISTS = (
    "append",
    "extend",
    "insert",
    "remove",
    "pop",
    "clear",
    "sort",
    "reverse",
    "add",
    "update",
    "setdefault",
    "popitem",
    "discard",
)
_WRITERS = ("print", "open", "input", "exec", "eval", "setattr", "delattr", "breakpoint")
_RANDOM = [
    "rand",
    "randn",
    "randint",
    "randperm",
    "normal",
    "bernoulli",
    "multinomial",
    "poisson",
    "rand_like",
    "randn_like",
    "randint_like",
    "dropout",
    "alpha_dropout",
    "feature_dropout",
    "rrelu",
    "gumbel_softmax",
    "binomial",
]
_RANDOM_METHODS = (
    "bernoulli",
    "multinomial",
    "normal_",
    "uniform_",
    "random_",
    "exponential_",
    "bernoulli_",
    "cauchy_",
    "geometric_",
    "log_normal_",
)


@dataclass
class Effects:
    """Finds effects in expressions, and in the functions of the program that they call."""

    facts: Facts
    _known: dict[Callee, frozenset[tuple[str, str]]] = field(default_factory=dict)

    def check(self, ctx: Context, node: tree.Expr, loop: tree.Stmt | None) -> None:
        """Refuses what must not run for other samples than the original's."""
        for sub in tree.walk(node):
            if not isinstance(sub, tree.Call):
                continue
            for inner in self.facts.callees.get(sub, ()):
                if self.reaches(inner, ctx.callee):
                    ctx.refuse("recursion-on-data", sub)
            for name, detail in self.of_call(sub, ctx.callee):
                if name == "random-in-branch" and ctx.options.allow_random:
                    ctx.note("draw-order", sub, detail)
                else:
                    ctx.refuse(name, sub, detail)

    def reaches(self, start: Callee, goal: Callee) -> bool:
        """Whether calling the one may come to a call of the other."""
        seen, frontier = {goal}, {goal}
        while frontier:
            if start in seen:
                return True
            frontier = {c for f in frontier for c in self.facts.callers.get(f, ())} - seen
            seen |= frontier
        return start in seen

    def of_call(self, node: tree.Call, callee: Callee) -> Iterator[tuple[str, str]]:
        func = self.facts.kind(node.func)
        if isinstance(func, Static):
            yield from self._library(node, func, callee)
        if isinstance(func, Unknown) and isinstance(node.func, tree.Attribute):
            if node.func.attr in _LISTS:
                yield "effect-in-branch", f".{node.func.attr}() changes an object that outlives the branch"
            elif isinstance(node.func.value, tree.Name) and node.func.value.id in (
                "logging",
                "logger",
                "log",
                "warnings",
                "sys",
            ):
                yield "effect-in-branch", f"{node.func.value.id}.{node.func.attr}()"
        for inner in self.facts.callees.get(node, ()):
            yield from self.of_function(inner)

    def _library(self, node: tree.Call, func: Static, callee: Callee) -> Iterator[tuple[str, str]]:
        if func.what == "builtin" and str(func.value) in _WRITERS:
            yield "effect-in-branch", f"{func.value}()"
        elif func.what == "torch":
            name = str(func.value).rsplit(".", 1)[-1]
            if name in _RANDOM:
                yield "random-in-branch", f"torch.{name}()"
        elif func.what == "module" and str(func.value).split(".")[0] in (
            "logging",
            "warnings",
            "os",
            "sys",
            "random",
            "time",
        ):
            what = "random-in-branch" if str(func.value).startswith("random") else "effect-in-branch"
            yield what, f"{func.value}()"
        elif func.what == "numpy" and ".random" in str(func.value):
            yield "random-in-branch", f"{func.value}()"
        elif func.what == "method" and isinstance(func.value, tuple) and isinstance(node.func, tree.Attribute):
            base, name = func.value
            if isinstance(base, Sequence) or (isinstance(base, Static | Unknown) and name in _LISTS):
                if name in _LISTS:
                    yield "effect-in-branch", f".{name}() changes an object that outlives the branch"
            elif (
                isinstance(base, Unknown | Static)
                and isinstance(node.func.value, tree.Name)
                and node.func.value.id in ("logger", "logging", "log")
            ):
                yield "effect-in-branch", f"{node.func.value.id}.{name}()"
            if isinstance(base, Tensor) and name in _RANDOM_METHODS:
                yield "random-in-branch", f".{name}()"

    def of_function(self, callee: Callee) -> frozenset[tuple[str, str]]:
        """The effects of a function of the program, those of the functions that it calls included."""
        if callee in self._known:
            return self._known[callee]
        self._known[callee] = frozenset()
        found: set[tuple[str, str]] = set()
        body = callee.node.body
        nodes = tree.walk(body)
        for node in nodes:
            if isinstance(node, tree.Call):
                for name, detail in self.of_call(node, callee):
                    if name == "effect-in-branch" and self._on_local(node, callee):
                        continue
                    found.add((name, f"in {callee.name}: {detail}"))
            elif isinstance(node, tree.Assign | tree.AugAssign):
                targets = node.targets if isinstance(node, tree.Assign) else (node.target,)
                for t in targets:
                    if self.outlives(t, callee):
                        found.add(("store-outlives-call", f"in {callee.name}"))
        self._known[callee] = frozenset(found)
        return self._known[callee]

    def _on_local(self, node: tree.Call, callee: Callee) -> bool:
        """Whether the object that a method changes was made in the function itself."""
        if not (isinstance(node.func, tree.Attribute) and isinstance(node.func.value, tree.Name)):
            return False
        name = node.func.value.id
        return callee.binds(name) and name not in {p.name for p in callee.params}

    def outlives(self, target: tree.Expr, callee: Callee) -> bool:
        """Whether storing there changes something that outlives the call of the function in scope."""
        if isinstance(target, tree.Attribute):
            kind = self.facts.kind(target.value)
            if isinstance(kind, Instance):
                return not kind.made
            return not isinstance(kind, Tensor)
        if isinstance(target, tree.Subscript):
            root = target.value
            while isinstance(root, tree.Subscript):
                root = root.value
            if isinstance(root, tree.Attribute):
                return self.outlives(root, callee)
            return isinstance(root, tree.Name) and not callee.binds(root.id) and not _bound_outside(callee, root.id)
        return False


def _bound_outside(callee: Callee, name: str) -> bool:
    outer = callee.parent
    while outer is not None:
        if outer.binds(name):
            return True
        outer = outer.parent
    return False


def kind_is_callable(kind: Kind) -> bool:
    return isinstance(kind, Function | Bound)


__all__ = ["Effects", "kind_is_callable"]
