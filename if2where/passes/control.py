"""Control flow: data-dependent branches into merges, and exits into masks.

Holds after it: no ``if``, ``while`` or conditional expression hangs on the data any more; each
variable that a data-dependent choice decides is a Select; what only some samples may do is
masked. Static control flow stands as it was. Variables carry versions, so that the value of one
branch and that of the other exist side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from if2where.kinds.infer import Value as _EnvValue
from if2where.kinds.lattice import (
    BOTTOM,
    Bottom,
    Function,
    Instance,
    Kind,
    Number,
    Static,
    Tensor,
    Unknown,
    depends,
    is_floating,
    join,
    promote,
    taint,
)
from if2where.passes import grad_mode, hints, numbers, stores
from if2where.passes.context import Context, is_bool, is_number, torch_call
from if2where.passes.effects import Effects
from if2where.passes.expressions import Expressions
from if2where.passes.outcome import (
    BREAK,
    CONTINUE,
    DEAD,
    FALL,
    Branch,
    Leaf,
    Outcome,
    Value,
    branch,
    condition,
    conjoin,
    fill,
    leaves,
    negate,
)
from if2where.region import facts as region_facts
from if2where.region import tree

BOOL = Tensor(True, "bool", ())


@dataclass
class _Loop:
    """A loop around the statement at hand."""

    stmt: tree.For | tree.While
    #: The mask variable of the samples that are still in the loop; None where the loop ends alike for all.
    active: tree.Name | None
    live_after: frozenset[str]
    live_head: frozenset[str]
    #: Set where a return inside the loop is turned into a mask.
    returned: tree.Name | None = None
    broken: tree.Name | None = None
    #: What the returns inside the loop give.
    result_kind: Kind = BOTTOM


class ControlPass:
    """Converts one function."""

    def __init__(self, ctx: Context, effects: Effects, mask: tree.Name | None = None) -> None:
        """``mask``: a parameter that says in which samples the function is called at all."""
        self.ctx = ctx
        self.effects = effects
        self.body: tree.Block = ctx.callee.node.body if isinstance(ctx.callee.node, tree.FunctionDef) else ()
        self.live = region_facts.liveness(self.body)
        self.captured = {n for n, _ in region_facts.captured(self.body)}
        self.names: dict[str, tree.Name] = {p.name: tree.Name(p.name) for p in ctx.callee.params}
        for p in ctx.callee.params:
            ctx.version_kinds[(p.name, 0)] = ctx.facts.params.get(ctx.callee, {}).get(p.name, BOTTOM)
        self.pins: dict[str, tree.Name] = {}
        self.owned: set[region_facts.Key] = {(p.name, 0) for p in ctx.callee.params}
        self.out: list[tree.Stmt] = []
        self.place: tuple[tree.Expr, ...] = () if mask is None else (mask,)
        self.masked = False
        self.loops: list[_Loop] = []
        self.pending: list[Outcome] = []
        #: How many masks are around each loop: an exit under more of them is data-dependent.
        self.loop_places: dict[int, int] = {}
        self.result: tree.Name | None = None
        self.no_grad: list[tree.With] = []
        self.place_cache: dict[object, tree.Expr] = {}
        #: What the values kept for an earlier return were made of, and may share memory with.
        self.kept_from: dict[region_facts.Key, region_facts.Keys] = {}
        self.carried: list[tree.Stmt] = []
        self.privacy = stores.Privacy(ctx.callee, ctx.facts)
        self.expressions = Expressions(ctx, self, numbers.meetings(ctx.callee, ctx.facts))

    # --- the scope that expressions see -----------------------------------------------------

    def emit(self, stmt: tree.Stmt) -> None:
        if self.carried:
            stmt = replace(stmt, carries=(*(s.origin for s in self.carried if s.origin is not None), *stmt.carries))
            self.carried = []
        self.out.append(stmt)

    def bind(self, name: str, kind: Kind) -> tree.Name:
        """The version that an assignment to the variable writes at this place."""
        if name in self.captured and not self.masked:
            made = tree.Name(name)
            self.ctx.version_kinds[(name, 0)] = join(self.ctx.version_kinds.get((name, 0), BOTTOM), kind)
        elif name in self.pins:
            made = self.pins[name]
            key = region_facts.key(made)
            self.ctx.version_kinds[key] = join(self.ctx.version_kinds.get(key, BOTTOM), kind)
        else:
            made = self.ctx.version(name, kind)
            if self.masked:
                self.ctx.local.add(region_facts.key(made))
        self.names[name] = made
        self.owned.add(region_facts.key(made))
        self.ctx.born[region_facts.key(made)] = self.place
        return made

    def kinds_in_scope(self) -> dict[str, Kind]:
        return {n: self.ctx.version_kinds.get(region_facts.key(v), BOTTOM) for n, v in self.names.items()}

    def current_kind(self, name: str) -> Kind:
        return self.ctx.version_kinds.get(region_facts.key(self.names[name]), BOTTOM) if name in self.names else BOTTOM

    # --- the function -----------------------------------------------------------------------

    def run(self) -> tree.FunctionDef | tree.Lambda:
        node = self.ctx.callee.node
        self.refuse_whole()
        if isinstance(node, tree.Lambda):
            body = self.expressions.value(node.body, False)
            return node if body is node.body else replace(node, body=body)
        outcome = self.block(node.body)
        if FALL in (outcome,) or "fall" in leaves(outcome):
            if self.pending:
                self.ctx.refuse("falls-off-the-end", self._first_return() or node)
        return replace(node, body=tuple(self.out))

    def refuse_whole(self) -> None:
        """What stands against converting any branch of the function, where it has one to convert."""
        suspects: list[tuple[str, tree.Node, str]] = []
        data = False
        for n in _own_nodes(self.body):
            if isinstance(n, tree.OpaqueExpr) and n.what in ("yield", "await"):
                suspects.append(("generator", n, n.what))
            elif (
                isinstance(n, tree.Call)
                and isinstance(n.func, tree.Name)
                and n.func.id in ("locals", "eval", "exec", "vars")
            ):
                suspects.append(("introspection", n, f"{n.func.id}()"))
            elif isinstance(n, tree.OpaqueExpr) and n.what == "f-string" and any(map(self.ctx.depends, n.children)):
                suspects.append(("python-value", n, "an f-string of a value"))
            elif isinstance(n, tree.Subscript) and any(self.slices_by_value(i) for i in n.items):
                suspects.append(("dynamic-shape", n, "a slice by value"))
            elif isinstance(n, tree.Call) and self.sized_by_value(n):
                suspects.append(("scalar-argument", n, ""))
            elif isinstance(n, tree.If | tree.While | tree.Conditional):
                data = data or self.ctx.depends(n.test)
        if data:
            for name, at, detail in suspects:
                self.ctx.refuse(name, at, detail)
            node = self.ctx.callee.node
            if isinstance(node, tree.FunctionDef) and any(map(grad_mode.turns_off, node.decorators)):
                self.ctx.note("lost-gradient", node)

    def slices_by_value(self, item: tree.Expr) -> bool:
        bounds = (item.lower, item.upper, item.step) if isinstance(item, tree.Slice) else ()
        return any(b is not None and self.ctx.depends(b) for b in bounds)

    def sized_by_value(self, node: tree.Call) -> bool:
        """Whether a number that the data decide says how large a result is, or along which dimension it is taken."""
        func = self.ctx.facts.kind(node.func)
        if not (isinstance(func, Static) and func.what in ("torch", "method")):
            return False
        name = func.value[1] if isinstance(func.value, tuple) else str(func.value).rsplit(".", 1)[-1]
        numbers_ = [a for a in node.args if isinstance(self.ctx.facts.kind(a.value), Number)]
        if any(a.keyword in ("dim", "size", "dims") for a in numbers_):
            return True
        if name == "full" or name in _DIMENSIONED:
            first = isinstance(node.func, tree.Attribute) and func.what == "method"
            own = 0 if first or name == "full" else 1
            sized = node.args[own:1] if name == "full" else node.args[own:]
            return any(a in numbers_ and a.keyword is None for a in sized)
        return name in _SIZED and bool(numbers_)

    def _first_return(self) -> tree.Stmt | None:
        return next((s for s in tree.walk(self.body) if isinstance(s, tree.Return) and s.value is not None), None)

    # --- blocks -----------------------------------------------------------------------------

    def block(self, stmts: tree.Block) -> Outcome:
        """Converts the statements into ``self.out``; tells how samples leave the block."""
        for k, stmt in enumerate(stmts):
            outcome = self.statement(stmt)
            if outcome is FALL:
                continue
            rest = stmts[k + 1 :]
            if "fall" not in leaves(outcome):
                return self.leave(outcome, stmt)
            if not self.masked and not self.in_flagged_loop() and "continue" not in leaves(outcome):
                self.pending.append(outcome)
                falls = condition(outcome, lambda leaf: leaf.what == "fall")
                assert not isinstance(falls, bool)
                if rest:
                    self.place = (*self.place, self.atom_mask(falls, "going"))
                return self.block(rest)
            return self.rest_under_mask(outcome, rest, stmt)
        return FALL

    def in_flagged_loop(self) -> bool:
        return any(loop.active is not None for loop in self.loops)

    def leave(self, outcome: Outcome, stmt: tree.Stmt) -> Outcome:
        """All samples leave here. Outside any mask that is a return of Python's."""
        if self.masked or self.in_flagged_loop() or outcome is DEAD or leaves(outcome) != {"return"}:
            return outcome
        self.give(outcome, stmt)
        return DEAD

    def give(self, outcome: Outcome, stmt: tree.Stmt) -> None:
        """The return of the function's result, what earlier exits returned included."""
        whole = outcome
        for earlier in reversed(self.pending):
            whole = fill(earlier, whole)
        if isinstance(whole, Value):
            self.emit(self._return(whole, stmt))
            return
        merged = self.merge_outcome(whole)
        origin = stmt.origin if isinstance(stmt, tree.Return) else None
        self.emit(
            tree.Return(
                merged,
                at=stmt.at,
                carries=tuple(self._origins(whole)) if origin is None else (origin, *self._origins(whole)),
            )
        )

    def _return(self, value: Value, stmt: tree.Stmt) -> tree.Stmt:
        source = value.stmt
        assert isinstance(source, tree.Return)
        returned = self.ctx.facts.returns.get(self.ctx.callee, BOTTOM)
        expr: tree.Expr | None = value.expr
        if source.value is None:
            expr = None
        elif (
            isinstance(returned, Number | Tensor)
            and depends(returned)
            and is_number(value.kind)
            and isinstance(value.kind, Static)
        ):
            expr = self.number_tensor(value.expr, value.kind, None)
        return source if expr is source.value else replace(source, value=expr)

    def _origins(self, outcome: Outcome) -> Iterable[object]:
        if isinstance(outcome, Branch):
            yield from self._origins(outcome.then)
            yield from self._origins(outcome.orelse)
        elif isinstance(outcome, Value) and outcome.stmt.origin is not None:
            yield outcome.stmt.origin

    def merge_outcome(self, outcome: Outcome) -> tree.Expr:
        merged = self._merge_value(outcome)
        assert merged is not None
        return merged.expr

    def _merge_value(self, outcome: Outcome) -> Value | None:
        if isinstance(outcome, Branch):
            a, b = self._merge_value(outcome.then), self._merge_value(outcome.orelse)
            if a is None or b is None:
                return a or b
            if (a.kind == Static("none", None)) != (b.kind == Static("none", None)):
                self.ctx.refuse(
                    "falls-off-the-end"
                    if isinstance(a.stmt, tree.Pass | tree.FunctionDef)
                    or isinstance(b.stmt, tree.Pass | tree.FunctionDef)
                    else "merge-not-numeric",
                    a.stmt,
                    "one path returns None",
                )
                return a
            expr = self.expressions.merged(outcome.mask, a.expr, a.kind, b.expr, b.kind, a.stmt, None)
            return Value("return", expr, taint(join(a.kind, b.kind)), a.stmt)
        return outcome if isinstance(outcome, Value) else None

    def rest_under_mask(self, outcome: Outcome, rest: tree.Block, stmt: tree.Stmt) -> Outcome:
        """Some samples have left: what follows runs for the others."""
        falls = condition(outcome, lambda leaf: leaf.what == "fall")
        assert not isinstance(falls, bool)
        if not rest:
            return outcome
        mask = self.atom_mask(falls, "going")
        following = self.masked_block(rest, mask, outcome)
        return fill(outcome, following)

    def atom_mask(self, mask: tree.Expr, hint: str) -> tree.Expr:
        inner = mask.operand if isinstance(mask, tree.Unary) and mask.op == "~" else mask
        if isinstance(inner, tree.Name):
            return mask
        made = self.ctx.temporary(hint, BOOL)
        self.emit(tree.Assign((made,), mask))
        return made

    def masked_block(self, stmts: tree.Block, mask: tree.Expr, left: Outcome) -> Outcome:
        """The statements for the samples in the mask only; the others, that have ``left``, keep what they have."""
        before = dict(self.names)
        outcome, after = self.region(stmts, mask)
        self.names = before
        observers = self.observers_outside() | self.observed(left, ())
        self.merge_names(stmts, mask, after, before, self.observed(outcome, stmts), observers, stmts[0], stmts)
        return outcome

    def observers_outside(self) -> frozenset[str]:
        """What the samples that have left may still read: after the loops, or (frozen) at their heads."""
        names: frozenset[str] = frozenset()
        for loop in self.loops:
            if loop.active is not None:
                names |= self.seen_by_leavers(loop)
        return names

    def seen_by_leavers(self, loop: _Loop) -> frozenset[str]:
        """What samples that have left the loop may read behind it, and what is frozen for them at its head.

        What is alike for all samples in the loop (a counter) needs no freezing, if nobody reads it later.
        """
        first = loop.stmt.body[0]
        inside = self.ctx.facts.env_before.get(first, {})
        alike = {n for n in loop.live_head if n in inside and not depends(inside[n])}
        return loop.live_after | (loop.live_head - alike)

    def observed(self, outcome: Outcome, stmts: tree.Block) -> frozenset[str]:
        """The variables that samples going through the block may read behind it."""
        names: frozenset[str] = frozenset()
        kinds = leaves(outcome)
        if "fall" in kinds and stmts:
            names |= _ids(self.live.after[stmts[-1]])
        if kinds - {"fall"}:
            for loop in self.loops:
                if loop.active is not None or kinds & {"break", "continue"}:
                    names |= self.seen_by_leavers(loop) | (loop.live_head if "continue" in kinds else frozenset())
            if "continue" in kinds and self.loops:
                names |= self.loops[-1].live_head | self.loops[-1].live_after
        return names

    def region(self, stmts: tree.Block, mask: tree.Expr) -> tuple[Outcome, dict[str, tree.Name]]:
        """Converts statements that run under a mask, with versions of their own for what they assign."""
        saved = (self.pins, self.owned, self.place, self.masked)
        self.pins, self.owned, self.masked = {}, set(), True
        self.place = (*self.place, mask)
        outcome = self.block(stmts)
        after = self.names
        self.pins, self.owned, self.place, self.masked = saved
        return outcome, after

    # --- statements -------------------------------------------------------------------------

    def statement(self, stmt: tree.Stmt) -> Outcome:
        if isinstance(stmt, tree.If):
            return self.data_if(stmt) if self.ctx.depends(stmt.test) else self.static_if(stmt)
        if isinstance(stmt, tree.For | tree.While):
            return self.loop(stmt)
        if isinstance(stmt, tree.Return):
            return self.returns(stmt)
        if isinstance(stmt, tree.Break):
            return self.exit(stmt, BREAK)
        if isinstance(stmt, tree.Continue):
            return self.exit(stmt, CONTINUE)
        if isinstance(stmt, tree.With):
            return self.with_block(stmt)
        if isinstance(stmt, tree.Raise):
            if self.place:
                self.refuse_raise(stmt)
            else:
                self.emit(self.rebuild(stmt))
            return DEAD
        self.simple(stmt)
        return FALL

    def refuse_raise(self, stmt: tree.Stmt) -> None:
        if self.ctx.options.checks == "drop":
            self.ctx.note("checks-dropped", stmt)
        else:
            self.ctx.refuse("raise-in-branch", stmt)

    def rebuild(self, stmt: tree.Stmt) -> tree.Stmt:
        """The statement with its expressions converted."""
        return tree.map_children(stmt, self._rebuild_part)

    def _rebuild_part(self, node: tree.Node) -> tree.Node:
        if isinstance(node, tree.Expr):
            return self.expressions.value(node)
        if isinstance(node, tree.Stmt):
            return node
        return tree.map_children(node, self._rebuild_part)

    def simple(self, stmt: tree.Stmt) -> None:
        if isinstance(stmt, tree.Assign):
            self.assign(stmt)
        elif isinstance(stmt, tree.AnnAssign):
            self.annotated(stmt)
        elif isinstance(stmt, tree.AugAssign):
            self.augmented(stmt)
        elif isinstance(stmt, tree.ExprStmt):
            self.expression(stmt)
        elif isinstance(stmt, tree.Pass):
            if self.masked or self._folding():
                self.carried.append(stmt)
            else:
                self.emit(stmt)
        elif isinstance(stmt, tree.Assert):
            self.assertion(stmt)
        elif isinstance(stmt, tree.FunctionDef):
            self.nested_function(stmt)
        elif isinstance(stmt, tree.Delete | tree.Scope):
            self.scope_statement(stmt)
        elif isinstance(stmt, tree.Import):
            if self.masked:
                self.ctx.refuse("import-in-branch", stmt)
            for name, _ in stmt.names:
                self.names[name] = tree.Name(name)
            self.emit(stmt)
        elif isinstance(stmt, tree.OpaqueStmt):
            self.opaque(stmt)
        else:
            self.emit(self.rebuild(stmt))

    def _folding(self) -> bool:
        return False

    def scope_statement(self, stmt: tree.Delete | tree.Scope) -> None:
        if self.masked:
            self.ctx.refuse("scope-statement", stmt)
        if isinstance(stmt, tree.Scope):
            if any(isinstance(s, tree.If) and self.ctx.depends(s.test) for s in tree.walk(self.body)):
                self.ctx.refuse("scope-statement", stmt, stmt.what)
            for name in stmt.names:
                self.captured.add(name)
            self.emit(stmt)
        else:
            self.emit(self.rebuild(stmt))

    def assertion(self, stmt: tree.Assert) -> None:
        if self.ctx.depends(stmt.test) or self.masked:
            if self.ctx.options.checks == "drop":
                self.ctx.note("checks-dropped", stmt)
                self.carried.append(tree.Pass())
            else:
                self.ctx.refuse("assert-on-data", stmt)
            return
        self.emit(self.rebuild(stmt))

    def nested_function(self, stmt: tree.FunctionDef) -> None:
        if self.masked:
            self.ctx.refuse("definition-in-branch", stmt)
        callee = self.ctx.program.nested(stmt, self.ctx.callee)
        inner = Context(
            self.ctx.program,
            self.ctx.facts,
            callee,
            self.ctx.options,
            self.ctx.twins,
            self.ctx.refusals,
            self.ctx.notes,
        )
        inner.version_kinds, inner.fresh, inner.local = self.ctx.version_kinds, self.ctx.fresh, self.ctx.local
        inner.store_places = self.ctx.store_places
        inner.made_kinds, inner.places, inner.shrinking = self.ctx.made_kinds, self.ctx.places, self.ctx.shrinking
        inner._counter = self.ctx._counter
        pass_ = ControlPass(inner, self.effects)
        new = pass_.run()
        self.ctx._counter = inner._counter
        self.ctx.uses_helper = self.ctx.uses_helper or inner.uses_helper
        self.names[stmt.name] = tree.Name(stmt.name)
        self.ctx.version_kinds[(stmt.name, 0)] = Function(frozenset([callee]))
        assert isinstance(new, tree.FunctionDef)
        self.emit(new)

    def opaque(self, stmt: tree.OpaqueStmt) -> None:
        data = any(
            isinstance(s, tree.If | tree.While) and self.ctx.depends(s.test) for b in stmt.blocks for s in tree.walk(b)
        ) or any(
            isinstance(s, tree.Conditional) and self.ctx.depends(s.test) for b in stmt.blocks for s in tree.walk(b)
        )
        if stmt.what == "try":
            self.ctx.refuse("try-around-data", stmt)
        elif stmt.what == "match" and (any(self.ctx.depends(e) for e in stmt.expressions) or data or self.masked):
            self.ctx.refuse("match-on-data", stmt)
        elif data or self.masked:
            self.ctx.refuse("unsupported", stmt, stmt.what)
        for name, _ in region_facts.writes(stmt):
            self.names[name] = tree.Name(name)
            self.ctx.version_kinds[(name, 0)] = Unknown(True)
        self.emit(stmt)

    def returns(self, stmt: tree.Return) -> Outcome:
        kind = Static("none", None) if stmt.value is None else self.ctx.facts.kind(stmt.value)
        expr: tree.Expr = tree.Constant(None) if stmt.value is None else self.expressions.value(stmt.value)
        if stmt.value is not None:
            self.check_effects(stmt.value)
            kind = self.expressions.kind_of(expr, stmt.value)
        outcome = Value("return", expr, kind, stmt)
        if self.masked or self.in_flagged_loop():
            return Value("return", self.kept(expr, kind, stmt), kind, stmt)
        self.give(outcome, stmt)
        return DEAD

    def kept(self, expr: tree.Expr, kind: Kind, stmt: tree.Stmt) -> tree.Expr:
        """The returned value, kept under a name until the merge at the end: what it reads may change till then."""
        if isinstance(expr, tree.Constant) or (
            isinstance(expr, tree.Name) and expr.id not in self.pins and expr.id not in self.captured
        ):
            return expr
        if isinstance(expr, tree.Tuple | tree.Dict) and not any(
            isinstance(i, tree.Starred) for i in tree.children(expr)
        ):
            parts = expr.items if isinstance(expr, tree.Tuple) else expr.values
            kept = tuple(self.kept(p, self.ctx.kind(p), stmt) for p in parts)
            new: tree.Expr = replace(expr, items=kept) if isinstance(expr, tree.Tuple) else replace(expr, values=kept)
            self.ctx.made_kinds[new] = kind
            return new
        if (
            isinstance(expr, tree.Call)
            and isinstance(kind, Instance)
            and self.ctx.program.fields(kind.key)
            and not any(a.star for a in expr.args)
        ):
            args = tuple(replace(a, value=self.kept(a.value, self.ctx.kind(a.value), stmt)) for a in expr.args)
            new = replace(expr, args=args)
            self.ctx.made_kinds[new] = kind
            return new
        made = self.ctx.temporary("result", kind)
        self.kept_from[region_facts.key(made)] = region_facts.reads(expr)
        self.emit(tree.Assign((made,), expr))
        return made

    def exit(self, stmt: tree.Stmt, leaf: Leaf) -> Outcome:
        loop = self.loops[-1]
        if not self.masked or (loop.active is None and not self._masked_since(loop)):
            self.emit(stmt)
            return DEAD
        self.carried.append(stmt)
        return leaf

    def _masked_since(self, loop: _Loop) -> bool:
        return self.loop_places.get(id(loop), 0) < len(self.place)

    # --- branches ---------------------------------------------------------------------------

    def data_if(self, stmt: tree.If) -> Outcome:
        split = self.split_static(stmt)
        if split is not None:
            return self.statement(split)
        self.check_effects(stmt.test)
        self.carried.append(stmt)
        mask = self.expressions.named_mask(stmt.test, True)
        before = dict(self.names)
        then, after_then = self.region(stmt.body, mask)
        self.names = dict(before)
        opposite = negate(mask)
        assert not isinstance(opposite, bool)
        orelse, after_else = self.region(stmt.orelse, opposite) if stmt.orelse else (FALL, dict(before))
        self.names = before
        seen_then = self.observed(then, stmt.body)
        seen_else = self.observed(orelse, stmt.orelse) if stmt.orelse else _ids(self.live.after[stmt])
        if "fall" in leaves(then):
            seen_then |= _ids(self.live.after[stmt])
        if "fall" in leaves(orelse):
            seen_else |= _ids(self.live.after[stmt])
        self.merge_names(
            (*stmt.body, *stmt.orelse), mask, after_then, after_else, seen_then, seen_else, stmt, stmt.body
        )
        return branch(mask, then, orelse)

    def split_static(self, stmt: tree.If) -> tree.If | None:
        """``if static and data:`` without an else is one ``if`` in another, so that the first still protects."""
        test = stmt.test
        if isinstance(test, tree.BoolOp) and test.op == "and" and not stmt.orelse and not self.ctx.depends(test.left):
            inner = tree.If(test.right, stmt.body, at=stmt.at)
            outer = tree.If(test.left, (inner,), origin=stmt.origin, at=stmt.at, carries=stmt.carries)
            for new in (inner, outer):
                self.live.after[new] = self.live.after[stmt]
                self.live.before[new] = self.live.before[stmt]
            return outer
        return None

    def merge_names(
        self,
        written: tree.Block,
        mask: tree.Expr,
        then: dict[str, tree.Name],
        orelse: dict[str, tree.Name],
        seen_then: frozenset[str],
        seen_else: frozenset[str],
        node: tree.Stmt,
        origins: tree.Block,
    ) -> None:
        """After a choice, one version again of every variable that either side has assigned and somebody may read."""
        for name in _in_order(written):
            a, b = then.get(name), orelse.get(name)
            if a is None and b is None:
                continue
            if a is not None and b is not None and region_facts.key(a) == region_facts.key(b):
                self.names[name] = a
                continue
            if name in self.captured:
                self.ctx.refuse("shared-closure", node, f"`{name}`")
                return
            wanted_a, wanted_b = name in seen_then and a is not None, name in seen_else and b is not None
            if not wanted_a and not wanted_b:
                continue
            if wanted_a != wanted_b:
                only = a if wanted_a else b
                assert only is not None
                self.take(name, only)
                continue
            assert a is not None
            assert b is not None
            ka, kb = (self.ctx.version_kinds.get(region_facts.key(v), Unknown(True)) for v in (a, b))
            self.check_grad_mode(node, name, a, b)
            merged = self.expressions.merged(mask, a, ka, b, kb, node, name)
            kind = taint(join(ka, kb))
            target = self.bind(name, kind)
            self.privacy.merged(target, a, b)
            self.ctx.local.discard(region_facts.key(target)) if not self.masked else None
            self.emit(tree.Assign((target,), merged, at=node.at))

    def take(self, name: str, version: tree.Name) -> None:
        """The variable goes on as that version: no sample that reads it has another value."""
        if name in self.pins and region_facts.key(self.pins[name]) != region_facts.key(version):
            kind = self.ctx.version_kinds.get(region_facts.key(version), Unknown(True))
            target = self.bind(name, kind)
            self.emit(tree.Assign((target,), version))
        else:
            self.names[name] = version
            self.owned.add(region_facts.key(version))

    def check_grad_mode(self, node: tree.Stmt, name: str, *versions: tree.Name) -> None:
        if self.no_grad:
            self.ctx.refuse("merge-under-no-grad", node, name)

    def static_if(self, stmt: tree.If) -> Outcome:
        test = self.expressions.value(stmt.test)
        undo = self.pin(stmt)
        saved_out, saved_names = self.out, dict(self.names)
        carried, self.carried = self.carried, []
        ends: list[tuple[list[tree.Stmt], Outcome, dict[str, tree.Name]]] = []
        flags_needed = False
        for arm in (stmt.body, stmt.orelse):
            self.out, self.names = [], dict(saved_names)
            pending, self.pending = self.pending, list(self.pending)
            place, cache = self.place, dict(self.place_cache)
            outcome = self.block(arm)
            self.place, self.place_cache = place, cache
            partial = self.pending[len(pending) :]
            for p in reversed(partial):
                outcome = fill(p, outcome)
            self.pending = pending
            self.flush_carried()
            ends.append((self.out, outcome, self.names))
            flags_needed = flags_needed or (outcome is not FALL and outcome is not DEAD)
        self.out, self.names, self.carried = saved_out, saved_names, carried
        for _, outcome, after in ends:
            if outcome is not DEAD:
                self.names.update({n: v for n, v in after.items() if n in self.pins or n not in self.names})
        outcome = FALL
        if flags_needed:
            outcome = self.flag_arms(ends, stmt)
        elif all(o is DEAD for _, o, _ in ends):
            outcome = DEAD
        undo()
        body, orelse = tuple(ends[0][0]), tuple(ends[1][0])
        self.emit(replace(stmt, test=test, body=body or (tree.Pass(),), orelse=orelse))
        return outcome

    def flush_carried(self) -> None:
        """Comments that nothing in this block can carry any more go on a pass of their own only if the block is empty."""
        if self.carried and self.out:
            last = self.out[-1]
            self.out[-1] = replace(
                last, carries=(*last.carries, *(s.origin for s in self.carried if s.origin is not None))
            )
        self.carried = []

    def flag_arms(self, ends: list[tuple[list[tree.Stmt], Outcome, dict[str, tree.Name]]], stmt: tree.If) -> Outcome:
        """Which samples have left inside a static ``if`` is told by mask variables that each arm sets."""
        kinds = frozenset(k for _, o, _ in ends for k in leaves(o)) - {"fall"}
        result: Outcome = FALL
        for what in ("continue", "break", "return"):
            if what not in kinds:
                continue
            flag = self.ctx.temporary({"return": "returned", "break": "left", "continue": "skipped"}[what], BOOL)
            value = self.ctx.temporary("result", BOTTOM) if what == "return" else None
            leaf: Outcome = {"break": BREAK, "continue": CONTINUE}.get(what, FALL)
            returned = [self._merge_value(o) for _, o, _ in ends if o is not DEAD] if value is not None else []
            value_kind: Kind = BOTTOM
            for r in returned:
                value_kind = value_kind if r is None else join(value_kind, r.kind)
            for out, outcome, _ in ends:
                if outcome is DEAD:
                    continue
                where = condition(outcome, lambda leaf, what=what: leaf.what == what)  # type: ignore[misc]
                out.append(tree.Assign((flag,), _mask_expr(where)))
                if value is not None:
                    merged = self._merge_value(outcome)
                    out.append(tree.Assign((value,), self.placeholder(value_kind) if merged is None else merged.expr))
            if value is not None:
                self.ctx.version_kinds[region_facts.key(value)] = taint(value_kind)
                first = self._first_return() or stmt
                leaf = Value("return", value, taint(value_kind), first)
            result = branch(flag, leaf, result)
        return result

    def pin(self, stmt: tree.Stmt) -> Callable[[], None]:
        """Inside static control flow a variable that outlives it keeps one version, so that its paths agree."""
        saved = dict(self.pins)
        loop = isinstance(stmt, tree.For | tree.While)
        outlive = _ids(self.live.after[stmt]) | (_ids(self.live.head[stmt]) if loop else frozenset())
        for name in _in_order((stmt,)):
            if name in self.pins or name in self.captured or name not in outlive:
                continue
            current = self.names.get(name)
            if current is not None and self.becomes_tensor(name, current):
                self.pins[name] = self.as_tensor_from_here(name, current)
                continue
            if current is not None and region_facts.key(current) in self.owned and not loop:
                self.pins[name] = current
                continue
            kind = self.current_kind(name)
            made = self.ctx.version(name, kind)
            if current is not None:
                self.privacy.assigned(made, current, None)
            if current is not None and name in (
                _ids(self.live.head[stmt]) if loop else _ids(self.live.before[stmt]) | outlive
            ):
                self.emit(tree.Assign((made,), current))
                self.names[name] = made
            if self.masked:
                self.ctx.local.add(region_facts.key(made))
            self.owned.add(region_facts.key(made))
            self.pins[name] = made

        def undo() -> None:
            self.pins = saved

        return undo

    def becomes_tensor(self, name: str, current: tree.Name) -> bool:
        """Whether the variable holds a Python number here that later differs from sample to sample."""
        later = self.ctx.facts.variables.get(self.ctx.callee, {}).get(name, BOTTOM)
        differs = isinstance(later, Number) or (isinstance(later, Tensor) and later.optional and later.dtype == "bool")
        return differs and is_number(self.ctx.version_kinds.get(region_facts.key(current), BOTTOM))

    def as_tensor_from_here(self, name: str, current: tree.Name) -> tree.Name:
        """The number in a tensor, under a new version: an operator would mean something else on a Python value."""
        before = self.ctx.version_kinds[region_facts.key(current)]
        later = self.ctx.facts.variables[self.ctx.callee][name]
        assert isinstance(before, Static)
        what = later.what if isinstance(later, Number) else "bool"
        made = self.ctx.version(name, later)
        if self.masked:
            self.ctx.local.add(region_facts.key(made))
        if current.version:
            self.ctx.local.add(region_facts.key(current))
        self.emit(tree.Assign((made,), self.number_tensor(current, replace(before, what=what), name)))
        self.names[name] = made
        self.owned.add(region_facts.key(made))
        self.ctx.born[region_facts.key(made)] = self.place
        return made

    def with_block(self, stmt: tree.With) -> Outcome:
        items = tuple(tree.map_children(i, self._rebuild_part) for i in stmt.items)
        quiet = any(grad_mode.is_off(i.context, self.ctx) for i in stmt.items)
        if quiet:
            self.no_grad.append(stmt)
        saved_out, self.out = self.out, []
        for item in stmt.items:
            if item.target is not None:
                for n in region_facts.target_names(item.target):
                    self.names[n.id] = tree.Name(n.id)
        outcome = self.block(stmt.body)
        self.flush_carried()
        inner, self.out = self.out, saved_out
        if quiet:
            self.no_grad.pop()
        self.emit(replace(stmt, items=items, body=tuple(inner)))
        return outcome

    # --- loops ------------------------------------------------------------------------------

    def loop(self, stmt: tree.For | tree.While) -> Outcome:
        if (
            isinstance(stmt, tree.For)
            and self.ctx.depends(stmt.iter)
            and isinstance(self.ctx.facts.kind(stmt.iter), Unknown)
        ):
            self.expressions.value(stmt.iter)
            if not self.ctx.refusals:
                pass
        data_test = isinstance(stmt, tree.While) and self.ctx.depends(stmt.test)
        exits = self.data_exits(stmt)
        returns_masked = region_facts.has_exit(stmt.body, tree.Return) and (self.masked or exits)
        if data_test or exits & {"break", "return"} or returns_masked:
            return self.flagged_loop(stmt, data_test)
        return self.plain_loop(stmt)

    def data_exits(self, stmt: tree.For | tree.While) -> frozenset[str]:
        """The exits of the loop that only some samples may take at a time."""
        found: set[str] = set()

        def visit(block: tree.Block, data: bool, own: bool) -> None:
            for s in block:
                if isinstance(s, tree.Return) and data:
                    found.add("return")
                elif isinstance(s, tree.Break) and data and own:
                    found.add("break")
                elif isinstance(s, tree.Continue) and data and own:
                    found.add("continue")
                elif isinstance(s, tree.If):
                    inner = data or self.ctx.depends(s.test)
                    visit(s.body, inner, own)
                    visit(s.orelse, inner, own)
                elif isinstance(s, tree.For | tree.While):
                    inner = data or (isinstance(s, tree.While) and self.ctx.depends(s.test))
                    inner = inner or bool(self.data_exits(s) & {"return"})
                    visit(s.body, inner, False)
                    visit(s.orelse, inner, own)
                else:
                    for b in region_facts.blocks(s):
                        visit(b, data, own)
                if _leaves_some(s, self.ctx):
                    data = True

        visit(stmt.body, False, True)
        return frozenset(found)

    def plain_loop(self, stmt: tree.For | tree.While) -> Outcome:
        carried, self.carried = self.carried, []
        undo = self.enter_loop(stmt)
        self.placeholders(stmt, self.data_written(stmt.body))
        loop = _Loop(stmt, None, _ids(self.live.after[stmt]), _ids(self.live.head[stmt]))
        iterated = self.expressions.value(stmt.iter) if isinstance(stmt, tree.For) else None
        if self.place and any(isinstance(s, tree.Assign | tree.AugAssign) for s in tree.walk(stmt.body)):
            self.place_name()
        cache = dict(self.place_cache)
        saved_out, self.out = self.out, []
        if isinstance(stmt, tree.For):
            target = self.bind_target(stmt.target, stmt)
        test = self.expressions.value(stmt.test, False) if isinstance(stmt, tree.While) else None
        self.loops.append(loop)
        self.loop_places[id(loop)] = len(self.place)
        outcome = self.block(stmt.body)
        self.loops.pop()
        self.flush_carried()
        body, self.out = tuple(self.out), []
        orelse: tree.Block = ()
        if stmt.orelse:
            self.block(stmt.orelse)
            orelse = tuple(self.out)
        self.out, self.carried, self.place_cache = saved_out, carried, cache
        del outcome
        if isinstance(stmt, tree.For):
            assert iterated is not None
            self.emit(replace(stmt, target=target, iter=iterated, body=body or (tree.Pass(),), orelse=orelse))
        else:
            assert test is not None
            self.emit(replace(stmt, test=test, body=body or (tree.Pass(),), orelse=orelse))
        undo()
        return FALL

    def bind_target(self, target: tree.Expr, stmt: tree.Stmt) -> tree.Expr:
        """Loop and assignment targets under the versions that they bind here."""
        if isinstance(target, tree.Name):
            made = self.bind(target.id, self.ctx.facts.kind(target))
            if isinstance(stmt, tree.For):
                self.privacy.assigned(made, None, None)
            return replace(target, version=made.version)
        if isinstance(target, tree.Tuple | tree.List):
            items = tuple(self.bind_target(i, stmt) for i in target.items)
            return replace(target, items=items)
        if isinstance(target, tree.Starred):
            return replace(target, value=self.bind_target(target.value, stmt))
        if self.masked:
            self.ctx.refuse("store-target", target, "a store as one of several targets")
        return self.expressions.children(target, True)

    def enter_loop(self, stmt: tree.For | tree.While) -> Callable[[], None]:
        """Pins what the loop carries, and notes what it may be at the loop's head."""
        undo = self.pin(stmt)
        head = _ids(self.live.head[stmt])
        leaves_early = (isinstance(stmt, tree.While) and self.ctx.depends(stmt.test)) or bool(self.data_exits(stmt))
        written = {n for n, _ in region_facts.writes(stmt.body)} if leaves_early else self.data_written(stmt.body)
        first = stmt.body[0]
        for name in _in_order((stmt,)):
            if name not in self.pins or name not in head:
                continue
            inside = self.ctx.facts.env_before.get(first, {}).get(name, BOTTOM)
            pinned = self.pins[name]
            key = region_facts.key(pinned)
            # What the loop carries is merged in each step: a second name of another tensor is so in the first only.
            if name in written and (self.privacy.borrows(name, stmt.body) or not self.privacy.is_private(pinned)):
                self.privacy.mark_mixed(pinned)
            self.ctx.version_kinds[key] = join(self.ctx.version_kinds.get(key, BOTTOM), inside)
        return undo

    def number_tensor(self, value: tree.Expr, kind: Static, root: numbers.Root | None) -> tree.Expr:
        """A Python number as a 0-dim tensor: bools and ints in torch's own dtypes, floats in that which they meet."""
        if kind.what == "float":
            return torch_call("tensor", value, dtype=self.expressions.float_dtype(root))
        return torch_call("tensor", value)

    def flagged_loop(self, stmt: tree.For | tree.While, data_test: bool) -> Outcome:
        """A loop that samples leave at different times: each step is masked with who is still in it."""
        carried, self.carried = self.carried, []
        for s in carried:
            self.carried.append(s)
        if (
            isinstance(stmt, tree.For)
            and self.ctx.depends(stmt.iter)
            and isinstance(self.ctx.facts.kind(stmt.iter), Unknown)
        ):
            self.ctx.refuse("loop-on-data", stmt)
            return FALL
        undo = self.enter_loop(stmt)
        self.placeholders(stmt, {n for n, _ in region_facts.writes(stmt.body)})
        exits = self.data_exits(stmt)
        has_break = region_facts.has_exit(stmt.body, tree.Break)
        has_return = region_facts.has_exit(stmt.body, tree.Return)
        active = self.ctx.temporary("active", BOOL)
        self.ctx.shrinking.add((region_facts.key(active), True))
        outer = self.place_mask()
        start: tree.Expr | bool = True if outer is None else outer
        static_first = False
        static_part: tree.Expr | None = None
        data_part: tree.Expr | None = None
        if isinstance(stmt, tree.While) and data_test:
            static_part, data_part, static_first = self.split_while(stmt.test)
            if data_part is not None and not static_first:
                start = conjoin(start, self.expressions.test(data_part))
        returned = (
            self.ctx.temporary("returned", BOOL)
            if has_return and (has_break or data_test or stmt.orelse or isinstance(stmt, tree.For))
            else None
        )
        broken = self.ctx.temporary("broken", BOOL) if stmt.orelse and (data_test or has_return) and has_break else None
        self.emit(tree.Assign((active,), _mask_expr(start)))
        for flag in (returned, broken):
            if flag is not None:
                self.ctx.shrinking.add((region_facts.key(flag), False))
                self.emit(tree.Assign((flag,), _mask_expr(False)))
        result = self.ctx.temporary("result", BOTTOM) if has_return else None
        loop = _Loop(stmt, active, _ids(self.live.after[stmt]), _ids(self.live.head[stmt]), returned, broken)
        result_index = len(self.out)
        iterated = self.expressions.value(stmt.iter) if isinstance(stmt, tree.For) else None
        saved_out, self.out = self.out, []
        saved_place, saved_cache = self.place, dict(self.place_cache)
        if isinstance(stmt, tree.For):
            target = self.bind_target(stmt.target, stmt)
        self.loops.append(loop)
        self.place = (*self.place, active)
        saved_pending, self.pending = self.pending, []
        if static_first and data_part is not None:
            self.emit(tree.Assign((active,), tree.Binary("&", active, self.expressions.test(data_part))))
            if self.most_iterations(stmt) is None:
                self.emit(tree.If(tree.Unary("not", self.any_active(active)), (tree.Break(),)))
        self.segments(stmt.body, loop, result)
        if data_part is not None and not static_first:
            mask = self.expressions.test(data_part)
            self.emit(tree.Assign((active,), tree.Binary("&", active, mask)))
        self.flush_carried()
        self.loops.pop()
        self.pending = saved_pending
        body, self.out, self.place, self.place_cache = tuple(self.out), saved_out, saved_place, saved_cache
        if result is not None:
            self.out.insert(result_index, tree.Assign((result,), self.placeholder(loop.result_kind)))
            self.ctx.version_kinds[region_facts.key(result)] = taint(loop.result_kind)
        if isinstance(stmt, tree.For):
            assert iterated is not None
            self.emit(replace(stmt, target=target, iter=iterated, body=body, orelse=()))
        else:
            self.emit_while(stmt, active, body, static_part, data_part, static_first)
        undo()
        for name in _in_order(stmt.body):
            if name in self.names and name in _ids(self.live.after[stmt]):
                key = region_facts.key(self.names[name])
                self.ctx.version_kinds[key] = taint(self.ctx.version_kinds.get(key, BOTTOM))
        self.uniform_after(stmt)
        outcome: Outcome = FALL
        if stmt.orelse:
            outcome = self.loop_else(stmt, loop, active, has_break)
        if has_return and result is not None:
            first = next(s for s in tree.walk(stmt.body) if isinstance(s, tree.Return))
            leaf = Value("return", result, taint(loop.result_kind), first)
            if returned is not None:
                outcome = branch(returned, leaf, outcome)
            else:
                outcome = branch(active, outcome, leaf)
        del exits
        return outcome

    def uniform_after(self, stmt: tree.For | tree.While) -> None:
        """A counter that is alike for all samples in the loop is not alike for those that left it early."""
        first = stmt.body[0]
        for name in _in_order((stmt,)):
            if name not in _ids(self.live.after[stmt]) or name not in self.names:
                continue
            inside = self.ctx.facts.env_before.get(first, {}).get(name, BOTTOM)
            written = {n for n, _ in region_facts.writes(stmt.body)} | {
                n.id for n in (region_facts.target_names(stmt.target) if isinstance(stmt, tree.For) else ())
            }
            if name in written and isinstance(inside, Static) and inside.what in ("bool", "int", "float", ""):
                self.ctx.refuse(
                    "loop-on-data", stmt, f"`{name}` counts the steps and is read after the loop: carry it as a tensor"
                )

    def loop_else(self, stmt: tree.For | tree.While, loop: _Loop, active: tree.Name, has_break: bool) -> Outcome:
        """The else of a loop runs for the samples that did not break."""
        if not has_break:
            return self.block(stmt.orelse)
        flag: tree.Expr | bool = negate(loop.broken) if loop.broken is not None else active
        assert not isinstance(flag, bool)
        before = dict(self.names)
        outcome, after = self.region(stmt.orelse, flag)
        self.names = before
        seen = self.observed(outcome, stmt.orelse)
        self.merge_names(stmt.orelse, flag, after, before, seen, _ids(self.live.after[stmt]), stmt, stmt.orelse)
        return branch(flag, outcome, FALL)

    def split_while(self, test: tree.Expr) -> tuple[tree.Expr | None, tree.Expr | None, bool]:
        """The static part of a loop's test, its data-dependent part, and whether the static one stands first."""
        if isinstance(test, tree.BoolOp) and test.op == "and":
            left, right = self.ctx.depends(test.left), self.ctx.depends(test.right)
            if left and not right:
                return test.right, test.left, False
            if right and not left:
                return test.left, test.right, True
        return None, test, False

    def most_iterations(self, stmt: tree.Stmt) -> int | None:
        """The bound that the mark on the loop's line gives, or else the setting; None where it runs as long as it takes."""
        words = self.ctx.callee.module.pragmas.get(stmt.at[0], ()) if stmt.at is not None else ()
        for word in words:
            name, _, number = word.partition("=")
            if name.strip() == "max-iterations":
                return int(number)
        return self.ctx.options.max_iterations

    def any_active(self, mask: tree.Expr) -> tree.Expr:
        self.ctx.uses_helper = True
        return tree.Call(tree.HelperName("any_active"), (tree.Argument(mask),))

    def emit_while(
        self,
        stmt: tree.While,
        active: tree.Name,
        body: tree.Block,
        static_part: tree.Expr | None,
        data_part: tree.Expr | None,
        static_first: bool,
    ) -> None:
        bound = self.most_iterations(stmt)
        if bound is not None and not static_first:
            inside = body
            if static_part is not None:
                test = self.expressions.value(static_part, False)
                inside = (tree.If(tree.Unary("not", test), (tree.Break(),)), *body)
            counter = tree.Call(tree.Name("range"), (tree.Argument(tree.Constant(bound)),))
            self.emit(tree.For(tree.Name("_"), counter, inside, at=stmt.at, carries=(stmt.origin,)))
            return
        if static_first:
            assert static_part is not None
            self.emit(replace(stmt, test=self.expressions.value(static_part, False), body=body, orelse=()))
            return
        test = self.any_active(active)
        if static_part is not None:
            test = tree.BoolOp("and", self.expressions.value(static_part, False), test)
        elif data_part is None and not _forever(stmt):
            test = tree.BoolOp("and", self.expressions.value(stmt.test, False), test)
        self.emit(replace(stmt, test=test, body=body, orelse=()))

    def data_written(self, block: tree.Block) -> set[str]:
        """The variables that only some samples may bind in the block."""
        found: set[str] = set()
        for k, s in enumerate(block):
            if isinstance(s, tree.If | tree.While) and self.ctx.depends(s.test):
                found |= {n for n, _ in region_facts.writes(s)}
                if _may_leave(s):
                    found |= {n for later in block[k + 1 :] for n, _ in region_facts.writes(later)}
            else:
                for b in region_facts.blocks(s):
                    found |= self.data_written(b)
        return found

    def placeholders(self, stmt: tree.For | tree.While, written: set[str]) -> None:
        """A value born in the loop's body, for some samples, needs something to be merged with in the first step."""
        wanted = (_ids(self.live.after[stmt]) | _ids(self.live.head[stmt])) & written
        for name in _in_order(stmt.body):
            if name in self.names or name not in wanted or name not in self.pins:
                continue
            kind = self.ctx.facts.variables.get(self.ctx.callee, {}).get(name, BOTTOM)
            target = self.pins[name]
            self.emit(tree.Assign((target,), self.placeholder(kind, name)))
            self.names[name] = target
            self.ctx.version_kinds[region_facts.key(target)] = taint(kind)

    def placeholder(self, kind: Kind, root: numbers.Root | None = None) -> tree.Expr:
        """A value that is merged over before anybody reads it: the weakest that keeps the other side's dtype."""
        from if2where.kinds.lattice import Mapping, Sequence

        if isinstance(kind, Sequence) and kind.items is not None:
            items = tuple(self.placeholder(k, root) for k in kind.items)
            return tree.Tuple(items) if kind.form == "tuple" else tree.List(items)
        if isinstance(kind, Mapping):
            return tree.Dict(
                tuple(tree.Constant(k) for k in kind.keys), tuple(self.placeholder(k, root) for k in kind.values)
            )
        if is_bool(kind):
            return torch_call("tensor", tree.Constant(False))
        if isinstance(kind, Static | Number) and kind.what == "float":
            return torch_call("tensor", tree.Constant(0.0), dtype=self.expressions.float_dtype(root))
        if isinstance(kind, Static | Number):
            return torch_call("tensor", tree.Constant(0))
        return tree.Constant(0)

    def segments(self, stmts: tree.Block, loop: _Loop, result: tree.Name | None) -> None:
        """The loop's body in runs of statements, each under the mask of the samples that come to it."""
        assert loop.active is not None
        mask: tree.Expr = loop.active
        rest = stmts
        while rest:
            cut = next((k for k, s in enumerate(rest) if _may_leave(s)), len(rest) - 1)
            run, rest = rest[: cut + 1], rest[cut + 1 :]
            outcome = self.masked_block(run, mask, FALL)
            kinds = leaves(outcome)
            if kinds <= {"fall"}:
                continue
            self.leave_loop(outcome, loop, mask, result)
            if "fall" not in kinds:
                return
            skipped = condition(outcome, lambda leaf: leaf.what == "continue")
            if skipped is not False:
                going = conjoin(mask, negate(skipped))
                if mask is loop.active or kinds & {"break", "return"}:
                    going = conjoin(loop.active, negate(skipped))
                assert not isinstance(going, bool)
                mask = self.atom_mask(going, "going")
            elif mask is not loop.active and kinds & {"break", "return"}:
                mask = self.atom_mask(tree.Binary("&", mask, loop.active), "going")

    def leave_loop(self, outcome: Outcome, loop: _Loop, mask: tree.Expr, result: tree.Name | None) -> None:
        """Takes the samples that break or return out of the loop's mask, and keeps what they return."""
        assert loop.active is not None
        gone = condition(outcome, lambda leaf: leaf.what in ("break", "return"))
        if gone is False:
            return
        back = condition(outcome, lambda leaf: leaf.what == "return")
        merged = self._merge_value(outcome)
        if merged is not None and result is not None and back is not False:
            where = mask if back is True else tree.Binary("&", mask, back)
            new_kind = join(loop.result_kind, merged.kind)
            value = self.expressions.merged(
                where, merged.expr, merged.kind, result, self._result_sides(merged.kind), merged.stmt, None
            )
            loop.result_kind = new_kind
            self.emit(tree.Assign((result,), value))
            if loop.returned is not None:
                self.emit(tree.Assign((loop.returned,), tree.Binary("|", loop.returned, where)))
        if loop.broken is not None:
            out = condition(outcome, lambda leaf: leaf.what == "break")
            if out is not False:
                where = mask if out is True else tree.Binary("&", mask, out)
                self.emit(tree.Assign((loop.broken,), tree.Binary("|", loop.broken, where)))
        if gone is True:
            stay: tree.Expr | bool = False if mask is loop.active else tree.Unary("~", mask)
        else:
            stay = negate(gone if mask is loop.active else conjoin(mask, gone))
        left = conjoin(loop.active, stay)
        self.emit(tree.Assign((loop.active,), _mask_expr(left)))

    def _result_sides(self, kind: Kind) -> Kind:
        """What the placeholder of a loop's result is, seen as the side of a merge."""
        return taint(kind)

    # --- simple statements ------------------------------------------------------------------

    def place_mask(self) -> tree.Expr | None:
        """The samples that come to this place, as one mask; None where all do."""
        mask: tree.Expr | bool = True
        for p in self.place:
            within = isinstance(p, tree.Name) and (region_facts.key(p), True) in self.ctx.shrinking
            # Who is still in a loop has come to it: the masks around the loop say nothing more.
            mask = p if within else conjoin(mask, p)
        return None if isinstance(mask, bool) else mask

    def check_alias(self, target: tree.Expr, node: tree.Stmt) -> None:
        """An update in place of what is another object in some samples cannot be made."""
        root = target
        while isinstance(root, tree.Subscript | tree.Attribute):
            root = root.value
        if isinstance(root, tree.Name) and isinstance(self.ctx.facts.kind(root), Tensor):
            version = self.names.get(root.id, root)
            if self.privacy.is_mixed(version) or self.privacy.is_mixed_elsewhere(version):
                self.ctx.refuse(
                    "alias-undecided", node, f"`{root.id}` shares memory with another tensor in some samples only"
                )

    def unseen(self, name: tree.Name, stmt: tree.Stmt) -> bool:
        """Whether a variable that may share memory is the only one through which its update would be seen: it can be rebound."""
        version = self.names.get(name.id, name)
        after = self.live.after.get(stmt)
        if after is None or name.id in self.pins or name.id in self.captured:
            return False
        if not (self.privacy.is_mixed(version) or self.privacy.is_mixed_elsewhere(version)):
            return False
        others = self.privacy.relatives(name.id)
        return others is not None and not others & _ids(after)

    def guarded_store(self, target: tree.Expr) -> bool:
        """Whether a store there must be masked: some samples do not come here, and could see it."""
        if self.masked:
            return True
        if not self.place:
            return False
        root = target
        while isinstance(root, tree.Subscript | tree.Attribute):
            root = root.value
        if not isinstance(root, tree.Name) or not self.privacy.is_private(self.names.get(root.id, root)):
            return True
        current = self.names.get(root.id)
        kept = {k for p in self.pending for k in _returned(p)}
        kept |= {k for name in kept for k in self.kept_from.get(name, ())}
        return current is not None and region_facts.key(current) in kept

    def place_name(self) -> tree.Expr | None:
        """The mask of the place under a name; one name for all stores of the same place."""
        mask = self.place_mask()
        if mask is None:
            return None
        if any((region_facts.key(n), True) in self.ctx.shrinking for n in tree.walk(mask) if isinstance(n, tree.Name)):
            return self.atom_mask(mask, "mask")
        spelled = tuple(
            (isinstance(p, tree.Unary), *(region_facts.key(n) for n in tree.walk(p) if isinstance(n, tree.Name)))
            for p in self.place
        )
        if spelled not in self.place_cache:
            self.place_cache[spelled] = self.atom_mask(mask, "mask")
        return self.place_cache[spelled]

    def check_effects(self, node: tree.Expr) -> None:
        if self.place:
            self.effects.check(self.ctx, node, self.loops[-1].stmt if self.loops else None)

    def assign(self, stmt: tree.Assign) -> None:
        self.check_effects(stmt.value)
        for t in stmt.targets:
            if isinstance(t, tree.Subscript):
                self.check_alias(t, stmt)
        masked_store = any(not _plain_target(t) and self.guarded_store(t) for t in stmt.targets)
        if masked_store or any(stores.is_mask_store(t, self.ctx) for t in stmt.targets):
            stores.store(self, stmt)
            return
        if self.split_tuple(stmt):
            return
        value = stores.buffer(self, stmt) or self.expressions.value(stmt.value)
        value = self.settled_number(stmt, value)
        targets = tuple(self.bind_target(t, stmt) for t in stmt.targets)
        self.note_kinds(stmt.targets, value)
        for old, new in zip(stmt.targets, targets, strict=True):
            self.note_memory(old, new, value, stmt.value)
        made = replace(stmt, targets=targets, value=value)
        self.emit(made)
        if self.place and any(not _plain_target(t) for t in targets):
            self.ctx.store_places[self.out[-1]] = self.place

    def note_memory(self, old: tree.Expr, new: tree.Expr, value: tree.Expr | None, original: tree.Expr | None) -> None:
        """Tells the alias analysis what the versions just bound hold."""
        if isinstance(new, tree.Name):
            self.privacy.assigned(new, value, original, self.names)
        elif isinstance(new, tree.Tuple | tree.List):
            apart = isinstance(original, tree.Tuple) and len(original.items) == len(new.items)
            for k, item in enumerate(new.items):
                part = original.items[k] if apart and isinstance(original, tree.Tuple) else None
                got = value.items[k] if apart and isinstance(value, tree.Tuple) else None
                self.note_memory(item, item, got, part)

    def split_tuple(self, stmt: tree.Assign) -> bool:
        """Under a mask ``a, b = x, y`` is two assignments, so that each may go where its merge is."""
        target, value = stmt.targets[0], stmt.value
        if (
            not self.masked
            or len(stmt.targets) != 1
            or not isinstance(target, tree.Tuple)
            or not isinstance(value, tree.Tuple)
        ):
            return False
        if len(target.items) != len(value.items) or not all(
            isinstance(t, tree.Name) and t.id not in self.pins for t in target.items
        ):
            return False
        if any(isinstance(v, tree.Starred) for v in value.items):
            return False
        values = [self.expressions.value(v) for v in value.items]
        for k, (t, v, old) in enumerate(zip(target.items, values, value.items, strict=True)):
            assert isinstance(t, tree.Name)
            kind = self.expressions.kind_of(v, old)
            carries = (stmt.origin,) if k == 0 else ()
            before = dict(self.names)
            bound = self.bind(t.id, kind)
            self.privacy.assigned(bound, v, old, before)
            self.emit(tree.Assign((bound,), v, at=stmt.at, carries=carries))
        return True

    def settled_number(self, stmt: tree.Assign, value: tree.Expr) -> tree.Expr:
        """A number written to a variable that on other paths is a bool tensor or a merged number is a tensor here too."""
        target = stmt.targets[0]
        if len(stmt.targets) != 1 or not isinstance(target, tree.Name) or target.id not in self.pins:
            return value
        kind = self.ctx.facts.kind(stmt.value)
        joined = self.ctx.version_kinds.get(region_facts.key(self.pins[target.id]), BOTTOM)
        wanted = isinstance(joined, Number) or (isinstance(joined, Tensor) and joined.dtype == "bool")
        if wanted and depends(joined) and is_number(kind):
            assert isinstance(kind, Static)
            what = joined.what if isinstance(joined, Number) else "bool"
            made = self.number_tensor(value, replace(kind, what=what), target.id)
            self.ctx.made_kinds[made] = joined
            return made
        return value

    def note_kinds(self, targets: tuple[tree.Expr, ...], value: tree.Expr) -> None:
        """A merge is held in a tensor from here on, though in the original it was a number."""
        kind = self.ctx.made_kinds.get(value)
        if kind is not None and len(targets) == 1 and isinstance(targets[0], tree.Name):
            key = region_facts.key(self.names[targets[0].id])
            if isinstance(kind, Number | Tensor) and not isinstance(self.ctx.version_kinds.get(key), Tensor):
                self.ctx.version_kinds[key] = kind

    def annotated(self, stmt: tree.AnnAssign) -> None:
        if stmt.value is None:
            self.emit(stmt)
            return
        if not isinstance(stmt.target, tree.Name) or self.masked:
            self.assign(tree.Assign((stmt.target,), stmt.value, origin=None, at=stmt.at, carries=(stmt.origin,)))
            return
        value = self.expressions.value(stmt.value)
        target = self.bind_target(stmt.target, stmt)
        self.emit(replace(stmt, target=target, value=value))

    def augmented(self, stmt: tree.AugAssign) -> None:
        self.check_effects(stmt.value)
        if isinstance(stmt.target, tree.Subscript):
            self.check_alias(stmt.target, stmt)
        if not isinstance(stmt.target, tree.Name):
            stores.augmented_store(self, stmt)
            return
        name = stmt.target
        old, new = self.ctx.facts.kind(name), self.ctx.facts.kind(stmt.value)
        old_version = self.names.get(name.id, name)
        number = not isinstance(old, Tensor)
        rebind = number and (depends(old) or depends(new) or bool(self.place))
        if isinstance(old, Tensor):
            unseen = self.unseen(name, stmt)
            if not unseen:
                self.check_alias(name, stmt)
            rebind = bool(self.place) or (depends(new) and not old.batched) or old.optional or unseen
            if rebind and not unseen and not old.optional and not self.privacy.is_private(old_version):
                if self.place or not old.batched:
                    stores.in_place_name(self, stmt)
                    return
        if not rebind:
            value = self.expressions.value(stmt.value)
            pinned = name.id in self.pins or name.id in self.captured
            if pinned or not number:
                # The variable itself is written: no new version may come between.
                self.emit(replace(stmt, target=replace(name, version=old_version.version), value=value))
                return
            target = self.bind(name.id, self.augmented_kind(old, new, stmt.op))
            if target.version == old_version.version:
                self.emit(replace(stmt, target=target, value=value))
            else:
                self.names[name.id] = old_version
                self.ctx.version_kinds[region_facts.key(old_version)] = self.augmented_kind(old, new, stmt.op)
                self.emit(replace(stmt, target=replace(name, version=old_version.version), value=value))
            return
        whole = tree.Binary(stmt.op, tree.Name(name.id, at=name.at), stmt.value, at=stmt.at)
        self.ctx.facts.kinds[whole.left] = old
        self.ctx.facts.kinds[whole] = self.augmented_kind(old, new, stmt.op)
        value = self.expressions.value(whole)
        if isinstance(old, Tensor) and not old.optional:
            value = self.in_dtype_of(value, old, new, old_version)
        target = self.bind(name.id, self.augmented_kind(old, new, stmt.op))
        self.emit(tree.Assign((target,), value, at=stmt.at, carries=(stmt.origin,)))

    def augmented_kind(self, old: Kind, new: Kind, op: str) -> Kind:
        from if2where.kinds import calls

        kind = calls.binary(op, old, new)
        if isinstance(old, Tensor) and isinstance(kind, Tensor) and not old.optional:
            kind = replace(kind, dtype=old.dtype)
        return kind

    def in_dtype_of(self, value: tree.Expr, old: Tensor, new: Kind, version: tree.Expr) -> tree.Expr:
        """``x += y`` keeps x's dtype; ``x + y`` promotes."""
        if not isinstance(new, Tensor) or (new.dtype is not None and promote(old.dtype, new.dtype) == old.dtype):
            return value
        if old.dtype is None and new.dtype is None:
            return value
        return tree.Call(tree.Attribute(value, "to"), (tree.Argument(tree.Attribute(version, "dtype")),))

    def expression(self, stmt: tree.ExprStmt) -> None:
        if isinstance(stmt.value, tree.Constant):
            if self.masked:
                self.carried.append(stmt)
            else:
                self.emit(stmt)
            return
        if stores.in_place_call(self, stmt):
            return
        self.check_effects(stmt.value)
        self.emit(self.rebuild(stmt))


