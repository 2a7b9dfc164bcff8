"""Guards: operands kept harmless in the samples that do not use an operation's result.

Holds before: branches are merges (Select), exits are masks. Holds after: an operation that is
partial or faulting (see ops.table) is fed a safe value wherever its result is not demanded, so
that neither a NaN gradient nor an exception comes from running it there.

Demand flows backward from what the function returns and stores: through a merge, each side is
demanded where the mask picks it. A test demands the value of what it reads, but no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from if2where.kinds import returns
from if2where.kinds.lattice import Bottom, Function, Number, Static, Tensor, Unknown, depends
from if2where.ops import table
from if2where.passes import finite, grad_mode, ranges
from if2where.passes.context import Context, method_call
from if2where.passes.demand import ALL, NEVER, Demand, Literal, begun, both, either, holds, named, without
from if2where.passes.ranges import Ranges
from if2where.passes.twins import redirected
from if2where.program import Callee
from if2where.region import facts as region_facts
from if2where.region import tree

Key = region_facts.Key
#: A test that grows larger than this when it is evaluated a second time is not.
MAX_SECOND_EVALUATION = 60


@dataclass(frozen=True)
class _Need:
    """In which samples a value is used at all, and in which it carries gradient."""

    value: Demand
    gradient: Demand

    def where(self, condition: Demand) -> _Need:
        return _Need(both(self.value, condition), both(self.gradient, condition))

    def join(self, other: _Need) -> _Need:
        return _Need(either(self.value, other.value), either(self.gradient, other.gradient))

    @property
    def tested(self) -> _Need:
        return _Need(self.value, NEVER)

    @property
    def faulting(self) -> _Need:
        """For an operation that raises: it must be harmless wherever its value is not used, gradient or not."""
        return _Need(self.value, self.value)

    @property
    def differentiable(self) -> _Need:
        """For one that raises and has harmful derivatives: where its value is used everywhere, those decide."""
        return self if self.value == ALL and self.gradient else self.faulting


@dataclass(frozen=True)
class _Frame:
    """A block around the one at hand, as it stood before the statement that the latter belongs to."""

    out: list[tree.Stmt]
    stmts: tree.Block
    position: int
    later: dict[Key, int]
    defined: set[Key]


EVERYWHERE = _Need(ALL, ALL)
NOWHERE = _Need(NEVER, NEVER)


def guard(
    ctx: Context, root: tree.FunctionDef | tree.Lambda, mask: tree.Name | None = None
) -> tree.FunctionDef | tree.Lambda:
    """The function with its speculated operations guarded; ``mask`` says in which samples it is called at all."""
    pass_ = _Guards(ctx)
    if mask is not None:
        called = holds(mask)
        pass_.everywhere = _Need(called, called)
        pass_.defined.add(region_facts.key(mask))
    if isinstance(root, tree.Lambda):
        body = pass_.rewrite(root.body, EVERYWHERE)
        return root if body is root.body else replace(root, body=body)
    pass_.quiet = any(map(grad_mode.turns_off, root.decorators))
    pass_.prepare(root.body)
    pass_.backward(root.body)
    pass_.defined |= {(p.name, 0) for p in root.params}
    body_ = pass_.forward(root.body)
    return replace(root, body=body_)


@dataclass
class _Guards:
    ctx: Context
    #: The need of what the function returns and stores.
    everywhere: _Need = EVERYWHERE
    needs: dict[Key, _Need] = field(default_factory=dict)
    count: dict[Key, int] = field(default_factory=dict)
    #: The variables that are set further down than the place at hand of the backward pass.
    written: set[Key] = field(default_factory=set)
    values: dict[Key, tree.Expr] = field(default_factory=dict)
    defined: set[Key] = field(default_factory=set)
    #: How many assignments a variable gets along one path, and how many of them have been passed: after the last,
    #: its value stays.
    most: dict[Key, int] = field(default_factory=dict)
    passed: dict[Key, int] = field(default_factory=dict)
    #: Whether the place at hand runs without autograd: there, only what raises needs a guard.
    quiet: bool = False
    #: Indices that all samples have used before the place at hand, each with what it indexes.
    indexed: set[tuple[Key, Key]] = field(default_factory=set)
    #: Variables whose memory some statement changes.
    overwritten: frozenset[Key] = frozenset()
    live: region_facts.Liveness | None = None
    #: Masks evaluated earlier than where they stood: the later assignment is dropped.
    moved: set[Key] = field(default_factory=set)
    out: list[tree.Stmt] = field(default_factory=list)
    later: dict[Key, int] = field(default_factory=dict)
    frames: list[_Frame] = field(default_factory=list)
    cache: dict[frozenset[frozenset[Literal]], tree.Name] = field(default_factory=dict)
    #: What an operation around the expression at hand minds: large values, or those that are not finite.
    minds_large: bool = False
    minds_infinite: bool = False
    #: The samples that each guard made so far keeps, and the new values of variables that are written once.
    guarded_by: dict[tree.Select, Demand] = field(default_factory=dict)
    rewritten: dict[Key, tree.Expr] = field(default_factory=dict)
    #: Variables that were made finite, by variable and mask.
    bounded: dict[tuple[Key, Key, bool], tree.Name] = field(default_factory=dict)

    # --- backward: who needs what -----------------------------------------------------------

    def prepare(self, body: tree.Block) -> None:
        self.live = region_facts.liveness(body)
        for node in tree.walk(body):
            if isinstance(node, tree.Assign):
                for t in node.targets:
                    for n in region_facts.target_names(t):
                        self.count[region_facts.key(n)] = self.count.get(region_facts.key(n), 0) + 1
                if len(node.targets) == 1 and isinstance(node.targets[0], tree.Name):
                    self.values[region_facts.key(node.targets[0])] = node.value
            elif isinstance(node, tree.AugAssign | tree.For | tree.Walrus | tree.AnnAssign):
                for n in region_facts.target_names(node.target):
                    self.count[region_facts.key(n)] = self.count.get(region_facts.key(n), 0) + 2
        self.most = _assignments(body)
        self.overwritten = frozenset(k for stmt in body for k in self.changed_in_place(stmt))
        for key in region_facts.captured(body):
            self.needs[key] = self.everywhere

    @property
    def shrinking(self) -> frozenset[Literal]:
        return frozenset(Literal(k, held) for k, held in self.ctx.shrinking)

    def backward(self, block: tree.Block) -> None:
        for stmt in reversed(block):
            self.stmt_needs(stmt)
            if not region_facts.blocks(stmt):
                self.before_masks(stmt)
            self.written |= region_facts.writes(stmt)

    def need_of(self, target: tree.Expr) -> _Need:
        if isinstance(target, tree.Name):
            return self.needs.get(region_facts.key(target), NOWHERE)
        if isinstance(target, tree.Tuple | tree.List):
            result = NOWHERE
            for item in target.items:
                result = result.join(self.need_of(item))
            return result
        if isinstance(target, tree.Starred):
            return self.need_of(target.value)
        return self.everywhere

    def assign_need(self, stmt: tree.Assign) -> _Need:
        if stmt in self.ctx.store_places:
            return self.everywhere.where(self.place_demand(self.ctx.store_places[stmt]))
        need = NOWHERE
        for t in stmt.targets:
            need = need.join(self.need_of(t))
        key = region_facts.key(stmt.targets[0]) if isinstance(stmt.targets[0], tree.Name) else None
        if key in self.ctx.places and key is not None:
            if key not in self.needs:
                # Nothing hangs on it.
                return NOWHERE
            # A test is a number for later tests and masks: its own demand is where the original evaluates it.
            return _Need(self.place_demand(self.ctx.places[key]), NEVER)
        return need

    def place_demand(self, place: tuple[tree.Expr, ...]) -> Demand:
        demand: Demand = ALL
        for mask in place:
            demand = both(demand, self.holds(mask, True))
        return demand

    def stmt_needs(self, stmt: tree.Stmt) -> None:
        if isinstance(stmt, tree.Assign):
            for t in stmt.targets:
                for e in region_facts.target_reads(t):
                    self.visit(e, self.everywhere)
            if (
                len(stmt.targets) == 1
                and isinstance(stmt.targets[0], tree.Tuple)
                and isinstance(stmt.value, tree.Tuple)
            ):
                if len(stmt.targets[0].items) == len(stmt.value.items):
                    for t, v in zip(stmt.targets[0].items, stmt.value.items, strict=True):
                        self.visit(v, self.need_of(t))
                    return
            self.visit(stmt.value, self.assign_need(stmt))
        elif isinstance(stmt, tree.AugAssign):
            need = self.need_of(stmt.target)
            for e in region_facts.target_reads(stmt.target):
                self.visit(e, self.everywhere)
            self.visit(stmt.value, need)
        elif isinstance(stmt, tree.If):
            self.branch_needs(stmt)
            self.visit(stmt.test, self.everywhere.tested)
        elif isinstance(stmt, tree.For | tree.While):
            self.loop_needs(stmt)
        elif isinstance(stmt, tree.With):
            self.backward(stmt.body)
            for item in stmt.items:
                self.visit(item.context, self.everywhere)
        elif isinstance(stmt, tree.FunctionDef):
            for key in region_facts.reads(stmt):
                self.add(key, self.everywhere)
        else:
            for child in tree.children(stmt):
                if isinstance(child, tree.Expr):
                    self.visit(child, self.everywhere)
            for block in region_facts.blocks(stmt):
                self.backward(block)

    def branch_needs(self, stmt: tree.If) -> None:
        after = dict(self.needs)
        self.backward(stmt.orelse)
        orelse, self.needs = self.needs, after
        self.backward(stmt.body)
        inside, outside = region_facts.writes(stmt.body), region_facts.writes(stmt.orelse)
        for key, need in orelse.items():
            if key not in self.needs or (key in outside and key not in inside):
                self.needs[key] = need
            elif key not in inside or key in outside:
                self.needs[key] = self.needs[key].join(need)

    def before_masks(self, stmt: tree.Stmt) -> None:
        """What is needed of older variables, in terms of masks older than those that the statement sets again.

        Who is in a loop at all is told by who enters it.
        """
        shrinking = {literal.atom for literal in self.shrinking}
        for key in region_facts.writes(stmt):
            if self.count.get(key, 0) <= 1:
                continue
            plain = isinstance(stmt, tree.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], tree.Name)
            value = stmt.value if plain and isinstance(stmt, tree.Assign) else None
            if key in shrinking and (value is None or key in region_facts.reads(value)):
                continue
            for held in (True, False):
                self.replace_literal(Literal(key, held), self.told_by(value, held))

    def told_by(self, value: tree.Expr | None, held: bool) -> Demand:
        """Where a mask that is set to a value holds, or does not, as far as that is known."""
        if value is None:
            return ALL
        if isinstance(value, tree.Call) and finite.called(value) == "tensor" and value.args:
            value = value.args[0].value
        if isinstance(value, tree.Constant):
            return ALL if bool(value.value) == held else NEVER
        return named(self.holds(value, held))

    def replace_literal(self, literal: Literal, told: Demand) -> None:
        for key, need in self.needs.items():
            if key not in self.written:
                self.needs[key] = _Need(begun(need.value, literal, told), begun(need.gradient, literal, told))

    def loop_needs(self, stmt: tree.For | tree.While) -> None:
        assert self.live is not None
        inside = frozenset(k for s in stmt.body for k in region_facts.writes(s))
        self.backward(stmt.orelse)
        for _ in range(2):
            self.backward(stmt.body)
            for key in self.live.head[stmt]:
                old = self.needs.get(key)
                if old is not None:
                    # The masks of one step say nothing of the step before.
                    value = without(old.value, inside, self.shrinking)
                    self.needs[key] = _Need(value, without(old.gradient, inside, self.shrinking))
        if isinstance(stmt, tree.For):
            need = self.need_of(stmt.target)
            value = without(need.value, inside, self.shrinking)
            self.visit(stmt.iter, _Need(value, without(need.gradient, inside, self.shrinking)))
        else:
            self.visit(stmt.test, self.everywhere.tested)

    def holds(self, mask: tree.Expr, held: bool) -> Demand:
        """ "The mask holds", in terms of the tests that it is made of."""
        return holds(self.resolved(mask), held)

    def resolved(self, mask: tree.Expr, depth: int = 8) -> tree.Expr:
        """The mask with names of combined masks replaced by what they combine."""
        if isinstance(mask, tree.Name):
            key = region_facts.key(mask)
            value = self.values.get(key)
            combined = isinstance(value, tree.Name) or (
                isinstance(value, tree.Binary | tree.Unary) and value.op in ("&", "|", "~") and value.origin is None
            )
            if (
                depth
                and combined
                and value is not None
                and self.count.get(key) == 1
                and key in self.ctx.fresh
                and self.only_masks(value)
            ):
                return self.resolved(value, depth - 1)
            return mask
        if isinstance(mask, tree.Binary | tree.Unary) and mask.origin is None and mask.op in ("&", "|", "~"):
            return tree.map_children(mask, lambda c: self.resolved(c, depth) if isinstance(c, tree.Expr) else c)
        return mask

    def only_masks(self, value: tree.Expr) -> bool:
        """Whether the value combines mask variables that are written once (a flag that changes says another thing later)."""
        if isinstance(value, tree.Name):
            key = region_facts.key(value)
            return self.count.get(key, 0) == 1 and key in self.ctx.fresh
        if isinstance(value, tree.Binary | tree.Unary) and value.origin is None and value.op in ("&", "|", "~"):
            return all(self.only_masks(c) for c in tree.children(value) if isinstance(c, tree.Expr))
        return False

    def add(self, key: Key, need: _Need) -> None:
        # A test without a name says nothing outside its own expression.
        need = _Need(named(need.value), named(need.gradient))
        old = self.needs.get(key)
        self.needs[key] = need if old is None else old.join(need)

    def visit(self, node: tree.Node, need: _Need) -> None:
        if isinstance(node, tree.Name):
            self.add(region_facts.key(node), need)
            return
        for child, inner in self.parts(node, need):
            self.visit(child, inner)

    def parts(self, node: tree.Node, need: _Need) -> Iterable[tuple[tree.Node, _Need]]:
        """The node's children, each with what is needed of it."""
        if isinstance(node, tree.Select):
            yield node.mask, need.tested
            yield node.chosen, need.where(self.holds(node.mask, True))
            yield node.other, need.where(self.holds(node.mask, False))
        elif isinstance(node, tree.Compare) or (isinstance(node, tree.Unary) and node.op in ("~", "not")):
            for child in tree.children(node):
                yield child, need.tested
        elif isinstance(node, tree.Binary) and node.op in ("&", "|") and node.origin is None:
            # Where the left side settles it, the right one is not asked for.
            yield node.left, need.tested
            yield node.right, need.where(self.holds(node.left, node.op == "&")).tested
        elif isinstance(node, tree.Lambda):
            yield node.body, self.everywhere
        else:
            for child in tree.children(node):
                yield child, need

    # --- forward: guard the operands --------------------------------------------------------

    def forward(self, block: tree.Block) -> tree.Block:
        saved_out, self.out = self.out, []
        saved_later = self.later
        self.later = {
            region_facts.key(s.targets[0]): k
            for k, s in enumerate(block)
            if isinstance(s, tree.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], tree.Name)
        }
        for k, stmt in enumerate(block):
            self.position = k
            self.block_stmts = block
            self.forward_stmt(stmt)
            self.position, self.block_stmts = k, block
        made, self.out = tuple(self.out), saved_out
        self.later = saved_later
        return made

    position: int = 0
    block_stmts: tree.Block = ()

    def forward_stmt(self, stmt: tree.Stmt) -> None:
        if isinstance(stmt, tree.Assign):
            self.forward_assign(stmt)
        elif isinstance(stmt, tree.AugAssign):
            value = self.rewrite(stmt.value, self.need_of(stmt.target))
            target = stmt.target if isinstance(stmt.target, tree.Name) else self._inside(stmt.target)
            self.out.append(
                stmt if value is stmt.value and target is stmt.target else replace(stmt, value=value, target=target)
            )
        elif isinstance(stmt, tree.If | tree.For | tree.While | tree.With):
            self.forward_compound(stmt)
        elif isinstance(stmt, tree.FunctionDef):
            inner = guard(self.ctx, stmt)
            assert isinstance(inner, tree.FunctionDef)
            self.out.append(inner)
            self.defined.add((stmt.name, 0))
        else:
            self.out.append(
                tree.map_children(stmt, lambda c: self.rewrite(c, self.everywhere) if isinstance(c, tree.Expr) else c)
            )
        self.defined |= region_facts.writes(stmt) if not region_facts.blocks(stmt) else set()

    def _inside(self, target: tree.Expr) -> tree.Expr:
        return tree.map_children(target, lambda c: self.rewrite(c, self.everywhere) if isinstance(c, tree.Expr) else c)

    def forward_assign(self, stmt: tree.Assign) -> None:
        if isinstance(stmt.targets[0], tree.Name) and region_facts.key(stmt.targets[0]) in self.moved:
            if stmt.carries and self.out:
                last = self.out[-1]
                self.out[-1] = replace(last, carries=(*last.carries, *stmt.carries))
            return
        need = self.assign_need(stmt)
        first = stmt.targets[0]
        if (
            isinstance(first, tree.Tuple)
            and isinstance(stmt.value, tree.Tuple)
            and len(first.items) == len(stmt.value.items)
        ):
            items = tuple(self.rewrite(v, self.need_of(t)) for t, v in zip(first.items, stmt.value.items, strict=True))
            same = all(a is b for a, b in zip(items, stmt.value.items, strict=True))
            value: tree.Expr = stmt.value if same else replace(stmt.value, items=items)
        else:
            value = self.rewrite(stmt.value, need)
        targets = tuple(t if isinstance(t, tree.Name | tree.Tuple) else self._inside(t) for t in stmt.targets)
        changed = value is not stmt.value or any(a is not b for a, b in zip(targets, stmt.targets, strict=True))
        self.out.append(replace(stmt, value=value, targets=targets) if changed else stmt)
        if isinstance(first, tree.Name) and len(stmt.targets) == 1:
            self.rewritten[region_facts.key(first)] = value
        for t in stmt.targets:
            for n in region_facts.target_names(t):
                key = region_facts.key(n)
                self.passed[key] = self.passed.get(key, 0) + 1
                self.forget(key)

    def forget(self, key: Key) -> None:
        """A mask variable that is written again makes the masks that were built of it stale."""
        if self.count.get(key, 0) > 1:
            self.cache = {k: v for k, v in self.cache.items() if not any(x.atom == key for c in k for x in c)}

    def forward_compound(self, stmt: tree.If | tree.For | tree.While | tree.With) -> None:
        indexed = set(self.indexed)
        self.forward_blocks(stmt)
        if not isinstance(stmt, tree.With):
            # Its blocks may not run.
            self.indexed = indexed

    def forward_blocks(self, stmt: tree.If | tree.For | tree.While | tree.With) -> None:
        if isinstance(stmt, tree.If):
            test = self.rewrite(stmt.test, self.everywhere.tested)
            before, cache, bounded = set(self.defined), dict(self.cache), dict(self.bounded)
            indexed, passed = set(self.indexed), dict(self.passed)
            body = self.inner(stmt.body, before)
            self.bounded, self.indexed = dict(bounded), indexed
            after_body, self.defined = self.defined, set(before)
            passed, self.passed = self.passed, passed
            self.cache = dict(cache)
            orelse = self.inner(stmt.orelse, before)
            self.passed = {k: max(passed.get(k, 0), self.passed.get(k, 0)) for k in {*passed, *self.passed}}
            self.defined = before | (after_body & self.defined) | self._settled(stmt)
            self.cache, self.bounded = cache, bounded
            self.out.append(replace(stmt, test=test, body=body, orelse=orelse))
        elif isinstance(stmt, tree.For | tree.While):
            before, cache, bounded = set(self.defined), self.cache, dict(self.bounded)
            self.cache = {}
            if isinstance(stmt, tree.For):
                self.defined |= frozenset(map(region_facts.key, region_facts.target_names(stmt.target)))
            body = self.inner(stmt.body, before)
            self.defined = before
            orelse = self.inner(stmt.orelse, before)
            self.bounded = bounded
            self.cache = {
                k: v
                for k, v in cache.items()
                if not any(self.count.get(x.atom, 0) > 1 for c in k for x in c if isinstance(x.atom, tuple))
            }
            self.defined |= region_facts.writes(stmt)
            self.out.append(replace(stmt, body=body, orelse=orelse))
        else:
            quiet = self.quiet
            for item in stmt.items:
                self.quiet = grad_mode.is_off(item.context, self.ctx) or (
                    self.quiet and not grad_mode.is_on(item.context, self.ctx)
                )
            body = self.inner(stmt.body, self.defined)
            self.out.append(replace(stmt, body=body))
            self.quiet = quiet

    def inner(self, block: tree.Block, defined: set[Key]) -> tree.Block:
        """The block of a compound statement, with its guards; ``defined`` is what stands before the statement."""
        self.frames.append(_Frame(self.out, self.block_stmts, self.position, self.later, defined))
        result = self.forward(block)
        frame = self.frames.pop()
        self.position, self.block_stmts = frame.position, frame.stmts
        return result

    def _settled(self, stmt: tree.If) -> set[Key]:
        return set(region_facts.writes(stmt.body) & region_facts.writes(stmt.orelse))

    def rewrite(self, node: tree.Expr, need: _Need) -> tree.Expr:
        if isinstance(node, tree.Name):
            return self.made_finite(node, need)
        if isinstance(node, tree.Constant | tree.TorchName):
            return node
        if self.quiet:
            need = need.tested
        needs = {id(child): inner for child, inner in self.parts(node, need)}
        outer, growth = (self.minds_large, self.minds_infinite), self.growth(need)
        if isinstance(node, tree.Lambda | tree.Comprehension | tree.Compare):
            self.minds_large = self.minds_infinite = False
        else:
            self.minds_large = self.minds_large or growth.overflows(node)
            self.minds_infinite = self.minds_infinite or growth.mixes(node)
        shielded, indexed = growth.shielded(node), set(self.indexed)
        new = tree.map_children(
            node,
            # What gets a guard of its own as it is needs no other.
            lambda c: (
                c if c is shielded and isinstance(c, tree.Name) else self._rewrite_part(c, needs.get(id(c), need))
            ),
        )
        self.minds_large, self.minds_infinite = outer
        if isinstance(node, tree.Lambda | tree.Comprehension | tree.Conditional | tree.BoolOp):
            # Its parts may not run.
            self.indexed = indexed
        if new is not node:
            kind = self.ctx.kind(node)
            if not isinstance(kind, Bottom):
                self.ctx.made_kinds[new] = kind
            if isinstance(node, tree.Call) and node in self.ctx.facts.callees and isinstance(new, tree.Call):
                self.ctx.facts.callees[new] = self.ctx.facts.callees[node]
        return self.guarded(new, node, need)

    def _rewrite_part(self, node: tree.Node, need: _Need) -> tree.Node:
        if isinstance(node, tree.Expr):
            return self.rewrite(node, need)
        return tree.map_children(node, lambda c: self._rewrite_part(c, need))

    def growth(self, need: _Need) -> finite.Growth:
        """What operations do to large operands in the branch that has this need: what comes from before it is taken as it is."""

        def definition(key: Key) -> tree.Expr | None:
            born = self.ctx.born.get(key, ())
            own = self.count.get(key, 0) == 1 and bool(born) and self.place_demand(born) == need.gradient
            return self.values.get(key) if own else None

        return finite.Growth(self.ctx, definition)

    def made_finite(self, leaf: tree.Name, need: _Need) -> tree.Expr:
        """A variable as an operation that minds may read it: harmless where a test has kept the branch from it."""
        if not (self.minds_large or self.minds_infinite) or not need.gradient or need.gradient == ALL:
            return leaf
        kind = self.ctx.kind(leaf)
        if not (isinstance(kind, Tensor) and kind.batched and kind.dtype not in ("bool", "int64")) and not (
            isinstance(kind, Number) and kind.what == "float"
        ):
            return leaf
        near = self.near(leaf)
        told = [x for condition in need.gradient for x in condition if self.keeps_from(x, near)]
        if not told:
            return leaf
        if not any(self.available(x) for x in told):
            # The test reads what this operation gives: it is evaluated before, on detached operands.
            self.move_tests(leaf)
        mask = self.mask(need, leaf)
        if mask is None:
            return leaf
        guarded = self.select(mask, leaf, tree.Constant(1))
        names = self.bounded_key(leaf, mask)
        if names is None:
            return guarded
        if names not in self.bounded:
            made = self.ctx.temporary(f"safe_{leaf.id.strip('_')}", kind)
            self.emit_once(tree.Assign((made,), guarded))
            self.bounded[names] = made
        return self.bounded[names]

    def keeps_from(self, literal: Literal, near: frozenset[Key]) -> bool:
        """Whether a test, known to hold or not, may keep values that an operation minds from what ``near`` makes."""
        test = self.values.get(literal.atom) if isinstance(literal.atom, tuple) else literal.atom
        if test is None or not self.near(test) & near:
            return False
        if self.minds_infinite and finite.asks_finite(test):
            return True
        at_hand = self.available(literal) or (
            isinstance(literal.atom, tuple) and literal.atom in self.later and self.moves_with(literal.atom) is not None
        )
        return self.minds_large and at_hand and self.leaves_out_large(test, literal.held)

    def moves_with(self, key: Key) -> list[Key] | None:
        """The variables of the converter's own that have to stand here before a test that stands further down does.

        None where the test cannot stand here as it is.
        """
        found: list[Key] = []
        reads = region_facts.reads(self.values[key])
        for read in sorted(reads, key=str):
            if read in self.defined or read not in self.count:
                continue
            if self.later.get(read, -1) <= self.position or self.count[read] != 1 or read not in self.ctx.fresh:
                return None
            before = self.moves_with(read)
            if before is None:
                return None
            found += [k for k in (*before, read) if k not in found]
        return found if self.undisturbed(reads, key) else None

    def undisturbed(self, reads: Iterable[Key], key: Key) -> bool:
        """Whether what a test reads is left alone between here and the place of the test."""
        between = self.block_stmts[self.position : self.later[key]]
        changed = {k for stmt in between for k in self.changed_in_place(stmt)}
        memory = {m for k in changed for m in (k, *self.shares(k))}
        return not any(memory & {r, *self.shares(r)} for r in reads)

    def changed_in_place(self, stmt: tree.Stmt) -> Iterator[Key]:
        """The variables that a statement writes again, or whose memory it changes."""
        for node in tree.walk(stmt):
            if isinstance(node, tree.Assign | tree.AugAssign):
                for target in node.targets if isinstance(node, tree.Assign) else (node.target,):
                    root = _root(target)
                    again = isinstance(target, tree.Name) and self.count.get(region_facts.key(target), 0) > 1
                    if root is not None and (again or not isinstance(target, tree.Name)):
                        yield region_facts.key(root)
                    elif isinstance(target, tree.Tuple | tree.List):
                        yield from (region_facts.key(n) for n in region_facts.target_names(target))
            elif isinstance(node, tree.For):
                yield from (region_facts.key(n) for n in region_facts.target_names(node.target))
            elif isinstance(node, tree.Call):
                yield from self.changed_by_call(node)

    def changed_by_call(self, node: tree.Call) -> Iterator[Key]:
        func = self.ctx.kind(node.func)
        if isinstance(node.func, tree.Attribute) and node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
            root = _root(node.func.value)
            if root is not None:
                yield region_facts.key(root)
        callees = self.ctx.facts.callees.get(node, frozenset())
        known = isinstance(node.func, tree.TorchName) or isinstance(func, Static)
        if any(a.keyword == "out" for a in node.args) or any(map(_stores, callees)) or not (known or callees):
            for a in node.args:
                root = _root(a.value)
                if root is not None and _is_tensor(self.ctx.kind(root)):
                    yield region_facts.key(root)

    def shares(self, key: Key, depth: int = 5) -> frozenset[Key]:
        """The variables whose memory this one may share, by the way it is defined."""
        value = self.values.get(key)
        while isinstance(value, tree.Subscript | tree.Attribute | tree.Call):
            if isinstance(value, tree.Call):
                known = returns.lookup("method", value.func.attr) if isinstance(value.func, tree.Attribute) else None
                if known is None or known.alias == "fresh" or not isinstance(value.func, tree.Attribute):
                    return frozenset()
                value = value.func
            value = value.value
        if not isinstance(value, tree.Name) or not depth:
            return frozenset()
        other = region_facts.key(value)
        return frozenset([other]) | self.shares(other, depth - 1)

    def leaves_out_large(self, test: tree.Expr, held: bool) -> bool:
        """Whether the samples that fail a comparison may have large operands: those with ``abs(x) <= 1`` have not."""
        found = False
        for node in tree.walk(test):
            if isinstance(node, tree.Compare):
                operands = [node.left, *node.rest]
                for left, op, right in zip(operands, node.ops, operands[1:]):
                    if op not in ("<", "<=", ">", ">="):
                        continue
                    small = left if (op in (">", ">=")) == held else right
                    found = found or not self.not_negative(small)
        return found

    def not_negative(self, node: tree.Expr) -> bool:
        if isinstance(node, tree.Name):
            key = region_facts.key(node)
            value = self.values.get(key) if self.count.get(key, 0) == 1 else None
            return value is not None and self.not_negative(value)
        if isinstance(node, tree.Call) and finite.called(node) in ("sum", "mean", "max", "min", "amax", "amin", "sqrt"):
            inner = node.args[0].value if node.args else getattr(node.func, "value", None)
            return inner is not None and self.not_negative(inner)
        return finite.not_negative(node) or (
            isinstance(node, tree.Call) and finite.called(node) in ("norm", "vector_norm", "exp", "absolute")
        )

    def bounded_key(self, leaf: tree.Expr, mask: tree.Expr) -> tuple[Key, Key, bool] | None:
        """What a guarded variable is kept under; None where the variable or the mask may change."""
        plain = mask.operand if isinstance(mask, tree.Unary) else mask
        if not isinstance(leaf, tree.Name) or not isinstance(plain, tree.Name):
            return None
        keys = region_facts.key(leaf), region_facts.key(plain)
        return None if any(self.count.get(k, 0) > 1 for k in keys) else (*keys, plain is mask)

    def guarded(self, new: tree.Expr, old: tree.Expr, need: _Need) -> tree.Expr:
        if isinstance(new, tree.Binary) and isinstance(old, tree.Binary):
            return self.guarded_operator(new, old, need)
        if isinstance(new, tree.Call) and isinstance(old, tree.Call):
            return self.guarded_call(new, old, need)
        if isinstance(new, tree.Subscript) and isinstance(old, tree.Subscript):
            return self.guarded_index(new, old, need)
        return new

    def guarded_operator(self, new: tree.Binary, old: tree.Binary, need: _Need) -> tree.Expr:
        left, right = self.ctx.kind(old.left), self.ctx.kind(old.right)
        if not (_is_tensor(left) or _is_tensor(right)):
            return new
        if new.op == "/":
            if not _is_tensor(right) or finite.positive(old.right):
                return new
            return self.with_operand(new, "right", old.right, table.DIVISION.operands[0], need)
        if new.op in ("//", "%"):
            if not _is_tensor(right):
                return new
            return self.with_operand(new, "right", old.right, table.INTEGER_DIVISION.operands[0], need.faulting)
        if new.op == "**":
            exponent = finite.literal(old.right)
            row = table.power(exponent)
            if row.speculation != "partial" or not _is_tensor(left) or finite.positive(old.left):
                return new
            return self.with_operand(new, "left", old.left, row.operands[0], need)
        return new

    def with_operand(
        self, new: tree.Binary, side: str, operand: tree.Expr, row: table.Guarded, need: _Need
    ) -> tree.Expr:
        inner = getattr(new, side)
        operation = "sqrt" if new.op == "**" and _root_exponent(new.right) else new.op
        safe = self.safe(inner, operand, row, need, operation)
        if safe is inner:
            return new
        return replace(new, left=safe) if side == "left" else replace(new, right=safe)

    def guarded_call(self, new: tree.Call, old: tree.Call, need: _Need) -> tree.Expr:
        func = self.ctx.kind(old.func)
        name, base = "", None
        if isinstance(old.func, tree.TorchName):
            name = old.func.name
        elif isinstance(func, Static) and func.what == "torch":
            name = str(func.value).rsplit(".", 1)[-1]
        elif isinstance(old.func, tree.Attribute) and isinstance(new.func, tree.Attribute):
            on = self.ctx.kind(old.func.value)
            if isinstance(on, Tensor | Number) or (isinstance(func, Static) and func.what == "method"):
                name, base = old.func.attr, old.func.value
        if name:
            return self.guarded_library(new, old, name, base, need)
        callees = self.ctx.facts.callees.get(old, frozenset())
        if callees and not any(risky(c, self.ctx) or endless(c, self.ctx) for c in callees):
            return new
        if isinstance(func, Static) and func.what != "module" and not callees:
            return new
        if isinstance(func, Function | Unknown | Static) or callees:
            return self.guarded_unknown(new, old, need)
        return new

    def guarded_library(
        self, new: tree.Call, old: tree.Call, name: str, base: tree.Expr | None, need: _Need
    ) -> tree.Expr:
        row = table.lookup(name, self.namespace(old, base))
        if name == "pow":
            exponent = old.args[-1].value if old.args else None
            row = table.power(finite.literal(exponent) if exponent is not None else None)
        if row is None or row.speculation not in ("partial", "faulting"):
            return new
        if row.speculation == "faulting":
            need = need.differentiable
        for operand in row.operands:
            new = self.guard_argument(new, old, base, operand, need)
        return new

    def namespace(self, call: tree.Call, base: tree.Expr | None) -> str:
        """Where a library function that is called comes from, as the table names it."""
        return _namespace(self.ctx.kind(call.func), base is not None)

    def guard_argument(
        self, new: tree.Call, old: tree.Call, base: tree.Expr | None, row: table.Guarded, need: _Need
    ) -> tree.Call:
        if base is not None and row.position == 0:
            assert isinstance(new.func, tree.Attribute)
            if finite.positive(base):
                return new
            safe = self.safe(new.func.value, base, row, need, finite.called(old))
            return new if safe is new.func.value else replace(new, func=replace(new.func, value=safe))
        index = row.position - (base is not None)
        for k, arg in enumerate(old.args):
            if (arg.keyword is None and k == index) or (arg.keyword is not None and arg.keyword == row.keyword):
                if arg.star or not _is_tensor(self.ctx.kind(arg.value)) or finite.positive(arg.value):
                    return new
                inner = new.args[k].value
                safe = self.safe(inner, arg.value, row, need, finite.called(old))
                if safe is inner:
                    return new
                args = tuple(replace(a, value=safe) if j == k else a for j, a in enumerate(new.args))
                return replace(new, args=args)
        return new

    def guarded_unknown(self, new: tree.Call, old: tree.Call, need: _Need) -> tree.Expr:
        """A function whose operations are not looked into: its gradient is cut off, and its result, where nobody uses it."""
        callees = self.ctx.facts.callees.get(old, frozenset())
        loops = any(endless(c, self.ctx) for c in callees)
        mask = self.mask(need.faulting if loops else need, old)
        if mask is None:
            return new
        known = self.safe_arguments(old) if not loops else None
        if known is not None:
            return self.with_safe_arguments(new, old, known, mask)
        if len(callees) == 1:
            twin = self.ctx.twins.under_mask(next(iter(callees)), old, self.ctx.callee)
            if twin is not None:
                called = redirected(new, twin)
                return replace(called, args=(*called.args, tree.Argument(mask, twin.mask)))
        args = list(new.args)
        for k, arg in enumerate(old.args):
            kind = self.ctx.kind(arg.value)
            if arg.star or not isinstance(kind, Tensor) or not depends(kind) or kind.dtype in ("bool", "int64"):
                continue
            inner = args[k].value
            args[k] = replace(args[k], value=self.select(mask, inner, method_call(inner, "detach")))
        if all(a is b for a, b in zip(args, new.args, strict=True)):
            return new
        called = replace(new, args=tuple(args))
        result = self.ctx.kind(old)
        if isinstance(result, Tensor) and result.dtype != "bool":
            return self.select(mask, called, tree.Constant(0))
        return called

    def safe_arguments(self, call: tree.Call) -> dict[str, table.Guarded] | None:
        """For a helper whose risky operations all work on its parameters as they come: which, and safe values."""
        callees = self.ctx.facts.callees.get(call, frozenset())
        found: dict[str, table.Guarded] = {}
        for callee in callees:
            rebound = (
                {n for n, _ in region_facts.writes(callee.node.body)}
                if isinstance(callee.node, tree.FunctionDef)
                else set()
            )
            for operand, row in risky_operands(callee, self.ctx):
                plain = (
                    isinstance(operand, tree.Name)
                    and operand.id not in rebound
                    and any(p.name == operand.id for p in callee.positional)
                )
                if row is None or not plain or not isinstance(row.safe, int | float):
                    return None
                assert isinstance(operand, tree.Name)
                if found.setdefault(operand.id, row).safe != row.safe:
                    return None
        return found if callees else None

    def with_safe_arguments(
        self, new: tree.Call, old: tree.Call, known: dict[str, table.Guarded], mask: tree.Expr
    ) -> tree.Expr:
        args = list(new.args)
        for callee in self.ctx.facts.callees[old]:
            names = [p.name for p in callee.positional]
            if callee.owner is not None and not callee.is_staticmethod and isinstance(old.func, tree.Attribute):
                names = names[1:]
            for k, arg in enumerate(old.args):
                name = arg.keyword or (names[k] if k < len(names) else "")
                if name in known and args[k] is new.args[k] and _is_tensor(self.ctx.kind(arg.value)):
                    args[k] = replace(
                        args[k], value=self.select(mask, args[k].value, self.safe_value(args[k].value, known[name]))
                    )
        return new if all(a is b for a, b in zip(args, new.args, strict=True)) else replace(new, args=tuple(args))

    def guarded_index(self, new: tree.Subscript, old: tree.Subscript, need: _Need) -> tree.Expr:
        # A parameter that is the same for all samples may be a table, too.
        if not isinstance(self.ctx.kind(old.value), Tensor | Bottom | Unknown):
            return new
        items = list(new.items)
        for k, item in enumerate(old.items):
            if self.has_been_used(old, item, need):
                continue
            kind = self.ctx.kind(item)
            number = isinstance(kind, Number) and kind.what == "int"
            if number or (
                isinstance(kind, Tensor) and kind.batched and kind.dtype != "bool" and not isinstance(item, tree.Slice)
            ):
                items[k] = self.safe(items[k], item, table.INDEXING.operands[0], need.faulting)
        return new if all(a is b for a, b in zip(items, new.items, strict=True)) else replace(new, items=tuple(items))

    def has_been_used(self, node: tree.Subscript, item: tree.Expr, need: _Need) -> bool:
        """Whether every sample has used this index of the same tensor before: it is in bounds then. Else that is noted."""
        if len(node.items) != 1 or not isinstance(node.value, tree.Name) or not isinstance(item, tree.Name):
            return False
        keys = region_facts.key(node.value), region_facts.key(item)
        if any(self.count.get(k, 0) > 1 for k in keys) or {keys[1], *self.shares(keys[1])} & self.overwritten:
            return False
        if keys in self.indexed:
            return True
        if need.value == ALL:
            self.indexed.add(keys)
        return False

    # --- masks ------------------------------------------------------------------------------

    def safe(
        self, inner: tree.Expr, operand: tree.Expr, row: table.Guarded, need: _Need, operation: str = ""
    ) -> tree.Expr:
        """The operand where the operation's result is demanded, a safe value elsewhere."""
        whole = self.demand_here(need, operand)
        if whole is None:
            return inner
        known = self.ranges_elsewhere(inner, whole) if self.ctx.options.guards == "auto" else None
        if known is not None and ranges.harmless(known, operation, row.safe):
            # What it is made of is guarded already, or a test tells, and it comes out harmless.
            return inner
        mask = self.build(whole)
        names = self.bounded_key(inner, mask)
        if names in self.bounded and row.safe == 1 and names is not None:
            return self.bounded[names]
        made = self.select(mask, inner, self.safe_value(inner, row))
        if isinstance(made, tree.Select) and isinstance(row.safe, int | float):
            self.guarded_by[made] = whole
        return made

    def ranges_elsewhere(self, node: tree.Expr, whole: Demand, depth: int = 12) -> Ranges | None:
        """Where an expression lies in the samples that the demand leaves out, as far as guards and tests have settled it."""
        if not depth:
            return None
        if isinstance(node, tree.Constant):
            number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            return ((float(node.value), float(node.value)),) if number else None
        if isinstance(node, tree.Select) and node in self.guarded_by:
            settled = all(
                self.count.get(x.atom, 0) <= 1 for c in self.guarded_by[node] for x in c if isinstance(x.atom, tuple)
            )
            if settled and _covers(whole, self.guarded_by[node]):
                return self.ranges_elsewhere(node.other, whole, depth - 1)
            return None
        if isinstance(node, tree.Name):
            key = region_facts.key(node)
            value = self.rewritten.get(key) if self.count.get(key) == 1 else None
            found = self.ranges_elsewhere(value, whole, depth - 1) if value is not None else None
            return found or self.told_elsewhere(node, whole)
        parts = ranges.operands(node, isinstance(node, tree.Call) and not self.of_module(node))
        if parts is not None:
            values = [self.ranges_elsewhere(p, whole, depth - 1) for p in parts]
            known = [v for v in values if v is not None]
            found = ranges.evaluated(node, known) if len(known) == len(values) else None
            if found is not None:
                return found
        if finite.not_negative(node):
            return ((0.0, math.inf),)
        return ((-math.inf, 0.0),) if finite.not_positive(node) else None

    def of_module(self, node: tree.Call) -> bool:
        """Whether what is called is a function of torch's, and no method."""
        func = self.ctx.kind(node.func)
        return isinstance(node.func, tree.TorchName) or (isinstance(func, Static) and func.what == "torch")

    def told_elsewhere(self, variable: tree.Name, whole: Demand) -> Ranges | None:
        """Where the tests that fail in the samples that the demand leaves out say that a variable lies."""
        key = region_facts.key(variable)
        if self.count.get(key, 0) > 1 or {key, *self.shares(key)} & self.overwritten:
            return None
        for condition in whole:
            # One of its literals fails: the variable lies where one of them puts it.
            told = [ranges.settled(self.test_of(x), not x.held, variable) for x in condition]
            known = [t for t in told if t is not None]
            if told and len(known) == len(told):
                return tuple(r for t in known for r in t)
        return None

    def test_of(self, literal: Literal) -> tree.Expr | None:
        """The test that a literal stands for; None where the mask variable is written more than once."""
        if not isinstance(literal.atom, tuple):
            return literal.atom
        return self.values.get(literal.atom) if self.count.get(literal.atom, 0) <= 1 else None

    def safe_value(self, inner: tree.Expr, row: table.Guarded) -> tree.Expr:
        if isinstance(row.safe, int | float):
            return tree.Constant(row.safe)
        size = tree.Subscript(tree.Attribute(inner, "shape"), (tree.Constant(-1),))
        like = (
            tree.Argument(tree.Attribute(inner, "dtype"), "dtype"),
            tree.Argument(tree.Attribute(inner, "device"), "device"),
        )
        if row.safe == "eye":
            return tree.Call(tree.TorchName("eye"), (tree.Argument(size), *like))
        first = tree.Argument(tree.Constant(1))
        count = tree.Argument(tree.Binary("+", size, tree.Constant(1)))
        entries = tree.Call(tree.TorchName("arange"), (first, count, *like))
        if row.safe == "diagonal":
            return tree.Call(tree.TorchName("diag"), (tree.Argument(entries),))
        if row.safe in ("oblong eye", "oblong diagonal"):
            last = tree.Slice(tree.Constant(-2), None, None)
            sizes = tree.Argument(tree.Subscript(tree.Attribute(inner, "shape"), (last,)), star="*")
            eye = tree.Call(tree.TorchName("eye"), (sizes, *like))
            return eye if row.safe == "oblong eye" else tree.Binary("*", eye, entries)
        number = method_call(inner, "numel")
        entries = tree.Call(tree.TorchName("arange"), (tree.Argument(number), *like))
        return method_call(entries, "reshape", tree.Attribute(inner, "shape"))

    def select(self, mask: tree.Expr, inner: tree.Expr, safe: tree.Expr) -> tree.Expr:
        log = self.ctx.options.guard_log
        log.made.append(f"{self.ctx.callee.name}: {_described(safe)}")
        if len(log.made) - 1 == log.left_out:
            return inner
        made = tree.Select(mask, inner, safe)
        kind = self.ctx.kind(inner)
        if not isinstance(kind, Bottom):
            self.ctx.made_kinds[made] = kind
        return made

    def mask(self, need: _Need, operand: tree.Expr) -> tree.Expr | None:
        """The demand as a mask that can be evaluated here; None where everything may be demanded (or nothing is).

        A test that reads the result must read the true one: where the mask leaves out samples that come to
        such a test, the test is evaluated before, on detached operands.
        """
        whole = self.demand_here(need, operand)
        return None if whole is None else self.build(whole)

    def demand_here(self, need: _Need, operand: tree.Expr) -> Demand | None:
        """The demand over masks that can be evaluated here; None where everything may be demanded (or nothing is)."""
        if not need.gradient or need.gradient == ALL:
            return None
        whole = self.usable(need.gradient, operand, second=False)
        lacking = any(
            not self.separates(frozenset(x for x in c if self.available(x)), operand)
            and any(not self.available(x) for x in c)
            for c in need.gradient
        )
        true_tests = _covers(whole, self.usable(need.value, operand, second=False))
        if (lacking or not true_tests) and self.move_tests(operand):
            whole = self.usable(need.gradient, operand, second=True)
        elif not true_tests:
            whole = either(
                self.usable(need.gradient, operand, second=True), self.usable(need.value, operand, second=True)
            )
        elif not self.proven(need.gradient, operand):
            tighter = self.usable(need.gradient, operand, second=True)
            whole = tighter if _covers(tighter, self.usable(need.value, operand, second=True)) else whole
        return None if whole == ALL or not whole else whole

    def usable(self, demand: Demand, operand: tree.Expr, second: bool) -> Demand:
        """The demand over masks that are at hand here (``second``: or can be evaluated here)."""
        whole: Demand = NEVER
        for condition in demand:
            kept = frozenset(x for x in condition if self.available(x))
            missing = condition - kept
            if second and missing:
                kept |= self.second_evaluations(missing, operand, at_hand_only=self.separates(kept, operand))
            whole = either(whole, frozenset([kept]))
        return whole

    def move_tests(self, operand: tree.Expr) -> bool:
        """Evaluates the tests that hang on the statement's result here, before it is guarded; False where one cannot be."""
        stmt = self.block_stmts[self.position] if self.block_stmts else None
        if not isinstance(stmt, tree.Assign) or not all(
            isinstance(t, tree.Name) and self.count.get(region_facts.key(t)) == 1 for t in stmt.targets
        ):
            return False
        hanging = {region_facts.key(t) for t in stmt.targets if isinstance(t, tree.Name)}
        tests: list[tuple[Key, tree.Expr]] = []
        for later in self.block_stmts[self.position + 1 :]:
            if not hanging & region_facts.reads(later):
                continue
            target = later.targets[0] if isinstance(later, tree.Assign) and len(later.targets) == 1 else None
            if isinstance(later, tree.Assign) and isinstance(target, tree.Name) and self.is_test(target):
                if region_facts.key(target) not in self.moved:
                    tests.append((region_facts.key(target), later.value))
                continue
            if self.reads_tested(later, frozenset(hanging)):
                return False
            hanging |= region_facts.writes(later)
        if any(self.count.get(key) != 1 for key, _ in tests):
            return False
        values = self.expand([value for _, value in tests], [key for key, _ in tests])
        if values is None:
            return False
        for value, (key, _) in zip(values, tests, strict=True):
            self.move(key, value)
        return True

    def is_test(self, target: tree.Name) -> bool:
        kind = self.ctx.version_kinds.get(region_facts.key(target))
        return (isinstance(kind, Tensor) and kind.dtype == "bool") or kind == Number("bool")

    def reads_tested(self, node: tree.Node, keys: frozenset[Key], tested: bool = False) -> bool:
        """Whether a comparison, index or detached part of the statement reads one of the variables."""
        if isinstance(node, tree.Name):
            return tested and region_facts.key(node) in keys
        whole = isinstance(
            node, tree.Compare | tree.If | tree.For | tree.While | tree.With | tree.Lambda | tree.Comprehension
        )
        inner = (
            tested
            or whole
            or (isinstance(node, tree.Call) and isinstance(node.func, tree.Attribute) and node.func.attr == "detach")
        )
        if isinstance(node, tree.Subscript):
            return self.reads_tested(node.value, keys, inner) or any(
                self.reads_tested(i, keys, True) for i in node.items
            )
        return any(self.reads_tested(c, keys, inner) for c in tree.children(node))

    def available(self, literal: Literal) -> bool:
        if isinstance(literal.atom, tree.Expr):
            return True
        if literal.atom not in self.defined:
            return False
        if self.most.get(literal.atom, self.count.get(literal.atom, 0)) <= self.passed.get(literal.atom, 0):
            return True
        return (literal.atom, literal.held) in self.ctx.shrinking

    def proven(self, demand: Demand, operand: tree.Expr) -> bool:
        """Whether in each condition a comparison of the operand itself, at hand here, leaves out zero."""
        return all(
            any(
                self.available(x) and excludes_zero(self.values[x.atom], x.held, operand)
                for x in condition
                if isinstance(x.atom, tuple) and x.atom in self.values
            )
            for condition in demand
        )

    def separates(self, kept: frozenset[Literal], operand: tree.Expr) -> bool:
        """Whether one of the masks at hand tests what the operand is made of, and so may know where it is harmless."""
        near = self.near(operand)
        found = False
        for literal in kept:
            test = self.values.get(literal.atom) if isinstance(literal.atom, tuple) else literal.atom
            if test is None or literal in self.shrinking:
                continue
            decided = excludes_zero(test, literal.held, operand)
            if decided is not None:
                # The operand itself is compared: this settles it.
                return decided
            found = found or bool(self.near(test) & near)
        return found

    def near(self, node: tree.Expr, depth: int = 3) -> frozenset[Key]:
        """The variables that an expression is made of, looked up through a few definitions."""
        found = set(region_facts.reads(node))
        frontier = set(found)
        for _ in range(depth):
            frontier = {
                r
                for k in frontier
                if k in self.values and self.count.get(k, 0) == 1
                for r in region_facts.reads(self.values[k])
            }
            found |= frontier
        return frozenset(found)

    def second_evaluations(
        self, missing: frozenset[Literal], operand: tree.Expr, at_hand_only: bool
    ) -> frozenset[Literal]:
        """Tests that stand further down, evaluated here: those that can be as they are, and those that hang on this
        very result (unless ``at_hand_only``) on detached operands."""
        made = self.evaluated_here(missing, operand, at_hand_only)
        for frame in reversed(self.frames):
            made |= self.evaluated_before(frame, missing - made, operand, at_hand_only)
        return made

    def evaluated_before(
        self, frame: _Frame, missing: frozenset[Literal], operand: tree.Expr, at_hand_only: bool
    ) -> frozenset[Literal]:
        """The tests that stand after the statement around this block, evaluated before that statement."""
        here = _Frame(self.out, self.block_stmts, self.position, self.later, self.defined)
        self.enter(frame)
        made = self.evaluated_here(missing, operand, at_hand_only)
        self.enter(here)
        self.defined |= frame.defined
        return made

    def enter(self, frame: _Frame) -> None:
        self.out, self.block_stmts, self.position = frame.out, frame.stmts, frame.position
        self.later, self.defined = frame.later, frame.defined

    def evaluated_here(self, missing: frozenset[Literal], operand: tree.Expr, at_hand_only: bool) -> frozenset[Literal]:
        made: set[Literal] = set()
        near = self.near(operand)
        for literal in sorted(missing, key=str):
            if (
                not isinstance(literal.atom, tuple)
                or self.later.get(literal.atom, -1) < self.position
                or self.count.get(literal.atom, 0) != 1
            ):
                continue
            value = self.values[literal.atom]
            first = self.moves_with(literal.atom)
            if at_hand_only and first is None:
                continue
            test: tree.Expr | None = value
            if first is None:
                expanded = self.expand([value], [literal.atom])
                test = expanded[0] if expanded is not None else None
            # A test that can stand here as it is costs nothing; one evaluated anew must be about this operand.
            if test is None or not (first is not None or self.near(test) & near):
                continue
            for key in first or ():
                self.move(key, self.values[key])
            self.move(literal.atom, test)
            made.add(literal)
        return frozenset(made)

    def move(self, key: Key, value: tree.Expr) -> None:
        """Evaluates a variable here that is set further down, and not there."""
        self.out.append(tree.Assign((tree.Name(*key),), value))
        self.defined.add(key)
        self.passed[key] = 1
        self.moved.add(key)

    def expand(self, nodes: list[tree.Expr], keys: list[Key]) -> list[tree.Expr] | None:
        """The values of tests (``keys``) over what is defined here already, outside autograd; None where they cannot be.

        A variable that they read more than once gets an evaluation of its own before.
        """
        size = 0
        possible = True
        reads = [region_facts.key(n) for node in nodes for n in tree.walk(node) if isinstance(n, tree.Name)]
        shared: dict[Key, tree.Name] = {}
        made: list[tree.Assign] = []

        def visit(n: tree.Node) -> tree.Node:
            nonlocal size, possible
            size += 1
            if size > MAX_SECOND_EVALUATION * len(nodes):
                possible = False
                return n
            if isinstance(n, tree.Name):
                key = region_facts.key(n)
                if key in self.defined or key not in self.count:
                    kind = self.ctx.kind(n)
                    floating = isinstance(kind, Tensor) and depends(kind) and kind.dtype not in ("bool", "int64")
                    return method_call(n, "detach") if floating else n
                if key in shared:
                    return shared[key]
                if self.count.get(key) == 1 and key in self.values and key in self.later:
                    whole = visit(self.values[key])
                    if reads.count(key) < 2 or not isinstance(whole, tree.Expr):
                        return whole
                    # Read more than once: evaluated once.
                    shared[key] = self.ctx.temporary(n.id, self.ctx.kind(n))
                    made.append(tree.Assign((shared[key],), whole))
                    return shared[key]
                possible = False
                return n
            if isinstance(n, tree.Lambda | tree.Comprehension | tree.Walrus):
                possible = False
                return n
            if (
                isinstance(n, tree.Attribute)
                and isinstance(n.value, tree.Name)
                and n.attr in ("dtype", "device", "shape")
            ):
                return n
            return tree.map_children(n, visit)

        results = [visit(node) for node in nodes]
        leaves = {region_facts.key(n) for r in [*results, *(m.value for m in made)] for n in finite.leaves(r)}
        if not possible or not all(self.undisturbed(leaves, key) for key in keys):
            return None
        for stmt in made:
            self.emit_once(stmt)
        return [r for r in results if isinstance(r, tree.Expr)]

    def emit_once(self, stmt: tree.Assign) -> None:
        """Puts an assignment to a variable of the pass's own before the statement at hand."""
        assert isinstance(stmt.targets[0], tree.Name)
        key = region_facts.key(stmt.targets[0])
        self.out.append(stmt)
        self.defined.add(key)
        self.count[key] = self.passed[key] = 1
        self.values[key] = stmt.value

    def build(self, demand: Demand) -> tree.Expr:
        cached = self.cache.get(demand)
        if cached is not None:
            return cached
        whole: tree.Expr | None = None
        for condition in sorted(demand, key=lambda c: sorted(map(str, c))):
            part: tree.Expr | None = None
            for literal in sorted(condition, key=_order):
                atom = tree.Name(*literal.atom) if isinstance(literal.atom, tuple) else literal.atom
                one: tree.Expr = atom if literal.held else tree.Unary("~", atom)
                part = one if part is None else tree.Binary("&", part, one)
            assert part is not None
            whole = part if whole is None else tree.Binary("|", whole, part)
        assert whole is not None
        simple = whole.operand if isinstance(whole, tree.Unary) else whole
        if isinstance(simple, tree.Name) or not all(isinstance(x.atom, tuple) for c in demand for x in c):
            return whole
        made = self.ctx.temporary("mask", Tensor(True, "bool", ()))
        self.emit_once(tree.Assign((made,), whole))
        self.cache[demand] = made
        return made


