"""torch's type promotion on dtype names, as plain data (torch's documentation, "Type promotion")."""

from __future__ import annotations

_INTEGERS = ("int8", "int16", "int32", "int64")
_FLOATS = ("float32", "float64")


def category(name: str) -> str:
    """ "bool", "int", "float" or "complex"."""
    if name == "bool":
        return "bool"
    if name.startswith(("int", "uint")):
        return "int"
    return "complex" if name.startswith("complex") else "float"


def promote(a: str, b: str) -> str | None:
    """The dtype of an operation on tensors of the two dtypes; None for pairs that are not in use."""
    if a == b:
        return a
    order = ("bool", "int", "float", "complex")
    if category(a) != category(b):
        wide = max(a, b, key=lambda n: order.index(category(n)))
        narrow = b if wide == a else a
        if category(wide) == "complex" and narrow == "float64":
            return "complex128"
        return wide
    if category(a) == "float":
        if {a, b} <= {"float16", "bfloat16"}:
            return "float32"
        return max((n for n in (a, b) if n in _FLOATS), key=_FLOATS.index, default=None)
    if category(a) == "int":
        if "uint8" in (a, b):
            other = b if a == "uint8" else a
            return "int16" if other == "int8" else other
        if a in _INTEGERS and b in _INTEGERS:
            return max(a, b, key=_INTEGERS.index)
        return None
    return "complex128" if "complex128" in (a, b) else "complex64"
