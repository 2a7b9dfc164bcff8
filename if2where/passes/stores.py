"""Stores under a mask: into tensors, lists, dicts and attributes; buffers that must be batched; in-place updates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from if2where.kinds import calls, returns
from if2where.kinds.infer import Facts
from if2where.kinds.lattice import (
    DEFAULT_FLOAT,
    Bottom,
    Instance,
    Kind,
    Mapping,
    Sequence,
    Static,
    Tensor,
    Unknown,
    depends,
    is_floating,
)
from if2where.passes.context import Context, method_call, torch_call
from if2where.passes.merging import Side, merge
from if2where.program import Callee
from if2where.region import facts as region_facts
from if2where.region import tree

if TYPE_CHECKING:
    from if2where.passes.control import ControlPass


# --- who else may see a tensor --------------------------------------------------------------

#: Stands, among the names of variables, for whatever is not a variable of the function.
_OUTSIDE = "<outside>"


@dataclass
class Privacy:
    """Which versions of local variables hold tensors that nothing else in the function can reach.

    A version is private where every value it is given is fresh (an operation's result, a copy) and
    where the variable is never handed on as itself: to another variable, into a container, a closure
    or a view.
    """

    callee: Callee
    facts: Facts
    _shared: frozenset[str] | None = field(default=None)
    _borrowed: set[region_facts.Key] = field(default_factory=set)
    _mixed: set[region_facts.Key] = field(default_factory=set)
    _memory: dict[region_facts.Key, frozenset[region_facts.Key]] = field(default_factory=dict)
    _related: dict[str, frozenset[str]] | None = field(default=None)

    def is_private(self, version: tree.Name) -> bool:
        if self._shared is None:
            self._shared = frozenset(self._find())
        return version.id not in self._shared and region_facts.key(version) not in self._borrowed

    def is_mixed(self, version: tree.Name) -> bool:
        """Whether a merge has made the version of a tensor that is another object in some samples."""
        return region_facts.key(version) in self._mixed

    def borrows(self, name: str, block: tree.Block) -> bool:
        """Whether an assignment in the block makes the variable another tensor's second name."""
        for node in tree.walk(block):
            if isinstance(node, tree.Assign) and self._aliases(node.value):
                if any(n.id == name for t in node.targets for n in region_facts.target_names(t)):
                    return True
        return False

    def mark_mixed(self, version: tree.Name) -> None:
        """Notes a version that a loop carries, and that some step may have made another tensor's second name."""
        self._mixed.add(region_facts.key(version))

    def merged(self, version: tree.Name, a: tree.Name, b: tree.Name) -> None:
        """Notes a merge: what was borrowed on one side is so in some samples."""
        keys = region_facts.key(a), region_facts.key(b)
        if any(k in self._borrowed or k in self._mixed for k in keys):
            self._mixed.add(region_facts.key(version))
            own = frozenset([region_facts.key(version)])
            self._memory[region_facts.key(version)] = own | self.memory(a) | self.memory(b)

    def is_mixed_elsewhere(self, version: tree.Name) -> bool:
        """Whether some merge holds a copy of what may be this version's memory: an update in place would not reach it."""
        mine = self.memory(version)
        return any(mine & self._memory.get(k, frozenset()) for k in self._mixed if k != region_facts.key(version))

    def relatives(self, name: str) -> set[str] | None:
        """The other variables that may at some time share the variable's memory; None where something else may too.

        Something else is an argument, a container, a closure, or whatever a call of unknown make gives back.
        """
        if self._related is None:
            self._related = self._relations()
        found, todo = {name}, [name]
        while todo:
            for other in self._related.get(todo.pop(), frozenset([_OUTSIDE])) - found:
                found.add(other)
                todo.append(other)
        return None if _OUTSIDE in found else found - {name}

    def _relations(self) -> dict[str, frozenset[str]]:
        """Which variables may be given each other's memory by one assignment; _OUTSIDE stands for all else."""
        body = self.callee.node.body
        if isinstance(body, tree.Expr):
            return {}
        related: dict[str, set[str]] = {}
        outside = {p.name for p in self.callee.params} | {n for n, _ in region_facts.captured(body)}

        def relate(target: tree.Expr, value: tree.Expr | None) -> None:
            if isinstance(target, tree.Tuple | tree.List) and isinstance(value, tree.Tuple):
                if len(value.items) == len(target.items):
                    for t, v in zip(target.items, value.items, strict=True):
                        relate(t, v)
                    return
            names = self._aliases(value) if value is not None else set()
            if value is None or not (names or self.fresh(value) or self._fresh_parts(value)):
                names = names | {_OUTSIDE}
            if isinstance(value, tree.Tuple) or not isinstance(target, tree.Name | tree.Tuple | tree.List):
                # It is kept in something.
                outside.update(
                    n.id for n in (tree.walk(value) if value is not None else ()) if isinstance(n, tree.Name)
                )
            for target_name in region_facts.target_names(target):
                related.setdefault(target_name.id, set()).update(names)
                for n in names:
                    related.setdefault(n, set()).add(target_name.id)

        for node in tree.walk(body):
            if isinstance(node, tree.Assign):
                for target in node.targets:
                    relate(target, node.value)
                for first, second in zip(node.targets, node.targets[1:]):
                    outside |= {n.id for t in (first, second) for n in region_facts.target_names(t)}
            elif isinstance(node, tree.Walrus) or (isinstance(node, tree.AnnAssign) and node.value is not None):
                relate(node.target, node.value)
            elif isinstance(node, tree.For | tree.WithItem):
                if node.target is not None:
                    relate(node.target, None)
            elif isinstance(node, tree.List | tree.Set):
                outside |= self._aliases(*node.items)
            elif isinstance(node, tree.Dict):
                outside |= self._aliases(*node.values)
            elif isinstance(node, tree.Call) and not (self.fresh(node) or self._aliases(node)):
                # Whatever is called may keep its arguments.
                outside |= self._aliases(*(a.value for a in node.args))
            elif isinstance(node, tree.Comprehension):
                outside |= {n.id for n in tree.walk(node) if isinstance(n, tree.Name)}
            elif isinstance(node, tree.OpaqueStmt):
                outside |= set(node.binds)
        for n in outside:
            related.setdefault(n, set()).add(_OUTSIDE)
        return {n: frozenset(r) for n, r in related.items()}

    def _fresh_parts(self, value: tree.Expr) -> bool:
        """Whether a choice between values is one of fresh ones, or of Python's numbers."""
        if isinstance(value, tree.Conditional):
            return all(self._fresh_parts(v) for v in (value.body, value.orelse))
        return self.fresh(value) or isinstance(self.facts.kind(value), Static)

    def memory(self, version: tree.Name) -> frozenset[region_facts.Key]:
        """The versions whose memory it may share, itself included."""
        return self._memory.get(region_facts.key(version), frozenset([region_facts.key(version)]))

    def assigned(
        self,
        version: tree.Name,
        value: tree.Expr | None,
        original: tree.Expr | None,
        names: dict[str, tree.Name] | None = None,
    ) -> None:
        """Notes an assignment to a version: ``value`` as converted, ``original`` as written (None where it is unpacked)."""
        seen = {value} if isinstance(value, tree.Name) else set()
        if original is not None and names is not None:
            seen |= {names[n] for n in self._aliases(original) if n in names}
        shared = frozenset(k for n in seen for k in self.memory(n))
        if shared:
            old = self._memory.get(region_facts.key(version), frozenset([region_facts.key(version)]))
            self._memory[region_facts.key(version)] = old | shared
        key = region_facts.key(version)
        if original is None:
            # A copy that the conversion makes of a version, or a value that is unpacked.
            source = region_facts.key(value) if isinstance(value, tree.Name) else None
            if source is None or source in self._borrowed:
                self._borrowed.add(key)
            if source in self._mixed:
                self._mixed.add(key)
            return
        handed_on = bool(self._aliases(original))
        if (handed_on and isinstance(value, tree.Select)) or (
            isinstance(value, tree.Name) and region_facts.key(value) in self._mixed
        ):
            self._mixed.add(key)
        if handed_on or not (isinstance(value, tree.Select) or self.fresh(original)):
            self._borrowed.add(key)

    def _find(self) -> set[str]:
        shared: set[str] = set()
        for p in self.callee.params:
            self._borrowed.add((p.name, 0))
        body = self.callee.node.body
        if isinstance(body, tree.Expr):
            return shared
        targets = {t for n in tree.walk(body) if isinstance(n, tree.Assign) for t in n.targets}
        unpacked = {
            n.value for n in tree.walk(body) if isinstance(n, tree.Assign) and isinstance(n.targets[0], tree.Tuple)
        }
        shared |= {n for n, _ in region_facts.captured(body)}
        # What a return hands out is seen by the caller when nothing changes it any more.
        returned = {n for r in tree.walk(body) if isinstance(r, tree.Return) for n in tree.walk(r)}
        for node in tree.walk(body):
            if node in returned:
                continue
            if isinstance(node, tree.Assign):
                for target in node.targets:
                    self._assigned(target, node.value, shared)
                if len(node.targets) > 1:
                    shared |= {n.id for t in node.targets for n in region_facts.target_names(t)}
            elif isinstance(node, tree.Walrus):
                shared.add(node.target.id)
            elif isinstance(node, tree.List | tree.Tuple | tree.Set) and node not in targets and node not in unpacked:
                shared |= self._aliases(*node.items)
            elif isinstance(node, tree.Dict):
                shared |= self._aliases(*node.values)
        return shared

    def _assigned(self, target: tree.Expr, value: tree.Expr, shared: set[str]) -> None:
        if isinstance(target, tree.Tuple | tree.List):
            if isinstance(value, tree.Tuple) and len(value.items) == len(target.items):
                for t, v in zip(target.items, value.items, strict=True):
                    self._assigned(t, v, shared)
            return
        shared |= self._aliases(value)

    def _aliases(self, *values: tree.Expr) -> set[str]:
        """The variables whose memory the values may share."""
        found: set[str] = set()
        for v in values:
            if isinstance(v, tree.Name):
                if isinstance(self.facts.kind(v), Tensor | Unknown | Bottom):
                    found.add(v.id)
            elif isinstance(v, tree.Subscript):
                found |= self._aliases(v.value)
            elif isinstance(v, tree.Attribute):
                found |= self._aliases(v.value) if isinstance(self.facts.kind(v), Tensor | Unknown) else set()
            elif isinstance(v, tree.Call) and isinstance(v.func, tree.Attribute):
                known = returns.lookup("method", v.func.attr)
                if isinstance(self.facts.kind(v.func.value), Tensor) and (known is None or known.alias != "fresh"):
                    found |= self._aliases(v.func.value)
            elif isinstance(v, tree.Call) and isinstance(v.func, tree.Name) and v.func.id in ("min", "max"):
                # Python's give one of their arguments, itself.
                found |= self._aliases(*(a.value for a in v.args))
            elif isinstance(v, tree.Conditional):
                found |= self._aliases(v.body, v.orelse)
            elif isinstance(v, tree.BoolOp):
                found |= self._aliases(v.left, v.right)
            elif isinstance(v, tree.Starred):
                found |= self._aliases(v.value)
        return found

    def fresh(self, value: tree.Expr) -> bool:
        """Whether the value is in memory of its own."""
        if isinstance(value, tree.Unary):
            return value.op != "+"
        if isinstance(value, tree.Binary | tree.Compare | tree.Constant):
            return True
        if isinstance(value, tree.Conditional):
            return self.fresh(value.body) and self.fresh(value.orelse)
        if isinstance(value, tree.Call):
            func = self.facts.kind(value.func)
            if isinstance(func, Static) and func.what == "torch":
                name = str(func.value).rsplit(".", 1)[-1]
                found = (
                    returns.lookup("torch", name)
                    or returns.lookup("linalg", name)
                    or returns.lookup("functional", name)
                )
                return found is not None and found.alias == "fresh"
            if isinstance(value.func, tree.Attribute) and isinstance(self.facts.kind(value.func.value), Tensor):
                found = returns.lookup("method", value.func.attr)
                return found is not None and found.alias == "fresh"
        return False


# --- stores ---------------------------------------------------------------------------------


def is_mask_store(target: tree.Expr, ctx: Context) -> bool:
    """``x[m] = v`` with a batched boolean mask: a data-dependent number of elements."""
    if not isinstance(target, tree.Subscript) or len(target.items) != 1 or target.is_tuple:
        return False
    index = ctx.facts.kind(target.items[0])
    return (
        isinstance(ctx.facts.kind(target.value), Tensor)
        and isinstance(index, Tensor)
        and index.batched
        and _is_mask(target.items[0], index)
    )


#: How a parameter of unknown dtype is called where it counts: as an index it works under vmap as it is.
_INDEX_NAMES = re.compile(
    r"(?i)^(?:[a-z]|.*(?:idx|index|indices|ids?|pos|positions?|rows?|cols?|steps?|order|perm|[a-z]_?[ijkn]))\d*$"
)


def _is_mask(node: tree.Expr, kind: Tensor) -> bool:
    """Whether a batched index is a mask. Where its dtype is not known its name decides: a wrong guess raises, never misleads."""
    if kind.dtype is None or kind.dtype.startswith("@"):
        return not is_floating(kind.dtype) and isinstance(node, tree.Name) and not _INDEX_NAMES.match(node.id)
    return kind.dtype == "bool"


def store(walker: ControlPass, stmt: tree.Assign) -> None:
    """``target = value`` where the target is no variable, under the mask of its place."""
    ctx = walker.ctx
    if len(stmt.targets) != 1 or isinstance(stmt.targets[0], tree.Tuple | tree.List):
        ctx.refuse("store-target", stmt, "several targets")
        return
    target = stmt.targets[0]
    if is_mask_store(target, ctx):
        assert isinstance(target, tree.Subscript)
        mask_store(walker, stmt, target, stmt.value)
        return
    value = walker.expressions.value(stmt.value)
    kind = walker.expressions.kind_of(value, stmt.value)
    masked_write(walker, stmt, target, Side(value, kind))


def masked_write(walker: ControlPass, stmt: tree.Stmt, target: tree.Expr, new: Side) -> None:
    """The target gets the new value in the samples of the place, and keeps its own in the others."""
    ctx = walker.ctx
    if isinstance(target, tree.Attribute):
        owner = ctx.facts.kind(target.value)
        if not isinstance(owner, Instance) or not owner.made:
            ctx.refuse("store-outlives-call", stmt, target.attr)
            return
    elif isinstance(target, tree.Subscript):
        base = ctx.facts.kind(target.value)
        if walker.effects.outlives(target, ctx.callee):
            ctx.refuse("store-outlives-call", stmt)
            return
        if not isinstance(base, Tensor | Sequence | Mapping):
            ctx.refuse("store-target", stmt, "what is stored into is not known")
            return
        index = ctx.facts.kind(target.items[0])
        if isinstance(base, Sequence | Mapping) and (
            depends(index) or target.is_tuple or isinstance(target.items[0], tree.Slice)
        ):
            ctx.refuse("python-value", stmt, "a list or dict is indexed by value")
            return
        if isinstance(base, Mapping) and isinstance(index, Static) and base.get(index.value) is None:
            ctx.refuse("merge-structure", stmt, "the key is there in some samples only")
            return
        if isinstance(base, Tensor) and not base.batched and not _made_batched(walker, target.value):
            ctx.refuse("buffer-not-batched", stmt)
            return
    else:
        ctx.refuse("store-target", stmt)
        return
    place = walker.expressions.children(target, True)
    named = walker.place_name()
    if named is None:
        walker.emit(tree.Assign((place,), new.expr, origin=stmt.origin, at=stmt.at))
        return
    old = ctx.facts.kind(target)
    if isinstance(target, tree.Attribute):
        old = _attribute_before(walker, stmt, target)
    elif isinstance(target, tree.Subscript):
        base = ctx.facts.kind(target.value)
        old = calls.subscript(base, [ctx.facts.kind(i) for i in target.items], target.is_tuple)
    if isinstance(old, Static | Bottom) and isinstance(target, tree.Subscript) and isinstance(base, Sequence):
        element = calls.iteration(base)
        old = element if not isinstance(element, Bottom) else old
    merged = merge(ctx, named, new, Side(place, old), stmt, lambda: walker.expressions.float_dtype(None))
    walker.emit(tree.Assign((place,), merged, at=stmt.at, carries=(stmt.origin,)))


def _attribute_before(walker: ControlPass, stmt: tree.Stmt, target: tree.Attribute) -> Kind:
    ctx = walker.ctx
    before = ctx.facts.env_before.get(stmt, {})
    if isinstance(target.value, tree.Name):
        path = before.get(f"{target.value.id}.{target.attr}")
        if path is not None:
            return path
    owner = ctx.facts.kind(target.value)
    assert isinstance(owner, Instance)
    return ctx.facts.attributes.get(owner.key, {}).get(target.attr, Unknown(True))


def _made_batched(walker: ControlPass, base: tree.Expr) -> bool:
    passed = {p.name for p in walker.ctx.callee.params}
    return isinstance(base, tree.Name) and base.id not in passed and needs_batch(walker, base.id)


def mask_store(walker: ControlPass, stmt: tree.Stmt, target: tree.Subscript, value: tree.Expr, op: str = "") -> None:
    """``x[m] = v`` is a select over the whole of x, in place."""
    ctx = walker.ctx
    index = target.items[0]
    base = ctx.facts.kind(target.value)
    assert isinstance(base, Tensor)
    whole = elementwise(walker, value, target)
    if whole is None:
        ctx.refuse("dynamic-shape", stmt, "the stored value is not elementwise in the masked tensor")
        return
    x = walker.expressions.value(target.value)
    mask: tree.Expr = walker.expressions.named(walker.expressions.mask(index), index, True)
    kind = walker.expressions.kind_of(whole, value)
    if op:
        whole = tree.Binary(op, x if isinstance(whole, tree.Constant) else kept_for_backward(x, op), whole)
        kind = calls.binary(op, base, kind)
    place = walker.place_mask()
    if place is not None:
        mask = walker.atom_mask(tree.Binary("&", place, mask), "mask")
    side = Side(whole, kind)
    merged = merge(ctx, mask, side, Side(x, base), stmt, lambda: walker.expressions.float_dtype(None))
    everything = tree.Subscript(x, (tree.Constant(Ellipsis),))
    walker.emit(tree.Assign((everything,), merged, at=stmt.at, carries=(stmt.origin,)))


def elementwise(walker: ControlPass, value: tree.Expr, target: tree.Subscript) -> tree.Expr | None:
    """The value over all elements: each ``x[m]`` with the same mask becomes ``x``; None where that is not the same."""
    ctx = walker.ctx

    def visit(node: tree.Expr) -> tree.Expr | None:
        if (
            isinstance(node, tree.Subscript)
            and region_facts.alike(node.items[0], target.items[0])
            and len(node.items) == 1
        ):
            return walker.expressions.value(node.value)
        kind = ctx.facts.kind(node)
        if (
            isinstance(node, tree.Constant)
            or (isinstance(kind, Tensor) and kind.shape == ())
            or not isinstance(kind, Tensor | Unknown)
        ):
            return walker.expressions.value(node)
        if isinstance(node, tree.Binary) and node.op != "@":
            a, b = visit(node.left), visit(node.right)
            return None if a is None or b is None else replace(node, left=a, right=b)
        if isinstance(node, tree.Unary) and node.op != "not":
            inner = visit(node.operand)
            return None if inner is None else replace(node, operand=inner)
        if isinstance(node, tree.Call):
            return visit_call(node)
        return (
            walker.expressions.value(node)
            if isinstance(node, tree.Name) and isinstance(kind, Tensor) and not _has_mask(kind)
            else None
        )

    def visit_call(node: tree.Call) -> tree.Expr | None:
        func = ctx.facts.kind(node.func)
        name = str(func.value).rsplit(".", 1)[-1] if isinstance(func, Static) and func.what == "torch" else ""
        if isinstance(node.func, tree.Attribute) and not name:
            name = node.func.attr
        found = returns.lookup("torch", name) or returns.lookup("method", name) or returns.lookup("functional", name)
        if found is None or found.shape != "same":
            return None
        args = []
        for a in node.args:
            inner = visit(a.value)
            if inner is None:
                return None
            args.append(replace(a, value=inner))
        new_func = node.func
        if isinstance(node.func, tree.Attribute) and isinstance(func, Static) and func.what == "method":
            base = visit(node.func.value)
            if base is None:
                return None
            new_func = replace(node.func, value=base)
        return replace(node, func=new_func, args=tuple(args))

    return visit(value)


def _has_mask(kind: Tensor) -> bool:
    return kind.shape is None or kind.shape != ()


def kept_for_backward(x: tree.Expr, op: str) -> tree.Expr:
    """A copy of what an in-place update overwrites, where the operation's derivative needs the old value."""
    return method_call(x, "clone") if op in ("*", "/", "**", "@") else x


def augmented_store(walker: ControlPass, stmt: tree.AugAssign) -> None:
    """``x[i] op= v`` and ``obj.a op= v``."""
    ctx = walker.ctx
    target = stmt.target
    if is_mask_store(target, ctx):
        assert isinstance(target, tree.Subscript)
        mask_store(walker, stmt, target, stmt.value, stmt.op)
        return
    if not walker.guarded_store(target):
        walker.emit(walker.rebuild(stmt))
        return
    old = ctx.facts.kind(target)
    if isinstance(target, tree.Attribute):
        owner = ctx.facts.kind(target.value)
        if not isinstance(owner, Instance) or not owner.made:
            ctx.refuse("store-outlives-call", stmt, target.attr)
            return
        old = _attribute_before(walker, stmt, target)
        if isinstance(old, Tensor) and not old.optional:
            ctx.refuse(
                "alias-undecided",
                stmt,
                f"`{target.attr}` may be shared: write `{target.attr} = {target.attr} {stmt.op} ...`",
            )
            return
    read = replace(target)
    ctx.facts.kinds[read] = old
    whole = tree.Binary(stmt.op, read, stmt.value, at=stmt.at)
    kind = calls.binary(stmt.op, old, ctx.facts.kind(stmt.value))
    if isinstance(old, Tensor) and isinstance(kind, Tensor):
        kind = replace(kind, dtype=old.dtype)
    ctx.facts.kinds[whole] = kind
    masked_write(walker, stmt, target, Side(walker.expressions.value(whole), kind))


def in_place_name(walker: ControlPass, stmt: tree.AugAssign) -> None:
    """``x op= v`` on a tensor that others may see: it is written in place, where the mask holds."""
    ctx = walker.ctx
    assert isinstance(stmt.target, tree.Name)
    old = ctx.facts.kind(stmt.target)
    assert isinstance(old, Tensor)
    if not old.batched:
        ctx.refuse("buffer-not-batched", stmt, f"`{stmt.target.id}` may be shared")
        return
    x = walker.expressions.value(stmt.target)
    value = tree.Binary(stmt.op, kept_for_backward(x, stmt.op), walker.expressions.value(stmt.value))
    mask = walker.place_name()
    assert mask is not None
    kind = calls.binary(stmt.op, old, ctx.facts.kind(stmt.value))
    merged = merge(ctx, mask, Side(value, kind), Side(x, old), stmt, lambda: walker.expressions.float_dtype(None))
    everything = tree.Subscript(x, (tree.Constant(Ellipsis),))
    walker.emit(tree.Assign((everything,), merged, at=stmt.at, carries=(stmt.origin,)))


def in_place_call(walker: ControlPass, stmt: tree.ExprStmt) -> bool:
    """``x.add_(v)`` as a statement under a mask, or on a tensor that is not batched yet."""
    ctx = walker.ctx
    call = stmt.value
    if not (isinstance(call, tree.Call) and isinstance(call.func, tree.Attribute)):
        return False
    base = ctx.facts.kind(call.func.value)
    name = call.func.attr
    if (
        not isinstance(base, Tensor)
        or not name.endswith("_")
        or name.startswith("_")
        or name in ("requires_grad_", "retain_grad_")
    ):
        return False
    args_depend = any(ctx.depends(a.value) for a in call.args)
    if not walker.guarded_store(call.func.value) and (base.batched or not args_depend):
        return False
    if not isinstance(call.func.value, tree.Name | tree.Subscript):
        ctx.refuse("store-target", stmt, f".{name}()")
        return True
    walker.check_effects(call)
    walker.check_alias(call.func.value, stmt)
    twin = _out_of_place(walker, call, name)
    if twin is None:
        ctx.refuse("store-target", stmt, f".{name}() has no out-of-place twin that is known")
        return True
    target = call.func.value
    kind = replace(base, batched=True)
    if (
        isinstance(target, tree.Name)
        and not walker.masked
        and walker.privacy.is_private(walker.names.get(target.id, target))
    ):
        made = walker.bind(target.id, kind)
        walker.emit(tree.Assign((made,), twin, at=stmt.at, carries=(stmt.origin,)))
        return True
    if not base.batched:
        ctx.refuse("buffer-not-batched", stmt)
        return True
    x = walker.expressions.value(target)
    mask = walker.place_name()
    merged: tree.Expr = twin
    if mask is not None:
        merged = merge(ctx, mask, Side(twin, kind), Side(x, base), stmt, lambda: walker.expressions.float_dtype(None))
    place = tree.Subscript(x, (tree.Constant(Ellipsis),)) if isinstance(target, tree.Name) else x
    walker.emit(tree.Assign((place,), merged, at=stmt.at, carries=(stmt.origin,)))
    return True


#: Methods whose derivative needs nothing of what they overwrite.
_KEEP_NOTHING = frozenset(
    "add_ sub_ subtract_ neg_ negative_ zero_ fill_ copy_ masked_fill_ index_fill_ index_add_ index_copy_ "
    "scatter_ scatter_add_ masked_scatter_ t_ transpose_ squeeze_ unsqueeze_".split()
)


def _out_of_place(walker: ControlPass, call: tree.Call, name: str) -> tree.Expr | None:
    assert isinstance(call.func, tree.Attribute)
    x = walker.expressions.value(call.func.value)
    if walker.place and name not in _KEEP_NOTHING:
        x = method_call(x, "clone")
    args = tuple(replace(a, value=walker.expressions.value(a.value)) for a in call.args)
    if name == "zero_":
        return torch_call("zeros_like", x)
    if name == "fill_" and len(args) == 1:
        return (
            torch_call("full_like", x, args[0].value)
            if isinstance(args[0].value, tree.Constant)
            else tree.Call(tree.Attribute(args[0].value, "expand_as"), (tree.Argument(x),))
        )
    if name == "copy_" and len(args) == 1:
        return method_call(args[0].value, "expand_as", x)
    if returns.lookup("method", name[:-1]) is None:
        return None
    return tree.Call(tree.Attribute(x, name[:-1]), args)


# --- buffers --------------------------------------------------------------------------------

_BUFFERS = {"zeros": "new_zeros", "ones": "new_ones", "empty": "new_empty", "full": "new_full"}


def needs_batch(walker: ControlPass, name: str) -> bool:
    """Whether a local buffer that is the same for all samples receives values that are not."""
    body = walker.body
    for node in tree.walk(body):
        targets: tuple[tree.Expr, ...] = ()
        value: tree.Expr | None = None
        if isinstance(node, tree.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, tree.AugAssign):
            targets, value = (node.target,), node.value
        for t in targets:
            if isinstance(t, tree.Subscript) and isinstance(t.value, tree.Name) and t.value.id == name:
                return True
        del value
    return any(
        isinstance(n, tree.ExprStmt)
        and isinstance(n.value, tree.Call)
        and isinstance(n.value.func, tree.Attribute)
        and n.value.func.attr.endswith("_")
        and isinstance(n.value.func.value, tree.Name)
        and n.value.func.value.id == name
        for n in tree.walk(body)
    )


def buffer(walker: ControlPass, stmt: tree.Assign) -> tree.Expr | None:
    """A buffer made anew that batched values are stored into is made batched, from a batched tensor; None for others."""
    ctx = walker.ctx
    if len(stmt.targets) != 1 or not isinstance(stmt.targets[0], tree.Name) or not isinstance(stmt.value, tree.Call):
        return None
    name = stmt.targets[0].id
    kind = ctx.facts.kind(stmt.value)
    if not isinstance(kind, Tensor) or kind.batched or not _stored_into(walker, name):
        return None
    func = ctx.facts.kind(stmt.value.func)
    made = str(func.value).rsplit(".", 1)[-1] if isinstance(func, Static) and func.what == "torch" else ""
    anchor = batched_anchor(walker)
    if anchor is None:
        return None
    if made in _BUFFERS:
        return _new_buffer(walker, stmt.value, made, anchor, kind)
    value = walker.expressions.value(stmt.value)
    return _with_batch(walker, value, anchor, kind)


def _with_batch(walker: ControlPass, value: tree.Expr, anchor: tuple[tree.Name, Tensor], kind: Tensor) -> tree.Expr:
    """The same values in a tensor that has the batch dimension: zeros made from a batched tensor are added."""
    name, have = anchor
    zeros = tree.Call(tree.Attribute(name, "new_zeros"), (tree.Argument(tree.Tuple(())),))
    if have.dtype != kind.dtype or kind.dtype is None:
        target = tree.Attribute(value, "dtype")
        if isinstance(value, tree.Name):
            zeros = replace(zeros, args=(*zeros.args, tree.Argument(target, "dtype")))
        else:
            zeros = replace(zeros, args=(*zeros.args, tree.Argument(tree.TorchName("bool"), "dtype")))
            if kind.dtype == "bool":
                return tree.Binary("|", value, zeros)
    if kind.dtype == "bool":
        return tree.Binary(
            "|", value, replace(zeros, args=(zeros.args[0], tree.Argument(tree.TorchName("bool"), "dtype")))
        )
    return tree.Binary("+", value, zeros)


def _stored_into(walker: ControlPass, name: str) -> bool:
    """Whether a batched value, or a masked one, is stored into the variable somewhere in the function."""
    ctx = walker.ctx

    def visit(block: tree.Block, masked: bool) -> bool:
        for node in block:
            targets = (
                node.targets
                if isinstance(node, tree.Assign)
                else (node.target,)
                if isinstance(node, tree.AugAssign)
                else ()
            )
            for t in targets:
                if isinstance(t, tree.Subscript) and _root(t) == name:
                    value = node.value if isinstance(node, tree.Assign | tree.AugAssign) else None
                    if masked or (value is not None and ctx.depends(value)) or any(ctx.depends(i) for i in t.items):
                        return True
            if (
                isinstance(node, tree.ExprStmt)
                and isinstance(node.value, tree.Call)
                and isinstance(node.value.func, tree.Attribute)
            ):
                call = node.value
                assert isinstance(call.func, tree.Attribute)
                if call.func.attr.endswith("_") and _root(call.func.value) == name:
                    if masked or any(ctx.depends(a.value) for a in call.args):
                        return True
            inner = masked or (isinstance(node, tree.If | tree.While) and ctx.depends(node.test))
            if any(visit(b, inner) for b in region_facts.blocks(node)):
                return True
            if (
                region_facts.has_exit((node,), tree.Return, tree.Break, tree.Continue)
                and isinstance(node, tree.If)
                and ctx.depends(node.test)
            ):
                masked = True
        return False

    return visit(walker.body, False)


def _root(target: tree.Expr) -> str:
    while isinstance(target, tree.Subscript):
        target = target.value
    return target.id if isinstance(target, tree.Name) else ""


def batched_anchor(walker: ControlPass) -> tuple[tree.Name, Tensor] | None:
    """A batched tensor in reach, a floating one first."""
    found = []
    for name, version in walker.names.items():
        kind = walker.ctx.version_kinds.get(region_facts.key(version))
        if isinstance(kind, Tensor) and kind.batched and not kind.optional:
            found.append((version, kind, name))
    found.sort(key=lambda f: f[1].dtype in ("bool", "int64"))
    return (found[0][0], found[0][1]) if found else None


def _new_buffer(
    walker: ControlPass, call: tree.Call, made: str, anchor: tuple[tree.Name, Tensor], kind: Tensor
) -> tree.Expr:
    name, have = anchor
    arguments: list[tree.Argument] = []
    sizes = [a for a in call.args if a.keyword is None]
    keywords = {a.keyword: a for a in call.args if a.keyword is not None}
    dtype = keywords.pop("dtype", None)
    if dtype is not None:
        from_same = (
            isinstance(dtype.value, tree.Attribute)
            and dtype.value.attr == "dtype"
            and isinstance(dtype.value.value, tree.Name)
        )
        if from_same:
            assert isinstance(dtype.value, tree.Attribute)
            assert isinstance(dtype.value.value, tree.Name)
            source = walker.names.get(dtype.value.value.id)
            source_kind = walker.ctx.facts.kind(dtype.value.value)
            if source is not None and isinstance(source_kind, Tensor) and source_kind.batched:
                name, have = source, source_kind
                dtype = None
    elif made != "full" or kind.dtype == DEFAULT_FLOAT:
        if have.dtype != kind.dtype:
            dtype = tree.Argument(torch_call("get_default_dtype"), "dtype")
    elif kind.dtype is not None and not kind.dtype.startswith("@"):
        dtype = tree.Argument(tree.TorchName(kind.dtype), "dtype")
    arguments += [replace(a, value=walker.expressions.value(a.value)) for a in sizes]
    if dtype is not None:
        arguments.append(replace(dtype, value=walker.expressions.value(dtype.value) if dtype.value.at else dtype.value))
    device = keywords.pop("device", None)
    if device is not None and not (isinstance(device.value, tree.Attribute) and device.value.attr == "device"):
        arguments.append(replace(device, value=walker.expressions.value(device.value)))
    arguments += [replace(a, value=walker.expressions.value(a.value)) for a in keywords.values()]
    return tree.Call(tree.Attribute(name, _BUFFERS[made]), tuple(arguments))
