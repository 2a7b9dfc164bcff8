"""Kinds: what is known of an expression's value, and how two of them join.

The order is Bottom < Static < Number < Tensor < Unknown, with containers of those. A Static
value is Python's own business, the same for all samples; a Number is a Python number that a
data-dependent branch or idiom has made different from sample to sample (after conversion, a
tensor); a Tensor is batched or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from if2where.kinds import dtypes

#: A shape's extents; None where one is not known, Ellipsis (only last) where further ones may follow.
Shape = tuple[Any, ...]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True)
class Kind:
    """What is known of a value."""


@dataclass(frozen=True)
class Bottom(Kind):
    """Nothing has been seen yet: not computed, or never reached."""


@dataclass(frozen=True)
class Static(Kind):
    """A Python value that is the same for all samples.

    ``what`` is "bool", "int", "float", "str", "none", "module", "dtype", "exception" or "" where
    not known; ``value`` the value itself where it is a known literal, or a module's dotted name.
    """

    what: str = ""
    value: Any = MISSING


@dataclass(frozen=True)
class Number(Kind):
    """A Python number ("bool", "int" or "float") that differs from sample to sample."""

    what: str


@dataclass(frozen=True)
class Tensor(Kind):
    """A tensor. ``dtype`` is a name ("float64") or a symbol (see promote); ``shape`` None where unknown.

    ``optional`` tells that on some path the value is a Python number still.
    """

    batched: bool
    dtype: str | None = None
    shape: Shape | None = None
    optional: bool = False


@dataclass(frozen=True)
class Sequence(Kind):
    """A tuple or list; ``items`` None where the length is not known, ``element`` then the join of all."""

    form: str
    items: tuple[Kind, ...] | None
    element: Kind = Bottom()


@dataclass(frozen=True)
class Mapping(Kind):
    """A dict with literal keys, in order; ``exact`` False where other keys may be there."""

    keys: tuple[Any, ...]
    values: tuple[Kind, ...]
    exact: bool = True

    def get(self, key: Any) -> Kind | None:
        for k, v in zip(self.keys, self.values, strict=True):
            if k == key and type(k) is type(key):
                return v
        return None


@dataclass(frozen=True)
class Function(Kind):
    """One of several functions of the program, by the key under which it is registered."""

    keys: frozenset[Any]


@dataclass(frozen=True)
class ClassObject(Kind):
    """A class of the program, by its key."""

    key: Any


@dataclass(frozen=True)
class Instance(Kind):
    """An object of a class of the program; ``made`` where it was made during the call."""

    key: Any
    made: bool


@dataclass(frozen=True)
class Bound(Kind):
    """A method bound to an object, ready to be called."""

    receiver: Kind
    keys: frozenset[Any]


@dataclass(frozen=True)
class Unknown(Kind):
    """Anything; ``batched`` where it may depend on batched values."""

    batched: bool


STATIC = Static()
BOTTOM = Bottom()


def join(a: Kind, b: Kind) -> Kind:
    """What is known of a value that is one of the two."""
    if a == b or isinstance(b, Bottom):
        return a
    if isinstance(a, Bottom):
        return b
    if isinstance(a, Static) and isinstance(b, Static):
        if a.what == b.what:
            return Static(a.what)
        numbers = ("bool", "int", "float")
        return Static(max(a.what, b.what, key=numbers.index)) if {a.what, b.what} <= set(numbers) else STATIC
    if isinstance(a, Number | Static) and isinstance(b, Number | Static):
        if not a.what or not b.what or {a.what, b.what} - {"bool", "int", "float"}:
            return Unknown(True)
        return Number(max(a.what, b.what, key=("bool", "int", "float").index))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return Tensor(
            a.batched or b.batched,
            promote(a.dtype, b.dtype),
            join_shapes(a.shape, b.shape),
            a.optional or b.optional,
        )
    for t, n in ((a, b), (b, a)):
        if isinstance(t, Tensor) and isinstance(n, Number | Static) and n.what in ("bool", "int", "float"):
            return Tensor(t.batched or isinstance(n, Number), promote_number(t.dtype, n.what), t.shape, True)
    if isinstance(a, Sequence) and isinstance(b, Sequence):
        form = a.form if a.form == b.form else "list"
        if a.items is not None and b.items is not None and len(a.items) == len(b.items):
            return Sequence(form, tuple(map(join, a.items, b.items)))
        return Sequence(form, None, join(element(a), element(b)))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        keys = list(dict.fromkeys([*a.keys, *b.keys]))
        values = tuple(join(a.get(k) or BOTTOM, b.get(k) or BOTTOM) for k in keys)
        return Mapping(tuple(keys), values, a.exact and b.exact and set(a.keys) == set(b.keys))
    if isinstance(a, Function) and isinstance(b, Function):
        return Function(a.keys | b.keys)
    if isinstance(a, Instance) and isinstance(b, Instance) and a.key == b.key:
        return Instance(a.key, a.made and b.made)
    if isinstance(a, Bound) and isinstance(b, Bound):
        return Bound(join(a.receiver, b.receiver), a.keys | b.keys)
    return Unknown(depends(a) or depends(b))


def join_all(kinds: Iterable[Kind]) -> Kind:
    result: Kind = BOTTOM
    for kind in kinds:
        result = join(result, kind)
    return result


def element(kind: Sequence) -> Kind:
    return kind.element if kind.items is None else join_all(kind.items)


def depends(kind: Kind) -> bool:
    """Whether a value of this kind may differ from sample to sample."""
    if isinstance(kind, Number):
        return True
    if isinstance(kind, Tensor | Unknown):
        return kind.batched
    if isinstance(kind, Sequence):
        return depends(element(kind))
    if isinstance(kind, Mapping):
        return any(map(depends, kind.values))
    return False


def taint(kind: Kind) -> Kind:
    """The kind of a value that a data-dependent choice has picked: each leaf differs by sample."""
    if isinstance(kind, Static):
        return Number(kind.what) if kind.what in ("bool", "int", "float") else kind
    if isinstance(kind, Tensor):
        return replace(kind, batched=True)
    if isinstance(kind, Sequence):
        items = None if kind.items is None else tuple(map(taint, kind.items))
        return Sequence(kind.form, items, taint(kind.element))
    if isinstance(kind, Mapping):
        return replace(kind, values=tuple(map(taint, kind.values)))
    if isinstance(kind, Unknown):
        return Unknown(True)
    return kind


# --- dtypes ---------------------------------------------------------------------------------
#
# A dtype is torch's name for it, or a symbol: "@x" is that of the parameter x, "@x,y" what those of
# x and y promote to, "@x+f" what x has after meeting a Python float (its own where that is
# floating), "@+f" torch's default.


DEFAULT_FLOAT = "@+f"


def is_floating(dtype: str | None) -> bool:
    if dtype is None:
        return False
    return dtype.endswith("+f") if dtype.startswith("@") else dtypes.category(dtype) == "float"


def symbol_names(dtype: str) -> list[str]:
    """The parameters of a symbol: ["x", "y"] for "@x,y+f"."""
    return [n for n in dtype.removeprefix("@").removesuffix("+f").split(",") if n]


def promote(a: str | None, b: str | None) -> str | None:
    if a == b:
        return a
    if a is None or b is None:
        return None
    if a.startswith("@") and b.startswith("@"):
        names = sorted({n for s in (a, b) for n in symbol_names(s)})
        if DEFAULT_FLOAT in (a, b) or len(names) > 4:
            return None
        return f"@{','.join(names)}{'+f' if is_floating(a) or is_floating(b) else ''}"
    if not a.startswith("@") and not b.startswith("@"):
        return dtypes.promote(a, b)
    symbol, name = (a, b) if a.startswith("@") else (b, a)
    if name == "bool" or (is_floating(symbol) and dtypes.category(name) == "int"):
        return symbol
    return "float64" if name == "float64" else None


def promote_number(dtype: str | None, what: str) -> str | None:
    """The dtype of a tensor that has met a Python number ("bool", "int" or "float")."""
    if dtype is None:
        return None
    if what == "float":
        if dtype.startswith("@"):
            return dtype if dtype.endswith("+f") else dtype + "+f"
        return dtype if dtypes.category(dtype) in ("float", "complex") else DEFAULT_FLOAT
    if what == "int":
        return "int64" if dtype == "bool" else dtype
    return dtype


def to_float(dtype: str | None) -> str | None:
    """The dtype of a floating function's result: that of the operand where it is floating, else the default."""
    return promote_number(dtype, "float")


# --- shapes ---------------------------------------------------------------------------------


def rank(shape: Shape | None) -> int | None:
    return None if shape is None or Ellipsis in shape else len(shape)


def join_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    if a == b:
        return a
    if a is None or b is None or rank(a) != rank(b) or rank(a) is None:
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    if a == () or b == ():
        return b if a == () else a
    if a is None or b is None or rank(a) is None or rank(b) is None:
        return None
    n = max(len(a), len(b))
    long_a, long_b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    return tuple(y if x == 1 else x if y == 1 or x == y else None for x, y in zip(long_a, long_b, strict=True))


def shapes_differ(a: Shape | None, b: Shape | None) -> bool:
    """Whether the two are evidently not the same shape."""
    if a is None or b is None:
        return False
    for x, y in zip(a, b, strict=False):
        if x is Ellipsis or y is Ellipsis:
            return False
        if x is not None and y is not None and x != y:
            return True
    short, long = sorted((a, b), key=len)
    return len(short) != len(long) and Ellipsis not in short and long[len(short)] is not Ellipsis