#: Functions all of whose arguments are sizes, and those whose arguments behind the tensor are sizes or dimensions.
_SIZED = frozenset(
    ["zeros", "ones", "empty", "eye", "arange", "linspace", "new_zeros", "new_ones", "new_empty", "rand", "randn"]
)
_DIMENSIONED = frozenset(
    [
        "sum",
        "mean",
        "prod",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "any",
        "all",
        "cumsum",
        "cumprod",
        "softmax",
        "sort",
        "unsqueeze",
        "squeeze",
        "view",
        "reshape",
        "expand",
        "repeat",
        "permute",
        "transpose",
        "select",
        "narrow",
        "roll",
        "flip",
        "unbind",
        "chunk",
        "split",
        "flatten",
        "std",
        "var",
        "norm",
    ]
)


def _own_nodes(block: tree.Block) -> Iterable[tree.Node]:
    """The nodes of a function's body, those of functions nested in it left out."""
    stack: list[tree.Node] = list(block)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, tree.FunctionDef | tree.Lambda):
            stack.extend(tree.children(node))


def _returned(outcome: Outcome) -> frozenset[region_facts.Key]:
    """The variables that an exit may have returned, or something that shares their memory."""
    if isinstance(outcome, Branch):
        return _returned(outcome.then) | _returned(outcome.orelse)
    return region_facts.reads(outcome.expr) if isinstance(outcome, Value) else frozenset()