def excludes_zero(test: tree.Expr, held: bool, operand: tree.Expr) -> bool | None:
    """Whether a comparison of the operand with a bound leaves out zero; None where it does not compare the operand.

    A bound that is no literal is taken for a positive tolerance.
    """
    if not (isinstance(test, tree.Compare) and len(test.ops) == 1):
        return None
    inner = operand.operand if isinstance(operand, tree.Unary) and operand.op == "-" else operand
    left, op, right = test.left, test.ops[0], test.rest[0]
    size = isinstance(left, tree.Call) and finite.called(left) == "abs"
    if size:
        assert isinstance(left, tree.Call)
        left = left.args[0].value if left.args else left.func.value if isinstance(left.func, tree.Attribute) else left
    if not (
        isinstance(left, tree.Name)
        and isinstance(inner, tree.Name)
        and (left.id, left.version) == (inner.id, inner.version)
    ):
        return None
    literal = finite.literal(right)
    bound = literal if isinstance(literal, int | float) else 1.0
    at_zero = {
        "<": bound > 0,
        "<=": bound >= 0,
        ">": bound < 0,
        ">=": bound <= 0,
        "==": bound == 0,
        "!=": bound != 0,
    }.get(op)
    return None if at_zero is None else at_zero != held


def _root_exponent(node: tree.Expr) -> bool:
    """Whether a power is a root, which grows ever more slowly."""
    exponent = finite.literal(node)
    if exponent is None and isinstance(node, tree.Binary) and node.op == "/":
        over, under = finite.literal(node.left), finite.literal(node.right)
        exponent = over / under if isinstance(over, int | float) and isinstance(under, int | float) and under else None
    return isinstance(exponent, int | float) and 0 < exponent < 1


