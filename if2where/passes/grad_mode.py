"""Where autograd is off: functions decorated with ``torch.no_grad``, and ``with`` blocks of it."""

from __future__ import annotations

from if2where.kinds.lattice import Static
from if2where.passes.context import Context
from if2where.region import tree

_OFF = ("no_grad", "inference_mode")


def turns_off(decorator: tree.Expr) -> bool:
    """Whether a decorator runs the function without autograd."""
    func = decorator.func if isinstance(decorator, tree.Call) else decorator
    name = func.attr if isinstance(func, tree.Attribute) else func.id if isinstance(func, tree.Name) else ""
    return name in _OFF


def is_off(context: tree.Expr, ctx: Context) -> bool:
    """Whether a ``with`` block's context switches autograd off."""
    return _named(context, ctx) in _OFF


def is_on(context: tree.Expr, ctx: Context) -> bool:
    """Whether a ``with`` block's context may switch autograd on again."""
    return _named(context, ctx) in ("enable_grad", "set_grad_enabled")


def _named(context: tree.Expr, ctx: Context) -> str:
    func = context.func if isinstance(context, tree.Call) else context
    kind = ctx.facts.kind(func)
    return str(kind.value).rsplit(".", 1)[-1] if isinstance(kind, Static) and kind.what == "torch" else ""