def _ids(keys: region_facts.Keys) -> frozenset[str]:
    return frozenset(n for n, _ in keys)


def _in_order(block: tree.Block) -> list[str]:
    """The variables that the block may bind, in the order of their first binding."""
    names: dict[str, None] = {}
    for node in tree.walk(block):
        if isinstance(node, tree.Stmt | tree.Walrus):
            for name, _ in sorted(_direct_writes(node)):
                names.setdefault(name)
    written = {n for n, _ in region_facts.writes(block)}
    return [n for n in names if n in written]


def _direct_writes(node: tree.Node) -> region_facts.Keys:
    if isinstance(node, tree.If | tree.While | tree.With | tree.OpaqueStmt):
        return frozenset(k for c in tree.children(node) if not isinstance(c, tree.Stmt) for k in region_facts.writes(c))
    if isinstance(node, tree.For):
        return frozenset(map(region_facts.key, region_facts.target_names(node.target)))
    return region_facts.writes(node)


def _mask_expr(mask: tree.Expr | bool) -> tree.Expr:
    return torch_call("tensor", tree.Constant(mask)) if isinstance(mask, bool) else mask


def _may_leave(stmt: tree.Stmt) -> bool:
    return region_facts.has_exit((stmt,), tree.Return, tree.Break, tree.Continue)


def _leaves_some(stmt: tree.Stmt, ctx: Context) -> bool:
    """Whether some samples may have left after the statement, so that later exits are data-dependent."""
    if not _may_leave(stmt):
        return False
    if isinstance(stmt, tree.If):
        return ctx.depends(stmt.test) or any(_leaves_some(s, ctx) for b in (stmt.body, stmt.orelse) for s in b)
    return any(_leaves_some(s, ctx) for b in region_facts.blocks(stmt) for s in b)


def _forever(stmt: tree.While) -> bool:
    return isinstance(stmt.test, tree.Constant) and bool(stmt.test.value)


def _plain_target(target: tree.Expr) -> bool:
    if isinstance(target, tree.Tuple | tree.List):
        return all(map(_plain_target, target.items))
    return isinstance(target, tree.Name | tree.Starred)


__all__ = ["Bottom", "ControlPass", "_EnvValue", "hints", "is_floating"]