def _described(safe: tree.Expr) -> str:
    return str(safe.value) if isinstance(safe, tree.Constant) else type(safe).__name__


def _root(node: tree.Expr) -> tree.Name | None:
    """The variable that an expression reaches into."""
    while isinstance(node, tree.Subscript | tree.Attribute):
        node = node.value
    return node if isinstance(node, tree.Name) else None


def _stores(callee: Callee) -> bool:
    """Whether a function may change what it is given."""
    return any(
        (isinstance(n, tree.Assign) and not all(isinstance(t, tree.Name | tree.Tuple) for t in n.targets))
        or isinstance(n, tree.AugAssign)
        or (isinstance(n, tree.Call) and isinstance(n.func, tree.Attribute) and n.func.attr.endswith("_"))
        for n in tree.walk(callee.node.body)
    )


def _assignments(block: tree.Block) -> dict[Key, int]:
    """How many plain assignments each variable gets along one path through a block, at most."""
    found: dict[Key, int] = {}
    for stmt in block:
        if isinstance(stmt, tree.If):
            body, orelse = _assignments(stmt.body), _assignments(stmt.orelse)
            inner = {k: max(body.get(k, 0), orelse.get(k, 0)) for k in {*body, *orelse}}
        elif region_facts.blocks(stmt):
            inner = {}
            for part in region_facts.blocks(stmt):
                for k, n in _assignments(part).items():
                    inner[k] = inner.get(k, 0) + n
        else:
            plain = isinstance(stmt, tree.Assign)
            inner = dict.fromkeys(region_facts.writes(stmt), 1 if plain else 2)
        if isinstance(stmt, tree.For):
            for target in region_facts.target_names(stmt.target):
                inner[region_facts.key(target)] = inner.get(region_facts.key(target), 0) + 2
        for k, n in inner.items():
            found[k] = found.get(k, 0) + n
    return found


