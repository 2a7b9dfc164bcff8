"""Values that are not finite, or grow until they are not: which tests keep them out, which operations mind.

The derivative of a product holds another operand. Zero times an infinite or NaN operand is NaN, so
a branch that such values never reach must not be fed them for the samples that it leaves out. That
matters where a test says so: one for NaN or infinity, or a bound on a variable whose powers overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from if2where.kinds.lattice import Number, Static, Tensor, Unknown
from if2where.ops import table
from if2where.passes.context import Context
from if2where.region import facts as region_facts
from if2where.region import tree

Key = region_facts.Key

_ASKS_FINITE = frozenset("isnan isinf isfinite isposinf isneginf isreal nan_to_num".split())
#: Linear in their operands: the derivative holds no value of theirs.
_LINEAR = frozenset(
    "add sub subtract neg negative positive sum mean nansum nanmean cumsum diff trace clone detach double float half "
    "bfloat16 to type_as reshape view view_as reshape_as flatten ravel squeeze unsqueeze expand expand_as broadcast_to "
    "permute transpose t movedim swapaxes contiguous stack cat concat concatenate hstack vstack dstack column_stack "
    "row_stack flip roll repeat tile repeat_interleave diag diagonal diag_embed tril triu narrow select unbind split "
    "chunk where real imag unfold index_select gather take pad zeros_like ones_like full_like empty_like rand_like "
    "randn_like new_zeros new_ones new_full new_empty new_tensor size dim numel item tolist type "
    "fft ifft rfft irfft fft2 ifft2 fftn ifftn".split()
)
#: Piecewise constant: no derivative to speak of.
_STEPS = frozenset("sign sgn signbit floor ceil round trunc fix heaviside argmax argmin argsort bool long int".split())
#: From this literal on, a bound on a magnitude is taken to keep out what is not finite.
LARGE = 1e3
#: A product of this degree in one variable has a derivative that overflows where the variable is large.
OVERFLOWING_DEGREE = 3


def leaves(node: tree.Node) -> Iterator[tree.Name]:
    """The variables in an expression."""
    for n in tree.walk(node):
        if isinstance(n, tree.Name):
            yield n


def asks_finite(test: tree.Expr) -> bool:
    """Whether a test tells values that are not finite from others: ``isnan(x)``, ``x != x``, ``abs(x) > 1e6``."""
    return any(_asks(n) for n in tree.walk(test))


def _asks(node: tree.Node) -> bool:
    if isinstance(node, tree.Call):
        return called(node) in _ASKS_FINITE
    if isinstance(node, tree.Unary) and node.op in ("~", "not") and isinstance(node.operand, tree.Compare):
        # Written so, and not with the comparison turned round, it catches NaN.
        return any(op in ("<", "<=", ">", ">=") for op in node.operand.ops)
    if not isinstance(node, tree.Compare):
        return False
    operands = [node.left, *node.rest]
    for left, op, right in zip(operands, node.ops, operands[1:]):
        if op in ("==", "!=") and region_facts.alike(left, right):
            return True
        if any(_infinite(x) for x in (left, right)):
            return True
        if any(_magnitude(a) and _large(b) for a, b in ((left, right), (right, left))):
            return True
    return False


def _infinite(node: tree.Expr) -> bool:
    if isinstance(node, tree.Unary):
        return _infinite(node.operand)
    if isinstance(node, tree.Constant):
        return isinstance(node.value, float) and math.isinf(node.value)
    if isinstance(node, tree.Attribute):
        return node.attr == "inf"
    if isinstance(node, tree.Call) and isinstance(node.func, tree.Name) and node.func.id == "float" and node.args:
        text = node.args[0].value
        return isinstance(text, tree.Constant) and str(text.value).lstrip("+-").lower() in ("inf", "infinity")
    return False


def _magnitude(node: tree.Expr) -> bool:
    if isinstance(node, tree.Call):
        return called(node) in ("abs", "absolute", "norm", "vector_norm") or any(
            _magnitude(c) for c in tree.children(node.func) if isinstance(c, tree.Expr)
        )
    return False


def _large(node: tree.Expr) -> bool:
    return isinstance(node, tree.Constant) and isinstance(node.value, int | float) and abs(node.value) >= LARGE


def called(node: tree.Call) -> str:
    if isinstance(node.func, tree.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, tree.Name) else getattr(node.func, "name", "")


@dataclass(frozen=True)
class Growth:
    """What one function's operations do to large operands. ``definition`` gives a variable's one value, or None."""

    ctx: Context
    definition: Callable[[Key], tree.Expr | None]

    def mixes(self, node: tree.Expr) -> bool:
        """Whether the derivative holds an operand: everything that is not linear."""
        if isinstance(node, tree.Binary):
            if node.op in ("*", "@"):
                return self._carries(node.left) and self._carries(node.right)
            if node.op == "/":
                # A denominator that is guarded itself takes no harm from what stands above it.
                return self._carries(node.right) and positive(node.right)
            return node.op == "**" and literal(node.right) != 1
        if isinstance(node, tree.Call):
            if not self._varies(node) and not isinstance(self.ctx.kind(node), Unknown):
                return False
            name = called(node)
            return not name.endswith("_") and name not in _LINEAR | _STEPS
        return False

    def overflows(self, node: tree.Expr) -> bool:
        """Whether the derivative holds a power of a variable: ``x * x * y``, ``x ** 3``."""
        if isinstance(node, tree.Binary) and node.op in ("*", "@"):
            sides = (node.left, node.right)
            highest = max((d for s in sides for d in self.degrees(s).values()), default=0)
            return all(map(self._carries, sides)) and highest >= OVERFLOWING_DEGREE - 1
        power = self._power(node)
        if power is not None:
            base, exponent = power
            return max(self.degrees(base).values(), default=0) * exponent >= OVERFLOWING_DEGREE
        return False

    def degrees(self, node: tree.Expr, depth: int = 6) -> dict[Key, float]:
        """To which power each variable stands in the expression, roughly; what is no polynomial counts as one factor."""
        if depth == 0 or not self._varies(node):
            return {}
        if isinstance(node, tree.Name):
            key = region_facts.key(node)
            value = self.definition(key)
            return {key: 1} if value is None else self.degrees(value, depth - 1)
        if isinstance(node, tree.Binary) and node.op in ("*", "@"):
            left, right = self.degrees(node.left, depth), self.degrees(node.right, depth)
            return {k: left.get(k, 0) + right.get(k, 0) for k in {*left, *right}}
        power = self._power(node)
        if power is not None:
            return {k: d * power[1] for k, d in self.degrees(power[0], depth).items()}
        if isinstance(node, tree.Binary) and node.op in ("+", "-"):
            return _highest([self.degrees(node.left, depth), self.degrees(node.right, depth)])
        if isinstance(node, tree.Binary) and node.op == "/":
            return self.degrees(node.left, depth)
        if isinstance(node, tree.Unary):
            return self.degrees(node.operand, depth)
        if isinstance(node, tree.Subscript):
            return self.degrees(node.value, depth)
        if isinstance(node, tree.Call) and called(node) in _LINEAR | {"abs"}:
            inner = [a.value for a in node.args]
            if isinstance(node.func, tree.Attribute):
                inner.append(node.func.value)
            return _highest([self.degrees(i, depth) for i in inner])
        return {}

    def _power(self, node: tree.Expr) -> tuple[tree.Expr, float] | None:
        """The base and exponent of a whole power that is written out."""
        if isinstance(node, tree.Binary) and node.op == "**":
            base: tree.Expr | None = node.left
            exponent = literal(node.right)
        elif isinstance(node, tree.Call) and called(node) == "square":
            base = node.args[0].value if node.args else getattr(node.func, "value", None)
            exponent = 2
        elif isinstance(node, tree.Call) and called(node) == "pow" and node.args:
            method = isinstance(node.func, tree.Attribute) and self._varies(node.func.value)
            base = node.func.value if method and isinstance(node.func, tree.Attribute) else node.args[0].value
            exponent = literal(node.args[-1].value)
        else:
            return None
        if base is None or not isinstance(exponent, int | float) or exponent < 2:
            return None
        return base, exponent

    def _varies(self, node: tree.Expr) -> bool:
        kind = self.ctx.kind(node)
        return isinstance(kind, Tensor | Number) or (isinstance(kind, Unknown) and kind.batched)

    def _carries(self, node: tree.Expr) -> bool:
        """Whether the value may carry a gradient, or be NaN in some samples: anything but a number that is the same for all."""
        return not isinstance(self.ctx.kind(node), Static)

    def shielded(self, node: tree.Expr) -> tree.Expr | None:
        """The operand that gets a guard of its own, being the operation's risky one; None where there is none."""
        if isinstance(node, tree.Binary) and node.op in ("/", "//", "%"):
            return node.right
        if isinstance(node, tree.Binary) and node.op == "**":
            return node.left if table.power(literal(node.right)).speculation == "partial" else None
        if isinstance(node, tree.Call):
            row = table.lookup(called(node))
            if row is None or row.speculation not in ("partial", "faulting") or not row.operands:
                return None
            func = self.ctx.kind(node.func)
            method = isinstance(node.func, tree.Attribute) and not (isinstance(func, Static) and func.what == "torch")
            position = row.operands[0].position - (method and not isinstance(node.func, tree.TorchName))
            if position < 0 and isinstance(node.func, tree.Attribute):
                return node.func.value
            return node.args[position].value if 0 <= position < len(node.args) else None
        return None


