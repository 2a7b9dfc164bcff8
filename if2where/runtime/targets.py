"""A callable taken apart: the function under it, and what it is bound to."""

from __future__ import annotations

import ast
import functools
import types
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from if2where.program import Callee
from if2where.runtime.live import unwrapped


def in_class(callee: Callee) -> bool:
    """Whether the function is defined in a class and takes the object first."""
    assert callee.span is not None
    decorators = getattr(callee.span.node, "decorator_list", [])
    return callee.span.owner is not None and not any(
        isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators
    )


class Target(NamedTuple):
    """A callable taken apart: its function, and the arguments that it comes with."""

    function: Any  # types.FunctionType, which a type checker takes for a method here
    receiver: Any = None
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = MappingProxyType({})  # type: ignore[assignment]
    #: Whether the call finds the function in the object's class, as it does for ``model(x)``.
    through_class: bool = False


def target_of(fn: Any) -> Target:
    if isinstance(fn, torch.jit.ScriptFunction | torch.jit.ScriptModule) or hasattr(fn, "_torchdynamo_orig_callable"):
        raise TypeError(f"{fn!r} is compiled: convert the function first, and compile the result")
    if isinstance(fn, types.FunctionType):
        return Target(unwrapped(fn))
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return Target(unwrapped(fn.__func__), fn.__self__)
    if isinstance(fn, functools.partial):
        inner = target_of(fn.func)
        return inner._replace(args=(*inner.args, *fn.args), keywords={**inner.keywords, **fn.keywords})
    name = "forward" if isinstance(fn, torch.nn.Module) else "__call__"
    if name in getattr(fn, "__dict__", {}):
        raise TypeError(f"{type(fn).__qualname__}: {name} is set on the object; convert that function itself")
    function = next((vars(c)[name] for c in type(fn).__mro__ if name in vars(c)), None)
    if isinstance(fn, type) or not isinstance(function, types.FunctionType):
        raise TypeError(f"cannot convert {fn!r}: it is no function, method, partial, module or object with __call__")
    return Target(unwrapped(function), fn, through_class=True)