def _covers(wide: Demand, narrow: Demand) -> bool:
    """Whether each condition of the narrow demand lies in one of the wide."""
    return all(any(w <= n for w in wide) for n in narrow)


def _order(literal: Literal) -> tuple[int, str]:
    return (literal.atom[1], literal.atom[0]) if isinstance(literal.atom, tuple) else (10**9, "")


def _is_tensor(kind: object) -> bool:
    if isinstance(kind, Tensor | Number):
        return True
    return isinstance(kind, Unknown) and kind.batched


def risky(callee: Callee, ctx: Context) -> bool:
    """Whether a function of the program runs a partial or faulting operation, or one that is not known."""
    return any(True for _ in risky_operands(callee, ctx))


def endless(callee: Callee, ctx: Context, seen: frozenset[Callee] = frozenset()) -> bool:
    """Whether a function of the program has a loop that only its own samples can end."""
    if callee in seen:
        return False
    for node in tree.walk(callee.node.body):
        if isinstance(node, tree.While) and (
            depends(ctx.facts.kind(node.test))
            or any(isinstance(s, tree.If) and depends(ctx.facts.kind(s.test)) for s in tree.walk(node.body))
        ):
            return True
        if isinstance(node, tree.Call):
            if any(endless(c, ctx, seen | {callee}) for c in ctx.facts.callees.get(node, frozenset())):
                return True
    return False


