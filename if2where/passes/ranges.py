"""Ranges: where an operand lies in the samples that do not use an operation, and where that does no harm.

A range is a closed interval; a value lies in one of several. What is known comes from guards (a safe
value and what is computed from it) and from tests that hold there (``x == 0.25``, ``abs(x) < 1``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from if2where.ops import table
from if2where.passes import finite
from if2where.region import tree

Range = tuple[float, float]
Ranges = tuple[Range, ...]

MAX_RANGES = 4
#: Nearer to zero than this a quotient's derivative is no longer taken for harmless.
AWAY = 1e-3
LARGE = 1e3
#: Up to here an exponential is harmless in every dtype: half precision overflows above 11.
EXPONENT = 8.0

_INCREASING: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "tanh": math.tanh,
    "sinh": math.sinh,
    "asin": math.asin,
    "arcsin": math.asin,
    "atan": math.atan,
    "arctan": math.atan,
}
_DECREASING: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "acos": math.acos,
    "arccos": math.acos,
    "erfc": math.erfc,
}
#: Known at single values only.
_ELSE: dict[str, Callable[[float], float]] = {"sin": math.sin, "cos": math.cos}
#: Of equal entries, whatever their number, these are what an entry is.
_AVERAGES = frozenset("mean max min amax amin median".split())
#: These are larger, by what the number of entries decides.
_TOTALS = frozenset("norm vector_norm sum".split())

_SIZE = ((-math.inf, -AWAY), (AWAY, math.inf))
_HARMLESS: dict[str, Ranges] = {
    "/": _SIZE,
    "reciprocal": _SIZE,
    "sqrt": ((AWAY, math.inf),),
    "rsqrt": ((AWAY, math.inf),),
    "log": ((AWAY, math.inf),),
    "log2": ((AWAY, math.inf),),
    "log10": ((AWAY, math.inf),),
    "exp": ((-math.inf, EXPONENT),),
    "expm1": ((-math.inf, EXPONENT),),
    "exp2": ((-math.inf, EXPONENT),),
    "sinh": ((-EXPONENT, EXPONENT),),
    "cosh": ((-EXPONENT, EXPONENT),),
}


def harmless(found: Ranges, operation: str, safe: table.Safe) -> bool:
    """Whether values in these ranges are as harmless to the operation as its safe one, and not near to where harm begins."""
    good = _HARMLESS.get(operation)
    if good is None and safe == 1:
        good = ((AWAY, LARGE),)
    elif good is None and safe == 0:
        good = ((-0.9, 0.9),)
    if good is None:
        return all(r == (safe, safe) for r in found)
    return all(any(low <= a and b <= high for low, high in good) for a, b in found)


def settled(test: tree.Expr | None, held: bool, variable: tree.Name) -> Ranges | None:
    """Where a comparison with a literal says that the variable lies; None where it does not, or lets NaN through."""
    if not (isinstance(test, tree.Compare) and len(test.ops) == 1):
        return None
    left, op, right = test.left, test.ops[0], test.rest[0]
    bound = finite.literal(right)
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return None
    bound = float(bound)
    if (op == "==" and held) or (op == "!=" and not held):
        return ((bound, bound),) if _is(left, variable) else None
    if not held:
        # NaN fails every other comparison.
        return None
    if _is(left, variable):
        if op in ("<", "<="):
            return ((-math.inf, bound),)
        return ((bound, math.inf),) if op in (">", ">=") else None
    if isinstance(left, tree.Call) and finite.called(left) == "abs":
        inner = left.args[0].value if left.args else getattr(left.func, "value", None)
        if inner is not None and _is(inner, variable):
            if op in ("<", "<="):
                return ((-bound, bound),)
            return ((-math.inf, -bound), (bound, math.inf)) if op in (">", ">=") else None
    return None


def _is(node: tree.Expr, variable: tree.Name) -> bool:
    return isinstance(node, tree.Name) and (node.id, node.version) == (variable.id, variable.version)


def operands(node: tree.Expr, method: bool) -> list[tree.Expr] | None:
    """The operands of an operation whose range follows from theirs; None for any other.

    ``method``: whether the operation is called on its operand, and not as a function of a module.
    """
    if isinstance(node, tree.Binary) and node.op in ("+", "-", "*", "/", "**"):
        return [node.left, node.right]
    if isinstance(node, tree.Unary) and node.op == "-":
        return [node.operand]
    if isinstance(node, tree.Select):
        return [node.chosen, node.other]
    if not isinstance(node, tree.Call):
        return None
    name = finite.called(node)
    positional = [a.value for a in node.args if a.keyword is None]
    if method and isinstance(node.func, tree.Attribute):
        positional = [node.func.value, *positional]
    if len(positional) != 1 or any(a.star for a in node.args):
        return None
    keywords = {a.keyword for a in node.args if a.keyword is not None}
    if name in _AVERAGES | _TOTALS and not isinstance(node.func, tree.Name):
        # With a dimension, max and min give a pair.
        allowed = {"dim", "keepdim"} if name in {"mean", "amax", "amin", *_TOTALS} else set()
        return positional if keywords <= allowed else None
    if (
        keywords
        or isinstance(node.func, tree.Name)
        or name not in {*_INCREASING, *_DECREASING, *_ELSE, "abs", "square"}
    ):
        return None
    return positional


def evaluated(node: tree.Expr, parts: Sequence[Ranges]) -> Ranges | None:
    """The ranges of an operation, from those of its operands; None where they are not known."""
    if isinstance(node, tree.Select):
        return _joined([*parts[0], *parts[1]])
    try:
        if len(parts) == 2:
            assert isinstance(node, tree.Binary)
            found = [_binary(node.op, a, b) for a in parts[0] for b in parts[1]]
        else:
            name = "neg" if isinstance(node, tree.Unary) else finite.called(node) if isinstance(node, tree.Call) else ""
            found = [_unary(name, a) for a in parts[0]]
    except (ArithmeticError, ValueError):
        return None
    return _joined([r for r in found if r is not None]) if None not in found else None


def _joined(found: list[Range]) -> Ranges | None:
    kept = tuple(dict.fromkeys(found))
    return None if len(kept) > MAX_RANGES or any(math.isnan(x) for r in kept for x in r) else kept


def _binary(op: str, a: Range, b: Range) -> Range | None:
    if op == "+":
        return (a[0] + b[0], a[1] + b[1])
    if op == "-":
        return (a[0] - b[1], a[1] - b[0])
    if op == "**":
        # The exponent a literal, the base not negative.
        if b[0] != b[1] or b[0] <= 0 or (a[0] < 0 and a[0] != a[1]):
            return None
        return (a[0] ** b[0], a[1] ** b[0])
    if op == "/":
        if b[0] <= 0 <= b[1]:
            return None
        b = (1 / b[1], 1 / b[0])
    ends = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return (min(ends), max(ends))


def _unary(name: str, a: Range) -> Range | None:
    if name in _AVERAGES:
        return a
    if name in _TOTALS:
        if name != "sum":
            a = _size(a)
        # A sum of one entry is the entry, and each further one takes it away from zero.
        return (a[0], math.inf) if a[0] > 0 else (-math.inf, a[1]) if a[1] < 0 else None
    if name == "abs":
        return _size(a)
    if name == "square":
        low, high = _size(a)
        return (low * low, high * high)
    if name in _INCREASING:
        return (_INCREASING[name](a[0]), _INCREASING[name](a[1]))
    if name in _DECREASING:
        return (_DECREASING[name](a[1]), _DECREASING[name](a[0]))
    return (_ELSE[name](a[0]), _ELSE[name](a[0])) if a[0] == a[1] else None


def _size(a: Range) -> Range:
    low, high = min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))
    return (0.0 if a[0] <= 0 <= a[1] else low, high)
