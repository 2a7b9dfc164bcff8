"""Function objects: ``convert`` gives the converted function, ``vmap`` maps it over a batch."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, overload

import torch

from if2where.pipeline import Options, deep_recursion
from if2where.runtime.conversion import Call, ConversionRefused, Converted, convert_object
from if2where.runtime.live import Trace, is_batched

__all__ = ["ConversionRefused", "convert", "vmap"]


@overload
def convert(
    fn: None = None,
    *,
    in_dims: Any = 0,
    example_inputs: tuple[Any, ...] | None = None,
    guards: str = "auto",
    checks: str = "keep",
    max_iterations: int | None = None,
    allow_random: bool = False,
) -> Callable[[Any], Any]: ...


@overload
def convert(
    fn: Callable[..., Any],
    *,
    in_dims: Any = 0,
    example_inputs: tuple[Any, ...] | None = None,
    guards: str = "auto",
    checks: str = "keep",
    max_iterations: int | None = None,
    allow_random: bool = False,
) -> Any: ...


def convert(
    fn: Callable[..., Any] | None = None,
    *,
    in_dims: Any = 0,
    example_inputs: tuple[Any, ...] | None = None,
    guards: str = "auto",
    checks: str = "keep",
    max_iterations: int | None = None,
    allow_random: bool = False,
) -> Any:
    """The function with its data-dependent branches turned into ``torch.where``, for ``torch.func.vmap``.

    ``fn`` is a function, lambda, method, ``functools.partial``, ``nn.Module`` or other callable object;
    ``in_dims`` is vmap's (an int, None, or a tuple with an entry for each argument), ``example_inputs`` a
    tuple of arguments as vmap gets them (with their batch dimensions), from which kinds are taken instead
    of guessed. Without ``fn``, a decorator.

    Functions that ``fn`` calls are converted with it; nothing of theirs or of ``fn`` itself is changed. A
    function that needs no conversion is given back as it is. Raises ConversionRefused where the conversion
    would not be exact, SourceUnavailable where there is no source to convert.
    """
    if fn is None:
        return functools.partial(
            convert,
            in_dims=in_dims,
            example_inputs=example_inputs,
            guards=guards,
            checks=checks,
            max_iterations=max_iterations,
            allow_random=allow_random,
        )
    options = Options("vmapped", guards=guards, checks=checks, max_iterations=max_iterations, allow_random=allow_random)
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(_converted(fn.__func__, options, Call(in_dims, example_inputs)).result)
    return _converted(fn, options, Call(in_dims, example_inputs)).result


def vmap(
    fn: Callable[..., Any] | None = None,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Any:
    """``torch.func.vmap`` of the converted function; arguments as there. Without ``fn``, a decorator.

    The function is converted when it is first called, with kinds taken from the arguments (and again where
    arguments of another structure come, or a helper has been redefined): ConversionRefused and
    SourceUnavailable are raised then.
    """
    if fn is None:
        return functools.partial(vmap, in_dims=in_dims, out_dims=out_dims, randomness=randomness, chunk_size=chunk_size)
    function = fn
    options = Options("vmapped", allow_random=randomness != "error")
    mappings: dict[Any, tuple[Callable[..., Any], tuple[Trace, ...]]] = {}

    @functools.wraps(function, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        key = tuple(map(_sketch, args))
        if kwargs:
            key += tuple((k, _sketch(v)) for k, v in kwargs.items())
        found = mappings.get(key)
        if found is None or (found[1] and not all(trace.holds() for trace in found[1])):
            kept = _converted(function, options, Call(in_dims, args, kwargs))
            bare = torch.func.vmap(kept.result, in_dims, out_dims, randomness, chunk_size=chunk_size)
            found = mappings[key] = bare, kept.traces
        return found[0](*args, **kwargs)

    mapped.__dict__["if2where_mapped"] = True
    return mapped


def _sketch(value: Any) -> Any:
    """What of an argument a conversion may hang on."""
    kind = type(value)
    if kind is torch.Tensor or isinstance(value, torch.Tensor):  # the second is slow, and seldom asked
        return value.dtype, value.ndim, is_batched(value)
    if kind is tuple or kind is list:
        return kind, *map(_sketch, value)
    if kind is dict:
        return kind, *((k, _sketch(v)) for k, v in value.items())
    return kind


# --- conversions that are kept --------------------------------------------------------------


#: The conversions made last, oldest first. Bounded: an entry keeps its function, and what that holds, alive.
_kept: dict[Any, Converted] = {}
_LARGEST = 256


def _converted(fn: Any, options: Options, call: Call) -> Converted:
    """The conversion of the function, from those that were made before where nothing has changed since."""
    key = _key(fn, options, call)
    kept = _kept.pop(key, None)
    if kept is None or not all(trace.holds() for trace in kept.traces):
        with deep_recursion():
            kept = convert_object(fn, options, call)
        if len(_kept) >= _LARGEST:
            del _kept[next(iter(_kept))]
    _kept[key] = kept
    return kept


def _key(fn: Any, options: Options, call: Call) -> Any:
    given = () if call.args is None else (tuple(map(_sketch, call.args)),)
    named = tuple((k, _sketch(v)) for k, v in (call.kwargs or {}).items())
    # A bound method is another object each time it is asked for; a function's code may be replaced.
    identity = (id(fn.__func__), id(fn.__self__)) if isinstance(fn, types.MethodType) else id(fn)
    return identity, getattr(fn, "__code__", None), options, repr(call.in_dims), given, named
