"""What the passes over one function share: facts, fresh variables, refusals and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from if2where.kinds.infer import Facts
from if2where.kinds.lattice import Kind, Static, Tensor, depends, is_floating
from if2where.passes.twins import Twins
from if2where.program import Callee, Program
from if2where.region import facts as region_facts
from if2where.region import tree


@dataclass
class GuardLog:
    """The guards that a conversion makes, in order; the one numbered ``left_out`` is not made, to see what it is for."""

    made: list[str] = field(default_factory=list)
    left_out: int | None = None


@dataclass(frozen=True)
class PassOptions:
    """The options that change what the passes do."""

    guards: str = "auto"
    checks: str = "keep"
    max_iterations: int | None = None
    allow_random: bool = False
    guard_log: GuardLog = field(default_factory=GuardLog)


@dataclass(frozen=True)
class Finding:
    """A refusal or note: the code's name, where it is, and a detail for the message."""

    name: str
    at: tuple[int, int] | None
    detail: str
    callee: Callee


@dataclass
class Context:
    """Shared by the passes over one function of the program."""

    program: Program
    facts: Facts
    callee: Callee
    options: PassOptions
    twins: Twins
    refusals: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    #: The kinds of variables made or versioned by the conversion.
    version_kinds: dict[region_facts.Key, Kind] = field(default_factory=dict)
    #: Variables that the conversion made up, which tidy may inline or must name.
    fresh: set[region_facts.Key] = field(default_factory=set)
    #: Versions of the user's variables that stand for one branch's value of it, which tidy may inline.
    local: set[region_facts.Key] = field(default_factory=set)
    #: Kinds of expressions that the conversion made.
    made_kinds: dict[tree.Expr, Kind] = field(default_factory=dict)
    #: Where each made-up test is evaluated: the masks under which the original would have come there.
    places: dict[region_facts.Key, tuple[tree.Expr, ...]] = field(default_factory=dict)
    #: Where each version of a variable is assigned: the masks of the branches around it.
    born: dict[region_facts.Key, tuple[tree.Expr, ...]] = field(default_factory=dict)
    #: Where each store that needs no mask stands: samples that do not come there cannot see it.
    store_places: dict[tree.Stmt, tuple[tree.Expr, ...]] = field(default_factory=dict)
    #: Masks, each with whether it must hold, that ever fewer samples of a loop fulfil.
    shrinking: set[tuple[region_facts.Key, bool]] = field(default_factory=set)
    uses_helper: bool = False
    _counter: int = 0

    def refuse(self, name: str, node: tree.Node, detail: str = "") -> None:
        finding = Finding(name, node.at or self._near(node), detail, self.callee)
        if not any(f.name == name and f.at == finding.at for f in self.refusals):
            self.refusals.append(finding)

    def note(self, name: str, node: tree.Node, detail: str = "") -> None:
        self.notes.append(Finding(name, node.at or self._near(node), detail, self.callee))

    def _near(self, node: tree.Node) -> tuple[int, int] | None:
        return next((n.at for n in tree.walk(node) if n.at is not None), self.callee.node.at)

    def version(self, name: str, kind: Kind) -> tree.Name:
        """A new version of a variable, told apart from the others until names are given."""
        self._counter += 1
        made = tree.Name(name, self._counter)
        self.version_kinds[region_facts.key(made)] = kind
        return made

    def temporary(self, hint: str, kind: Kind) -> tree.Name:
        """A variable that the original does not have; ``hint`` says what it holds."""
        made = self.version(hint, kind)
        self.fresh.add(region_facts.key(made))
        return made

    def kind(self, node: tree.Expr) -> Kind:
        """The kind of an original expression, or of one that the conversion made."""
        if node in self.made_kinds:
            return self.made_kinds[node]
        if isinstance(node, tree.Name) and node.version:
            return self.version_kinds[region_facts.key(node)]
        return self.facts.kind(node)

    def depends(self, node: tree.Expr) -> bool:
        return depends(self.kind(node))

    def made(self, node: tree.Expr, kind: Kind) -> tree.Expr:
        self.made_kinds[node] = kind
        return node


def torch_call(name: str, *args: tree.Expr, **keywords: tree.Expr) -> tree.Call:
    arguments = tuple(tree.Argument(a) for a in args) + tuple(tree.Argument(v, k) for k, v in keywords.items())
    return tree.Call(tree.TorchName(name), arguments)


def method_call(base: tree.Expr, name: str, *args: tree.Expr) -> tree.Call:
    return tree.Call(tree.Attribute(base, name), tuple(tree.Argument(a) for a in args))


def is_number(kind: Kind) -> bool:
    return isinstance(kind, Static) and kind.what in ("bool", "int", "float")


def is_bool(kind: Kind) -> bool:
    """Whether a value of the kind is, after conversion, a bool tensor for certain."""
    return (isinstance(kind, Tensor) and kind.dtype == "bool") or getattr(kind, "what", "") == "bool"


__all__ = ["Context", "Finding", "PassOptions", "is_bool", "is_floating", "is_number", "method_call", "torch_call"]
