"""The region tree: a function's body as plain frozen data, between the two ends that know libcst.

Every node may carry ``origin``, the concrete syntax it was built from, which only
``build`` and ``emit`` look into: a node whose children are unchanged is printed as it was
written. Nodes are compared by identity, so that analyses can key facts on them.
A pass makes a changed copy with ``dataclasses.replace``, which keeps the origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar


@dataclass(frozen=True, eq=False)
class Node:
    """What expressions and statements share.

    ``origin`` is the concrete syntax (opaque to everyone but build and emit);
    ``at`` is the (line, column) in the file, both counted from 1, or None where generated.
    """

    origin: Any = field(default=None, kw_only=True, repr=False)
    at: tuple[int, int] | None = field(default=None, kw_only=True, repr=False)


# --- expressions ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Expr(Node):
    """An expression."""


@dataclass(frozen=True, eq=False)
class Name(Expr):
    """A variable. ``version`` 0 is the name as written; others are told apart until tidy names them."""

    id: str
    version: int = 0


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A literal: number, string, bytes, True, False, None or Ellipsis."""

    value: Any


@dataclass(frozen=True, eq=False)
class TorchName(Expr):
    """``torch.NAME``, printed under whatever the module calls torch."""

    name: str


@dataclass(frozen=True, eq=False)
class HelperName(Expr):
    """``any_active``: the package's one helper for converted code, printed as imported."""

    name: str


@dataclass(frozen=True, eq=False)
class Attribute(Expr):
    value: Expr
    attr: str


@dataclass(frozen=True, eq=False)
class Argument(Node):
    """One argument of a call; ``star`` is "", "*" or "**"."""

    value: Expr
    keyword: str | None = None
    star: str = ""


@dataclass(frozen=True, eq=False)
class Call(Expr):
    func: Expr
    args: tuple[Argument, ...] = ()


@dataclass(frozen=True, eq=False)
class Slice(Expr):
    """``lower:upper:step``, only as an item of a Subscript."""

    lower: Expr | None
    upper: Expr | None
    step: Expr | None


@dataclass(frozen=True, eq=False)
class Subscript(Expr):
    """``value[items]``; ``is_tuple`` where the index is written with a comma."""

    value: Expr
    items: tuple[Expr, ...]
    is_tuple: bool = False


@dataclass(frozen=True, eq=False)
class Unary(Expr):
    """``op`` is one of "-", "+", "~", "not"."""

    op: str
    operand: Expr


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    """``op`` is "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<" or ">>"."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, eq=False)
class BoolOp(Expr):
    """``left and right`` or ``left or right``."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, eq=False)
class Compare(Expr):
    """``left op rest[0] op rest[1] ...``; ops such as "<", "is not", "not in"."""

    left: Expr
    ops: tuple[str, ...]
    rest: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Conditional(Expr):
    """``body if test else orelse``."""

    test: Expr
    body: Expr
    orelse: Expr


@dataclass(frozen=True, eq=False)
class Select(Expr):
    """A merge that the conversion makes: ``torch.where(mask, chosen, other)``."""

    mask: Expr
    chosen: Expr
    other: Expr


