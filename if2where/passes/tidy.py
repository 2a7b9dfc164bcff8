"""The last simplifier: what was made up for the conversion's sake and is used once goes where it is used.

Holds after it: a branch of one assignment is one line; a test used once stands in its select; no
merge joins two equal values; nothing that is computed goes unused, of what the conversion added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import cast

from if2where.passes.context import Context
from if2where.region import facts as region_facts
from if2where.region import tree

#: A line longer than this is no help to a reader: what would make one keeps its name.
MAX_WIDTH = 100


def tidy(ctx: Context, root: tree.FunctionDef | tree.Lambda) -> tree.FunctionDef | tree.Lambda:
    """The function with single-use temporaries inlined and trivial merges dropped."""
    root = _simplified(root)
    if isinstance(root, tree.Lambda):
        return root
    body = root.body
    for _ in range(6):
        new = _inline_block(ctx, body)
        if new is body:
            break
        body = tuple(_simplified(s) for s in new)
    body = _reached(body)
    return root if body is root.body else replace(root, body=body)


def _reached(block: tree.Block) -> tree.Block:
    """Without what the conversion put behind a return, break or continue."""
    out: list[tree.Stmt] = []
    left = False
    for stmt in block:
        if left and stmt.origin is None and stmt.at is None and not getattr(stmt, "carries", ()):
            continue
        left = left or isinstance(stmt, tree.Return | tree.Break | tree.Continue)
        if isinstance(stmt, tree.If | tree.For | tree.While):
            body, orelse = _reached(stmt.body), _reached(stmt.orelse)
            if body is not stmt.body or orelse is not stmt.orelse:
                stmt = replace(stmt, body=body, orelse=orelse)
        out.append(stmt)
    return block if len(out) == len(block) and all(a is b for a, b in zip(out, block)) else tuple(out)


# --- rules on expressions -------------------------------------------------------------------


def _simplified(node: tree._NodeT) -> tree._NodeT:
    new = tree.map_children(node, _simplified)
    if isinstance(new, tree.Select):
        return cast(tree._NodeT, _select(new))
    if isinstance(new, tree.Unary) and new.op == "~" and isinstance(new.operand, tree.Unary) and new.operand.op == "~":
        return cast(tree._NodeT, new.operand.operand)
    if isinstance(new, tree.Binary) and new.op in ("&", "|") and new.origin is None:
        return cast(tree._NodeT, _mask_rule(new))
    return cast(tree._NodeT, new)


def _is_flag(node: tree.Expr, value: bool) -> bool:
    """``torch.tensor(value)`` as the conversion writes it."""
    if not (isinstance(node, tree.Call) and isinstance(node.func, tree.TorchName) and node.func.name == "tensor"):
        return False
    arg = node.args[0].value
    return len(node.args) == 1 and isinstance(arg, tree.Constant) and arg.value is value


def _mask_rule(node: tree.Binary) -> tree.Expr:
    unit = node.op == "&"
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if _is_flag(side, unit):
            return other
    if equal(node.left, node.right):
        return node.left
    return node


def _select(node: tree.Select) -> tree.Expr:
    if equal(node.chosen, node.other):
        return node.chosen
    if isinstance(node.mask, tree.Unary) and node.mask.op == "~" and node.mask.origin is None:
        return _select(tree.Select(node.mask.operand, node.other, node.chosen))
    if isinstance(node.chosen, tree.Select) and equal(node.chosen.other, node.other):
        return _select(
            tree.Select(_mask_rule(tree.Binary("&", node.mask, node.chosen.mask)), node.chosen.chosen, node.other)
        )
    if isinstance(node.other, tree.Select) and equal(node.other.chosen, node.chosen):
        return _select(
            tree.Select(_mask_rule(tree.Binary("|", node.mask, node.other.mask)), node.chosen, node.other.other)
        )
    return node


def equal(a: tree.Node, b: tree.Node) -> bool:
    """Whether two expressions are the same variable or literal (anything larger counts as different)."""
    if isinstance(a, tree.Name) and isinstance(b, tree.Name):
        return (a.id, a.version) == (b.id, b.version)
    if isinstance(a, tree.Constant) and isinstance(b, tree.Constant):
        return type(a.value) is type(b.value) and repr(a.value) == repr(b.value)
    return False


# --- inlining -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Definition:
    index: int
    value: tree.Expr
    stmt: tree.Assign


def _inline_block(ctx: Context, body: tree.Block) -> tree.Block:
    uses: Counter[region_facts.Key] = Counter()
    defs: Counter[region_facts.Key] = Counter()
    for node in tree.walk(body):
        if isinstance(node, tree.Name):
            uses[region_facts.key(node)] += 1
        if isinstance(node, tree.Assign | tree.AugAssign | tree.For | tree.Walrus | tree.AnnAssign):
            targets = node.targets if isinstance(node, tree.Assign) else (node.target,)
            for t in targets:
                for n in region_facts.target_names(t):
                    defs[region_facts.key(n)] += 1
                    uses[region_facts.key(n)] -= 1
    return _Inliner(ctx, uses, defs).block(body)


class _Inliner:
    def __init__(self, ctx: Context, uses: Counter[region_facts.Key], defs: Counter[region_facts.Key]) -> None:
        self.ctx = ctx
        self.uses = uses
        self.defs = defs

    def block(self, body: tree.Block) -> tree.Block:
        out: list[tree.Stmt | None] = []
        available: dict[region_facts.Key, _Definition] = {}
        last_write: dict[region_facts.Key, int] = {}
        last_effect = -1
        pending: tuple[object, ...] = ()
        for stmt in body:
            new = self.nested(stmt)
            replacements: dict[region_facts.Key, tree.Expr] = {}
            carried: tuple[object, ...] = ()
            for name, in_select in _direct_reads(new):
                key = region_facts.key(name)
                found = available.get(key)
                if found is None or not self.may_move(key, found, in_select, last_write, last_effect):
                    continue
                if key in replacements:
                    continue
                if _width(new) + _width(found.value) > MAX_WIDTH and not isinstance(
                    found.value, tree.Name | tree.Constant
                ):
                    continue
                replacements[key] = found.value
                carried += (*found.stmt.carries, *((found.stmt.origin,) if found.stmt.origin is not None else ()))
                out[found.index] = None
                del available[key]
            if replacements:
                new = _substituted(new, replacements)
                new = replace(new, carries=(*carried, *new.carries))
            if self.is_dead(new):
                pending += (*new.carries, *((new.origin,) if new.origin is not None else ()))
                continue
            if pending:
                new = replace(new, carries=(*pending, *new.carries))
                pending = ()
            index = len(out)
            out.append(new)
            for key in region_facts.writes(new):
                last_write[key] = index
                available.pop(key, None)
            if _has_effect(new):
                last_effect = index
            if isinstance(new, tree.Assign) and len(new.targets) == 1 and isinstance(new.targets[0], tree.Name):
                key = region_facts.key(new.targets[0])
                if self.eligible(key):
                    available[key] = _Definition(index, new.value, new)
        kept = tuple(s for s in out if s is not None)
        if pending and kept:
            kept = (*kept[:-1], replace(kept[-1], carries=(*kept[-1].carries, *pending)))
        return body if len(kept) == len(body) and all(a is b for a, b in zip(kept, body, strict=True)) else kept

    def eligible(self, key: region_facts.Key) -> bool:
        return self.defs[key] == 1 and self.uses[key] == 1 and (key in self.ctx.fresh or key in self.ctx.local)

    def may_move(
        self,
        key: region_facts.Key,
        found: _Definition,
        in_select: bool,
        last_write: dict[region_facts.Key, int],
        last_effect: int,
    ) -> bool:
        if key not in self.ctx.fresh and not in_select:
            return False
        if any(last_write.get(r, -1) > found.index for r in region_facts.reads(found.value)):
            return False
        return last_effect <= found.index or isinstance(found.value, tree.Name) or not _reads_memory(found.value)

    def is_dead(self, stmt: tree.Stmt) -> bool:
        if not (isinstance(stmt, tree.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], tree.Name)):
            return False
        key = region_facts.key(stmt.targets[0])
        made = key in self.ctx.fresh or (key in self.ctx.local and isinstance(stmt.value, tree.Name))
        return made and self.uses[key] == 0 and not any(isinstance(n, tree.Walrus) for n in tree.walk(stmt.value))

    def nested(self, stmt: tree.Stmt) -> tree.Stmt:
        if isinstance(stmt, tree.If | tree.For | tree.While):
            body, orelse = self.block(stmt.body) or (tree.Pass(),), self.block(stmt.orelse)
            return stmt if body is stmt.body and orelse is stmt.orelse else replace(stmt, body=body, orelse=orelse)
        if isinstance(stmt, tree.With | tree.FunctionDef):
            body = self.block(stmt.body)
            return stmt if body is stmt.body else replace(stmt, body=body)
        return stmt


def _direct_reads(stmt: tree.Stmt) -> list[tuple[tree.Name, bool]]:
    """The variables that the statement reads once and for certain, each with whether a select (or the result) takes it as it is."""
    found: list[tuple[tree.Name, bool]] = []

    def visit(node: tree.Node, direct: bool) -> None:
        if isinstance(node, tree.Name):
            found.append((node, direct))
            return
        if isinstance(node, tree.Lambda | tree.Comprehension):
            return
        if isinstance(node, tree.Conditional):
            visit(node.test, False)
            return
        if isinstance(node, tree.BoolOp):
            visit(node.left, False)
            return
        inner = isinstance(node, tree.Select | tree.Tuple | tree.List | tree.Dict | tree.Return | tree.Argument)
        if isinstance(node, tree.Call) and not isinstance(node.func, tree.TorchName):
            inner = inner and direct
        for child in tree.children(node):
            visit(child, inner or (direct and isinstance(node, tree.Call)))

    if isinstance(stmt, tree.Assign):
        alone = len(stmt.targets) == 1 and isinstance(stmt.targets[0], tree.Name)
        visit(stmt.value, alone)
        for t in stmt.targets:
            for e in region_facts.target_reads(t):
                visit(e, False)
    elif isinstance(stmt, tree.Return | tree.ExprStmt | tree.AugAssign) and stmt.value is not None:
        visit(stmt.value, isinstance(stmt, tree.Return))
    elif isinstance(stmt, tree.If):
        visit(stmt.test, False)
    elif isinstance(stmt, tree.For):
        visit(stmt.iter, False)
    return found


def _substituted(stmt: tree.Stmt, replacements: dict[region_facts.Key, tree.Expr]) -> tree.Stmt:
    def change(node: tree.Node) -> tree.Node:
        if isinstance(node, tree.Name):
            return replacements.get(region_facts.key(node), node)
        if isinstance(node, tree.Stmt):
            return node
        return tree.map_children(node, change)

    if isinstance(stmt, tree.Assign):
        targets = tuple(
            t if isinstance(t, tree.Name | tree.Tuple) else tree.map_children(t, change) for t in stmt.targets
        )
        return replace(stmt, value=change(stmt.value), targets=targets)  # type: ignore[arg-type]
    return tree.map_children(stmt, change)


def _reads_memory(node: tree.Expr) -> bool:
    return any(isinstance(n, tree.Subscript | tree.Attribute | tree.Call | tree.Name) for n in tree.walk(node))


def _has_effect(stmt: tree.Stmt) -> bool:
    """Whether the statement may change memory that an expression reads."""
    if isinstance(stmt, tree.Assign):
        plain = all(isinstance(t, tree.Name | tree.Tuple) for t in stmt.targets)
        return not plain or _calls_unknown(stmt.value)
    if isinstance(stmt, tree.Return | tree.Pass | tree.Break | tree.Continue):
        return False
    if isinstance(stmt, tree.If | tree.For | tree.While):
        return any(_has_effect(s) for b in region_facts.blocks(stmt) for s in b)
    return True


def _calls_unknown(node: tree.Expr) -> bool:
    for n in tree.walk(node):
        if isinstance(n, tree.Call):
            func = n.func
            if isinstance(func, tree.TorchName):
                continue
            if isinstance(func, tree.Attribute) and func.attr.endswith("_") and not func.attr.startswith("_"):
                return True
            if isinstance(func, tree.Attribute) and func.attr in ("append", "pop", "update", "insert", "extend"):
                return True
    return False


def _width(node: tree.Node) -> int:
    """About how many characters the node takes when printed on one line."""
    total = 0
    for n in tree.walk(node):
        if isinstance(n, tree.Name):
            total += len(n.id) + 1
        elif isinstance(n, tree.Constant):
            total += len(repr(n.value)) + 1
        elif isinstance(n, tree.Select):
            total += 15
        elif isinstance(n, tree.TorchName):
            total += len(n.name) + 6
        elif isinstance(n, tree.Attribute):
            total += len(n.attr) + 1
        elif isinstance(n, tree.Binary | tree.Compare | tree.BoolOp):
            total += 3
        elif isinstance(n, tree.Call | tree.Subscript | tree.Tuple | tree.Assign):
            total += 2
        elif isinstance(n, tree.Stmt) and n is not node:
            break
    return total
