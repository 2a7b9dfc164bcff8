"""Names for what the conversion makes up: they say what they hold."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from if2where.region import tree

_OPERATORS = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "!=": "ne",
    "in": "in",
    "not in": "not_in",
    "and": "and",
    "or": "or",
    "not": "not",
    "-": "minus",
    "+": "plus",
    "*": "times",
    "/": "over",
}
#: Longer names than this say less than a plain one.
MAX_LENGTH = 24


def hint(node: tree.Expr, otherwise: str) -> str:
    """A name for the value of an expression: ``tmp > 5`` gives ``tmp_gt_5``; ``otherwise`` where it would be too long."""
    words = list(_words(node, 0))
    name = "_".join(words)
    usable = words and name.isidentifier() and len(name) <= MAX_LENGTH and not hasattr(builtins, name)
    return name if usable else otherwise


def _words(node: tree.Expr, depth: int) -> Iterator[str]:
    if depth > 3:
        yield "?"
    elif isinstance(node, tree.Name):
        yield node.id.strip("_") or node.id
    elif isinstance(node, tree.Constant):
        if isinstance(node.value, bool | int) or node.value is None:
            yield str(node.value).lower().replace("-", "minus_")
        elif isinstance(node.value, float) and node.value == int(node.value) and abs(node.value) < 1e6:
            yield str(int(node.value))
        else:
            yield "?"
    elif isinstance(node, tree.Attribute):
        yield node.attr
    elif isinstance(node, tree.Subscript):
        yield from _words(node.value, depth + 1)
        for item in node.items:
            yield from _words(item, depth + 1)
    elif isinstance(node, tree.Unary):
        yield _OPERATORS.get(node.op, "?")
        yield from _words(node.operand, depth + 1)
    elif isinstance(node, tree.Compare) and len(node.ops) == 1:
        yield from _words(node.left, depth + 1)
        yield _OPERATORS.get(node.ops[0], "?")
        yield from _words(node.rest[0], depth + 1)
    elif isinstance(node, tree.BoolOp | tree.Binary):
        yield from _words(node.left, depth + 1)
        yield _OPERATORS.get(node.op, "?")
        yield from _words(node.right, depth + 1)
    elif isinstance(node, tree.Call) and isinstance(node.func, tree.Attribute) and not node.args:
        if isinstance(node.func.value, tree.Name | tree.Call):
            yield from _words(node.func.value, depth + 1)
        yield node.func.attr
    elif isinstance(node, tree.Call) and len(node.args) == 1 and isinstance(node.func, tree.Name | tree.Attribute):
        yield node.func.id if isinstance(node.func, tree.Name) else node.func.attr
        yield from _words(node.args[0].value, depth + 1)
    else:
        yield "?"
