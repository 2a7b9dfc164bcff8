"""What statements and expressions read and write, and which variables are live after each.

A variable is keyed ``(name, version)``; before conversion every version is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from if2where.region import tree

Key = tuple[str, int]
Keys = frozenset[Key]
NONE: Keys = frozenset()


def key(name: tree.Name) -> Key:
    return (name.id, name.version)


def target_names(target: tree.Expr) -> Iterator[tree.Name]:
    """The variables that assigning to the target binds."""
    if isinstance(target, tree.Name):
        yield target
    elif isinstance(target, tree.Tuple | tree.List):
        for item in target.items:
            yield from target_names(item)
    elif isinstance(target, tree.Starred):
        yield from target_names(target.value)


def target_reads(target: tree.Expr) -> Iterator[tree.Expr]:
    """The expressions that assigning to the target evaluates."""
    if isinstance(target, tree.Tuple | tree.List):
        for item in target.items:
            yield from target_reads(item)
    elif isinstance(target, tree.Starred):
        yield from target_reads(target.value)
    elif not isinstance(target, tree.Name):
        yield from (c for c in tree.children(target) if isinstance(c, tree.Expr))


def reads(node: tree.Node | tree.Block) -> Keys:
    """Every variable that evaluating the node may read (those bound inside lambdas and comprehensions left out)."""
    return frozenset(_reads(node))


def _reads(node: tree.Node | tree.Block) -> Iterator[Key]:
    if isinstance(node, tuple):
        for stmt in node:
            yield from _reads(stmt)
    elif isinstance(node, tree.Name):
        yield key(node)
    elif isinstance(node, tree.Lambda):
        bound = {(p.name, 0) for p in node.params}
        yield from (k for k in _reads(node.body) if k not in bound)
        for p in node.params:
            if p.default is not None:
                yield from _reads(p.default)
    elif isinstance(node, tree.Comprehension):
        bound = {key(n) for c in node.clauses for n in target_names(c.target)}
        for child in tree.children(node):
            if isinstance(child, tree.Clause):
                inner = [child.iter, *child.conditions]
                yield from (k for part in inner for k in _reads(part) if k not in bound)
            else:
                yield from (k for k in _reads(child) if k not in bound)
    elif isinstance(node, tree.FunctionDef):
        local = {(p.name, 0) for p in node.params} | writes(node.body)
        yield from (k for k in _reads(node.body) if k not in local)
        for p in node.params:
            if p.default is not None:
                yield from _reads(p.default)
        for d in node.decorators:
            yield from _reads(d)
    elif isinstance(node, tree.Assign):
        yield from _reads(node.value)
        for t in node.targets:
            for e in target_reads(t):
                yield from _reads(e)
    elif isinstance(node, tree.AnnAssign):
        if node.value is not None:
            yield from _reads(node.value)
        for e in target_reads(node.target):
            yield from _reads(e)
    elif isinstance(node, tree.For):
        yield from _reads(node.iter)
        for e in target_reads(node.target):
            yield from _reads(e)
        yield from _reads(node.body)
        yield from _reads(node.orelse)
    elif isinstance(node, tree.Walrus):
        yield from _reads(node.value)
    elif isinstance(node, tree.WithItem):
        yield from _reads(node.context)
    else:
        for child in tree.children(node):
            yield from _reads(child)


def writes(node: tree.Node | tree.Block) -> Keys:
    """Every variable that running the node may bind."""
    return frozenset(_writes(node))


def _writes(node: tree.Node | tree.Block) -> Iterator[Key]:
    if isinstance(node, tuple):
        for stmt in node:
            yield from _writes(stmt)
        return
    if isinstance(node, tree.Lambda):
        return
    if isinstance(node, tree.FunctionDef):
        yield (node.name, 0)
        return
    if isinstance(node, tree.Comprehension):
        for sub in tree.walk(node):
            if isinstance(sub, tree.Walrus):
                yield key(sub.target)
        return
    if isinstance(node, tree.Assign):
        for t in node.targets:
            yield from map(key, target_names(t))
    elif isinstance(node, tree.AnnAssign):
        if node.value is not None:
            yield from map(key, target_names(node.target))
    elif isinstance(node, tree.AugAssign | tree.For):
        yield from map(key, target_names(node.target))
    elif isinstance(node, tree.WithItem):
        if node.target is not None:
            yield from map(key, target_names(node.target))
    elif isinstance(node, tree.Walrus):
        yield key(node.target)
    elif isinstance(node, tree.Delete):
        for t in node.targets:
            yield from map(key, target_names(t))
    elif isinstance(node, tree.Import):
        for name, _ in node.names:
            yield (name, 0)
    elif isinstance(node, tree.OpaqueStmt):
        for name in node.binds:
            yield (name, 0)
    for child in tree.children(node):
        yield from _writes(child)


def captured(body: tree.Block | tree.Node) -> Keys:
    """The variables that a lambda or nested function in the body reads or rebinds from outside itself."""
    found: set[Key] = set()
    for node in tree.walk(body):
        if isinstance(node, tree.Lambda | tree.FunctionDef):
            found |= reads(node)
        if isinstance(node, tree.FunctionDef):
            for sub in tree.walk(node.body):
                if isinstance(sub, tree.Scope):
                    found |= {(n, 0) for n in sub.names}
    return frozenset(found)


@dataclass(frozen=True)
class Liveness:
    """``before`` and ``after`` each statement; ``head[loop]``: before each test of a loop."""

    before: dict[tree.Stmt, Keys]
    after: dict[tree.Stmt, Keys]
    head: dict[tree.Stmt, Keys]


def liveness(body: tree.Block, at_end: Keys = NONE) -> Liveness:
    """Live variables of a function's body, by the usual backward analysis to a fixpoint."""
    walker = _LiveWalker()
    walker.block(body, at_end, NONE, NONE)
    return Liveness(walker.live_before, walker.after, walker.head)