def risky_operands(
    callee: Callee, ctx: Context, seen: frozenset[Callee] = frozenset()
) -> Iterator[tuple[tree.Expr, table.Guarded | None]]:
    """The operands that may be harmful in a function, each with its row; None for the row where that is not known."""
    if callee in seen:
        return
    for node in tree.walk(callee.node.body):
        if isinstance(node, tree.Binary):
            if (
                node.op in ("/", "//", "%")
                and _is_tensor(ctx.facts.kind(node.right))
                and not finite.positive(node.right)
            ):
                yield node.right, (table.DIVISION if node.op == "/" else table.INTEGER_DIVISION).operands[0]
            if node.op == "**" and _is_tensor(ctx.facts.kind(node.left)):
                row = table.power(finite.literal(node.right))
                if row.speculation == "partial":
                    yield node.left, row.operands[0]
        elif isinstance(node, tree.Call):
            func = ctx.facts.kind(node.func)
            name = (
                str(func.value).rsplit(".", 1)[-1]
                if isinstance(func, Static) and func.what == "torch"
                else finite.called(node)
            )
            is_method = isinstance(func, Static) and func.what == "method"
            listed = table.lookup(name, _namespace(func, is_method))
            if name == "pow" and listed is not None:
                listed = table.power(finite.literal(node.args[-1].value) if node.args else None)
            if (
                isinstance(func, Static)
                and func.what in ("torch", "method")
                and listed is not None
                and listed.speculation in ("partial", "faulting")
            ):
                operands = _operands(node, listed, func.what == "method")
                yield from operands if operands is not None else [(node, None)]
            for inner in ctx.facts.callees.get(node, frozenset()):
                yield from ((node, None) for _ in risky_operands(inner, ctx, seen | {callee}))
            elsewhere = isinstance(func, Static) and func.what == "module"
            if (isinstance(func, Unknown) or elsewhere) and any(ctx.depends(a.value) for a in node.args):
                yield node, None
        elif isinstance(node, tree.Subscript):
            for item in node.items:
                kind = ctx.facts.kind(item)
                if (
                    isinstance(ctx.facts.kind(node.value), Tensor | Unknown)
                    and isinstance(kind, Tensor)
                    and kind.batched
                    and kind.dtype != "bool"
                ):
                    yield item, table.INDEXING.operands[0]


def _namespace(func: object, method: bool) -> str:
    if method:
        return "Tensor"
    dotted = str(func.value) if isinstance(func, Static) and func.what == "torch" else "torch"
    return dotted.rpartition(".")[0] or "torch"


def _operands(
    node: tree.Call, row: table.Operation, method: bool
) -> list[tuple[tree.Expr, table.Guarded | None]] | None:
    found: list[tuple[tree.Expr, table.Guarded | None]] = []
    for operand in row.operands:
        if method and operand.position == 0 and isinstance(node.func, tree.Attribute):
            found.append((node.func.value, operand))
            continue
        index = operand.position - method
        value = next(
            (
                a.value
                for k, a in enumerate(node.args)
                if a.keyword == operand.keyword or (a.keyword is None and k == index)
            ),
            None,
        )
        if value is None:
            return None
        found.append((value, operand))
    return found


__all__ = ["guard", "risky"]
