"""Merges: joining the two values that a variable or result has after a data-dependent choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from if2where.kinds.lattice import (
    Bottom,
    Function,
    Instance,
    Kind,
    Mapping,
    Number,
    Sequence,
    Static,
    Tensor,
    Unknown,
    is_floating,
    join,
    promote,
    shapes_differ,
    taint,
)
from if2where.passes.context import Context, torch_call
from if2where.region import tree

#: Gives the dtype expression for a merged Python float.
FloatDtype = Callable[[], tree.Expr]


@dataclass(frozen=True)
class Side:
    """One side of a merge: the value and what is known of it."""

    expr: tree.Expr
    kind: Kind


def merge(ctx: Context, mask: tree.Expr, a: Side, b: Side, node: tree.Node, dtype: FloatDtype) -> tree.Expr:
    """``a`` where the mask holds and ``b`` elsewhere, field by field; refused where no such value exists."""
    if _same(a.expr, b.expr):
        return a.expr
    if isinstance(a.kind, Bottom) or isinstance(b.kind, Bottom):
        return b.expr if isinstance(a.kind, Bottom) else a.expr
    if isinstance(a.kind, Static) and isinstance(b.kind, Static) and a.kind.what not in ("bool", "int", "float"):
        if isinstance(a.expr, tree.Constant) and isinstance(b.expr, tree.Constant) and a.expr.value == b.expr.value:
            return a.expr
    if isinstance(a.kind, Sequence) and isinstance(b.kind, Sequence):
        return _merge_sequences(ctx, mask, a, b, node, dtype)
    if isinstance(a.kind, Mapping) and isinstance(b.kind, Mapping):
        return _merge_mappings(ctx, mask, a, b, node, dtype)
    if isinstance(a.kind, Instance) and isinstance(b.kind, Instance):
        return _merge_records(ctx, mask, a, b, node, dtype)
    for side in (a, b):
        if isinstance(side.kind, Static) and side.kind.what in ("none",):
            ctx.refuse("merge-not-numeric", node, "one side is None")
            return a.expr
        if isinstance(side.kind, Function) or (
            isinstance(side.kind, Static) and side.kind.what not in ("bool", "int", "float", "")
        ):
            what = side.kind.what if isinstance(side.kind, Static) else "function"
            ctx.refuse("merge-not-numeric", node, f"one side is a {what}")
            return a.expr
        if isinstance(side.kind, Sequence | Mapping | Instance):
            ctx.refuse("merge-structure", node, "one side is a container and the other is not")
            return a.expr
        if isinstance(side.kind, Static) and side.kind.what == "":
            ctx.refuse("merge-not-numeric", node, "one side is a Python value of unknown type")
            return a.expr
    return _select(ctx, mask, a, b, node, dtype)


def _same(a: tree.Expr, b: tree.Expr) -> bool:
    if a is b:
        return True
    return isinstance(a, tree.Name) and isinstance(b, tree.Name) and (a.id, a.version) == (b.id, b.version)


def _select(ctx: Context, mask: tree.Expr, a: Side, b: Side, node: tree.Node, dtype: FloatDtype) -> tree.Expr:
    if isinstance(a.kind, Tensor) and isinstance(b.kind, Tensor) and shapes_differ(a.kind.shape, b.kind.shape):
        ctx.refuse("merge-shapes", node, f"{_show(a.kind.shape)} against {_show(b.kind.shape)}")
        return a.expr
    left, right = a.expr, b.expr
    kind = taint(join(a.kind, b.kind))
    whats = [s.kind.what for s in (a, b) if isinstance(s.kind, Static | Number)]
    if (
        len(whats) == 2
        and "float" in whats
        and not (_is_tensor(ctx, a) and whats[0] == "float")
        and not (_is_tensor(ctx, b) and whats[1] == "float")
    ):
        # Two Python numbers: torch.where would make a float32 of them for good.
        if _is_tensor(ctx, a) or (
            isinstance(a.kind, Static) and not isinstance(b.kind, Static) and not _is_tensor(ctx, b)
        ):
            left = as_tensor(ctx, a, dtype())
        else:
            right = as_tensor(ctx, b, dtype())
    elif isinstance(a.kind, Tensor) and isinstance(b.kind, Tensor):
        left, right = _one_dtype(a, b)
    select = tree.Select(mask, left, right)
    if isinstance(kind, Number):
        kind = Number(kind.what)
    ctx.made_kinds[select] = kind if not isinstance(kind, Unknown) else Unknown(True)
    return select


def _is_tensor(ctx: Context, side: Side) -> bool:
    """Whether a number is held in a tensor already."""
    if isinstance(side.kind, Static):
        return False
    if isinstance(side.expr, tree.Select):
        return True
    return isinstance(side.kind, Number) and not isinstance(side.expr, tree.Constant)


def as_tensor(ctx: Context, side: Side, dtype: tree.Expr) -> tree.Expr:
    if isinstance(side.kind, Static):
        return torch_call("tensor", side.expr, dtype=dtype)
    return tree.Call(tree.Attribute(side.expr, "to"), (tree.Argument(dtype),))


def _one_dtype(a: Side, b: Side) -> tuple[tree.Expr, tree.Expr]:
    """Both sides in one dtype where they are known to differ."""
    assert isinstance(a.kind, Tensor)
    assert isinstance(b.kind, Tensor)
    da, db = a.kind.dtype, b.kind.dtype
    if da is None or db is None or da == db:
        return a.expr, b.expr
    wide = promote(da, db)
    if wide is None or wide.startswith("@"):
        return a.expr, b.expr

    def cast(side: Side, have: str) -> tree.Expr:
        if have == wide:
            return side.expr
        return tree.Call(tree.Attribute(side.expr, "to"), (tree.Argument(tree.TorchName(wide)),))

    return cast(a, da), cast(b, db)


def _show(shape: object) -> str:
    return str(shape).replace("None", "?").replace("Ellipsis", "...")


def _merge_sequences(ctx: Context, mask: tree.Expr, a: Side, b: Side, node: tree.Node, dtype: FloatDtype) -> tree.Expr:
    assert isinstance(a.kind, Sequence)
    assert isinstance(b.kind, Sequence)
    if a.kind.items is None or b.kind.items is None:
        ctx.refuse("merge-structure", node, "the length of a list or tuple is not known")
        return a.expr
    if len(a.kind.items) != len(b.kind.items):
        ctx.refuse("merge-shapes", node, f"{len(a.kind.items)} values against {len(b.kind.items)}")
        return a.expr
    merged = tuple(
        merge(ctx, mask, Side(_item(a.expr, k), ka), Side(_item(b.expr, k), kb), node, dtype)
        for k, (ka, kb) in enumerate(zip(a.kind.items, b.kind.items, strict=True))
    )
    result = tree.Tuple(merged) if a.kind.form == "tuple" else tree.List(merged)
    ctx.made_kinds[result] = taint(join(a.kind, b.kind))
    return result


def _item(expr: tree.Expr, k: int) -> tree.Expr:
    if isinstance(expr, tree.Tuple | tree.List) and not any(isinstance(i, tree.Starred) for i in expr.items):
        return expr.items[k]
    return tree.Subscript(expr, (tree.Constant(k),))


def _merge_mappings(ctx: Context, mask: tree.Expr, a: Side, b: Side, node: tree.Node, dtype: FloatDtype) -> tree.Expr:
    assert isinstance(a.kind, Mapping)
    assert isinstance(b.kind, Mapping)
    if not (a.kind.exact and b.kind.exact) or set(a.kind.keys) != set(b.kind.keys):
        ctx.refuse("merge-structure", node, "the dicts do not have the same keys")
        return a.expr
    keys = a.kind.keys if not isinstance(b.expr, tree.Dict) or isinstance(a.expr, tree.Dict) else b.kind.keys
    values = tuple(
        merge(
            ctx,
            mask,
            Side(_entry(a.expr, key), a.kind.get(key) or Unknown(True)),
            Side(_entry(b.expr, key), b.kind.get(key) or Unknown(True)),
            node,
            dtype,
        )
        for key in keys
    )
    result = tree.Dict(tuple(tree.Constant(k) for k in keys), values)
    ctx.made_kinds[result] = taint(join(a.kind, b.kind))
    return result


def _entry(expr: tree.Expr, key: object) -> tree.Expr:
    if isinstance(expr, tree.Dict):
        for k, v in zip(expr.keys, expr.values, strict=True):
            if isinstance(k, tree.Constant) and k.value == key:
                return v
    return tree.Subscript(expr, (tree.Constant(key),))


def _merge_records(ctx: Context, mask: tree.Expr, a: Side, b: Side, node: tree.Node, dtype: FloatDtype) -> tree.Expr:
    assert isinstance(a.kind, Instance)
    assert isinstance(b.kind, Instance)
    fields = ctx.program.fields(a.kind.key) if a.kind.key is b.kind.key else None
    if fields is None:
        ctx.refuse("merge-not-numeric", node, "one side is an object that is no NamedTuple or dataclass")
        return a.expr
    table = ctx.facts.attributes.get(a.kind.key, {})
    arguments = []
    for k, name in enumerate(fields):
        kind = table.get(name, Unknown(True))
        sides = [Side(_field(s.expr, name, k), kind) for s in (a, b)]
        exact = [Side(s.expr, ctx.kind(s.expr) if not isinstance(ctx.kind(s.expr), Bottom) else kind) for s in sides]
        arguments.append(tree.Argument(merge(ctx, mask, exact[0], exact[1], node, dtype), name))
    func = next((s.expr.func for s in (a, b) if isinstance(s.expr, tree.Call)), None)
    result = tree.Call(func or tree.Name(a.kind.key.node.name), tuple(arguments))
    ctx.made_kinds[result] = a.kind
    return result


def _field(expr: tree.Expr, name: str, k: int) -> tree.Expr:
    if isinstance(expr, tree.Call) and not any(arg.star for arg in expr.args):
        for arg in expr.args:
            if arg.keyword == name:
                return arg.value
        if k < len(expr.args) and expr.args[k].keyword is None:
            return expr.args[k].value
    return tree.Attribute(expr, name)


__all__ = ["FloatDtype", "Side", "as_tensor", "is_floating", "merge"]