def _highest(many: list[dict[Key, float]]) -> dict[Key, float]:
    return {k: max(d.get(k, 0) for d in many) for k in {k for d in many for k in d}}


def literal(node: tree.Expr) -> object:
    if isinstance(node, tree.Constant):
        return node.value
    if (
        isinstance(node, tree.Unary)
        and node.op == "-"
        and isinstance(node.operand, tree.Constant)
        and isinstance(node.operand.value, int | float)
    ):
        return -node.operand.value
    return None


def positive(node: tree.Expr) -> bool:
    """Whether the expression is evidently above zero, and bounded away from it, at every finite operand."""
    if isinstance(node, tree.Constant):
        return isinstance(node.value, int | float) and node.value > 0
    if isinstance(node, tree.Binary) and node.op == "+":
        return (positive(node.left) and not_negative(node.right)) or (positive(node.right) and not_negative(node.left))
    if isinstance(node, tree.Binary) and node.op == "*":
        return positive(node.left) and positive(node.right)
    if isinstance(node, tree.Call):
        return any(a.keyword == "min" and positive(a.value) for a in node.args) and called(node) in (
            "clamp",
            "clip",
            "clamp_min",
        )
    return False


def not_negative(node: tree.Expr) -> bool:
    """Whether the expression is evidently zero or more, unless it is NaN."""
    if positive(node):
        return True
    if isinstance(node, tree.Binary) and node.op == "*":
        return _sign(_factors(node)) == 1
    if isinstance(node, tree.Binary) and node.op == "@":
        return _same(node.left, node.right)
    if isinstance(node, tree.Binary) and node.op == "**":
        exponent = literal(node.right)
        return isinstance(exponent, int) and exponent > 0 and exponent % 2 == 0
    if isinstance(node, tree.Binary) and node.op == "+":
        return not_negative(node.left) and not_negative(node.right)
    return isinstance(node, tree.Call) and called(node) in ("abs", "square")


def _same(a: tree.Expr, b: tree.Expr) -> bool:
    return isinstance(a, tree.Name) and isinstance(b, tree.Name) and (a.id, a.version) == (b.id, b.version)


def not_positive(node: tree.Expr) -> bool:
    """Whether the expression is evidently zero or less, unless it is NaN: ``-0.5 * x * x``."""
    return _sign(_factors(node)) == -1


def _factors(node: tree.Expr) -> list[tree.Expr]:
    if isinstance(node, tree.Binary) and node.op == "*":
        return _factors(node.left) + _factors(node.right)
    if isinstance(node, tree.Unary) and node.op == "-":
        return [tree.Constant(-1), *_factors(node.operand)]
    return [node]


def _sign(factors: list[tree.Expr]) -> int:
    """The sign of a product, 0 where it is not known: what stands there twice is a square."""
    sign = 1
    rest = list(factors)
    while rest:
        factor = rest.pop()
        number = literal(factor)
        twin = next((f for f in rest if _same(f, factor)), None)
        if twin is not None:
            rest.remove(twin)
        elif isinstance(number, int | float):
            sign = sign if number >= 0 else -sign
        elif not not_negative(factor):
            return 0
    return sign