class _LiveWalker:
    def __init__(self) -> None:
        self.live_before: dict[tree.Stmt, Keys] = {}
        self.after: dict[tree.Stmt, Keys] = {}
        self.head: dict[tree.Stmt, Keys] = {}

    def block(self, block: tree.Block, live: Keys, on_break: Keys, on_continue: Keys) -> Keys:
        for stmt in reversed(block):
            self.after[stmt] = self.after.get(stmt, NONE) | live
            live = self.before(stmt, live, on_break, on_continue)
            self.live_before[stmt] = self.live_before.get(stmt, NONE) | live
        return live

    def before(self, stmt: tree.Stmt, live: Keys, on_break: Keys, on_continue: Keys) -> Keys:
        if isinstance(stmt, tree.Break):
            return on_break
        if isinstance(stmt, tree.Continue):
            return on_continue
        if isinstance(stmt, tree.Return):
            return reads(stmt)
        if isinstance(stmt, tree.Raise):
            return reads(stmt)
        if isinstance(stmt, tree.If):
            body = self.block(stmt.body, live, on_break, on_continue)
            orelse = self.block(stmt.orelse, live, on_break, on_continue)
            return reads(stmt.test) | ((body | orelse) - writes(stmt.test))
        if isinstance(stmt, tree.While | tree.For):
            return self.loop(stmt, live, on_break, on_continue)
        if isinstance(stmt, tree.With):
            inner = self.block(stmt.body, live, on_break, on_continue)
            bound = frozenset(k for item in stmt.items for k in writes(item))
            return (inner - bound) | frozenset(k for item in stmt.items for k in reads(item))
        if isinstance(stmt, tree.OpaqueStmt):
            inner = live
            for _ in range(2):
                for b in reversed(stmt.blocks):
                    inner = inner | self.block(b, inner, on_break, on_continue)
            return inner | reads(stmt)
        if isinstance(stmt, tree.AugAssign):
            return live | reads(stmt)
        return (live - writes(stmt)) | reads(stmt)

    def loop(self, stmt: tree.While | tree.For, live: Keys, on_break: Keys, on_continue: Keys) -> Keys:
        done = self.block(stmt.orelse, live, on_break, on_continue)
        head = done
        while True:
            body = self.block(stmt.body, head, live, head)
            if isinstance(stmt, tree.While):
                new = head | reads(stmt.test) | (body - writes(stmt.test))
            else:
                new = head | (body - frozenset(map(key, target_names(stmt.target))))
                for e in target_reads(stmt.target):
                    new = new | reads(e)
            if new == head:
                break
            head = new
        self.head[stmt] = head
        return head | reads(stmt.iter) if isinstance(stmt, tree.For) else head


def falls_through(block: tree.Block) -> bool:
    """Whether control can reach the end of the block."""
    return all(_goes_on(stmt) for stmt in block)


def _goes_on(stmt: tree.Stmt) -> bool:
    if isinstance(stmt, tree.Return | tree.Raise | tree.Break | tree.Continue):
        return False
    if isinstance(stmt, tree.If):
        return falls_through(stmt.body) or falls_through(stmt.orelse)
    if isinstance(stmt, tree.While):
        forever = isinstance(stmt.test, tree.Constant) and bool(stmt.test.value)
        return not forever or has_exit(stmt.body, tree.Break)
    if isinstance(stmt, tree.With):
        return falls_through(stmt.body)
    return True


def has_exit(block: Iterable[tree.Stmt], *kinds: type[tree.Stmt]) -> bool:
    """Whether an exit of one of the kinds in the block leaves it (breaks and continues of loops inside do not)."""
    for stmt in block:
        if isinstance(stmt, kinds):
            return True
        if isinstance(stmt, tree.For | tree.While):
            inner = tuple(k for k in kinds if k not in (tree.Break, tree.Continue))
            if (inner and has_exit(stmt.body, *inner)) or has_exit(stmt.orelse, *kinds):
                return True
        else:
            for b in blocks(stmt):
                if has_exit(b, *kinds):
                    return True
    return False


def blocks(stmt: tree.Stmt) -> tuple[tree.Block, ...]:
    """The blocks that a statement holds, nested functions' bodies left out."""
    if isinstance(stmt, tree.If | tree.For | tree.While):
        return (stmt.body, stmt.orelse)
    if isinstance(stmt, tree.With):
        return (stmt.body,)
    if isinstance(stmt, tree.OpaqueStmt):
        return stmt.blocks
    return ()


def alike(a: tree.Expr, b: tree.Expr) -> bool:
    """Whether two expressions are written alike."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tree.Name) and isinstance(b, tree.Name):
        return a.id == b.id
    if isinstance(a, tree.Constant) and isinstance(b, tree.Constant):
        return type(a.value) is type(b.value) and bool(a.value == b.value)
    mine, theirs = list(tree.children(a)), list(tree.children(b))
    plain = all(getattr(a, f, None) == getattr(b, f, None) for f in ("op", "ops", "attr", "keyword", "star", "name"))
    return plain and len(mine) == len(theirs) and all(_alike_nodes(x, y) for x, y in zip(mine, theirs, strict=True))


def _alike_nodes(a: tree.Node, b: tree.Node) -> bool:
    if isinstance(a, tree.Argument) and isinstance(b, tree.Argument):
        return a.keyword == b.keyword and a.star == b.star and alike(a.value, b.value)
    return isinstance(a, tree.Expr) and isinstance(b, tree.Expr) and alike(a, b)