@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class List(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Set(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Dict(Expr):
    """A dict display; a key of None is ``**value``."""

    keys: tuple[Expr | None, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Starred(Expr):
    value: Expr


@dataclass(frozen=True, eq=False)
class Parameter(Node):
    """``kind`` is "positional", "normal", "star" (*args), "keyword" or "double star"."""

    name: str
    kind: str = "normal"
    default: Expr | None = None
    annotation: Expr | None = None


@dataclass(frozen=True, eq=False)
class Lambda(Expr):
    params: tuple[Parameter, ...]
    body: Expr


@dataclass(frozen=True, eq=False)
class Clause(Node):
    """``for target in iter if conditions...`` of a comprehension."""

    target: Expr
    iter: Expr
    conditions: tuple[Expr, ...] = ()
    is_async: bool = False


@dataclass(frozen=True, eq=False)
class Comprehension(Expr):
    """``form`` is "list", "set", "generator" or "dict" (then ``key`` is set)."""

    form: str
    element: Expr
    clauses: tuple[Clause, ...]
    key: Expr | None = None


@dataclass(frozen=True, eq=False)
class Walrus(Expr):
    """``target := value``."""

    target: Name
    value: Expr


@dataclass(frozen=True, eq=False)
class OpaqueExpr(Expr):
    """An expression that no pass looks into: f-string, await, yield, concatenated string.

    ``what`` says which ("f-string", "await", "yield", "string"); ``children`` is what it reads.
    """

    what: str
    children: tuple[Expr, ...] = ()


# --- statements ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stmt(Node):
    """A statement. ``carries`` lists other original statements whose comments go where this one goes."""

    carries: tuple[Any, ...] = field(default=(), kw_only=True, repr=False)


Block = tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class Assign(Stmt):
    """``targets[0] = targets[1] = ... = value``; a target is a Name, Attribute, Subscript, Tuple, List, Starred."""

    targets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class AnnAssign(Stmt):
    target: Expr
    annotation: Expr
    value: Expr | None


@dataclass(frozen=True, eq=False)
class AugAssign(Stmt):
    """``target op= value``; ``op`` without the "="."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True, eq=False)
class ExprStmt(Stmt):
    value: Expr


@dataclass(frozen=True, eq=False)
class If(Stmt):
    """``elif`` is an If alone in ``orelse``."""

    test: Expr
    body: Block
    orelse: Block = ()


@dataclass(frozen=True, eq=False)
class For(Stmt):
    target: Expr
    iter: Expr
    body: Block
    orelse: Block = ()
    is_async: bool = False


@dataclass(frozen=True, eq=False)
class While(Stmt):
    test: Expr
    body: Block
    orelse: Block = ()


@dataclass(frozen=True, eq=False)
class WithItem(Node):
    context: Expr
    target: Expr | None = None


@dataclass(frozen=True, eq=False)
class With(Stmt):
    items: tuple[WithItem, ...]
    body: Block
    is_async: bool = False


@dataclass(frozen=True, eq=False)
class Return(Stmt):
    value: Expr | None


@dataclass(frozen=True, eq=False)
class Break(Stmt):
    pass


@dataclass(frozen=True, eq=False)
class Continue(Stmt):
    pass


@dataclass(frozen=True, eq=False)
class Pass(Stmt):
    pass


@dataclass(frozen=True, eq=False)
class Raise(Stmt):
    exc: Expr | None
    cause: Expr | None = None


@dataclass(frozen=True, eq=False)
class Assert(Stmt):
    test: Expr
    message: Expr | None = None


@dataclass(frozen=True, eq=False)
class Delete(Stmt):
    targets: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Scope(Stmt):
    """``global names`` or ``nonlocal names``; ``what`` says which."""

    what: str
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Import(Stmt):
    """An import inside the function. ``names`` are the names that it binds, with what they stand for.

    ``("th", "torch")`` for ``import torch as th``; ``("where", "torch.where")`` for ``from torch import where``.
    """

    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class FunctionDef(Stmt):
    """A function: the one being converted, or one nested in it."""

    name: str
    params: tuple[Parameter, ...]
    body: Block
    decorators: tuple[Expr, ...] = ()
    returns: Expr | None = None
    is_async: bool = False


@dataclass(frozen=True, eq=False)
class OpaqueStmt(Stmt):
    """A statement that no pass looks into: "try", "match", "class", "type", ...

    ``expressions`` and ``blocks`` are what it holds, ``binds`` the names that it binds itself
    (an exception's name, match captures, a class's name).
    """

    what: str
    expressions: tuple[Expr, ...] = ()
    blocks: tuple[Block, ...] = ()
    binds: tuple[str, ...] = ()


# --- walking and rebuilding ----------------------------------------------------------------

_NodeT = TypeVar("_NodeT", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in source order of the fields (statements of blocks included)."""
    for f in fields(node):
        if f.name in ("origin", "at", "carries"):
            continue
        yield from _nodes_in(getattr(node, f.name))


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)


def walk(node: Node | Block) -> Iterator[Node]:
    """The node or block and all below it, parents first."""
    stack: list[Node] = [node] if isinstance(node, Node) else list(reversed(node))
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(children(top))))


def map_children(node: _NodeT, change: Callable[[Node], Node]) -> _NodeT:
    """A copy with ``change`` applied to each direct child; the node itself where nothing changed."""
    changed: dict[str, Any] = {}
    for f in fields(node):
        if f.name in ("origin", "at", "carries"):
            continue
        old = getattr(node, f.name)
        new = _map_value(old, change)
        if new is not old:
            changed[f.name] = new
    return replace(node, **changed) if changed else node


def _map_value(value: Any, change: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return change(value)
    if isinstance(value, tuple):
        new = tuple(_map_value(item, change) for item in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    return value
