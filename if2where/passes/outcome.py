"""How samples leave a block: a small tree over the tests that decide it.

``FALL`` is the hole through which control goes on behind the block; the other leaves are exits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from if2where.kinds.lattice import Kind
from if2where.region import tree


@dataclass(frozen=True, eq=False)
class Outcome:
    """One way, or several decided by tests, in which a block ends."""


@dataclass(frozen=True, eq=False)
class Leaf(Outcome):
    """``what`` is "fall", "break", "continue", "return" or "dead" (this place is not reached)."""

    what: str


@dataclass(frozen=True, eq=False)
class Value(Leaf):
    """A return of a value, already evaluated (an atom or an expression that may be moved to the end)."""

    expr: tree.Expr
    kind: Kind
    stmt: tree.Stmt


@dataclass(frozen=True, eq=False)
class Branch(Outcome):
    """``then`` for the samples in the mask, ``orelse`` for the others."""

    mask: tree.Expr
    then: Outcome
    orelse: Outcome


FALL = Leaf("fall")
BREAK = Leaf("break")
CONTINUE = Leaf("continue")
DEAD = Leaf("dead")


def branch(mask: tree.Expr, then: Outcome, orelse: Outcome) -> Outcome:
    """A Branch, or less where both sides end alike."""
    if isinstance(then, Leaf) and then is orelse:
        return then
    return Branch(mask, then, orelse)


def leaves(outcome: Outcome) -> frozenset[str]:
    """The kinds of leaves that samples can reach."""
    if isinstance(outcome, Branch):
        return leaves(outcome.then) | leaves(outcome.orelse)
    assert isinstance(outcome, Leaf)
    return frozenset() if outcome.what == "dead" else frozenset([outcome.what])


def fill(outcome: Outcome, rest: Outcome) -> Outcome:
    """The outcome with ``rest`` in place of its holes."""
    if isinstance(outcome, Branch):
        then, orelse = fill(outcome.then, rest), fill(outcome.orelse, rest)
        return outcome if then is outcome.then and orelse is outcome.orelse else branch(outcome.mask, then, orelse)
    return rest if outcome is FALL else outcome


def condition(outcome: Outcome, wanted: Callable[[Leaf], bool]) -> tree.Expr | bool:
    """Where the outcome ends in a wanted leaf: True, False, or a mask over the tests."""
    if isinstance(outcome, Branch):
        a, b = condition(outcome.then, wanted), condition(outcome.orelse, wanted)
        return disjoin(conjoin(outcome.mask, a), conjoin(negate(outcome.mask), b)) if a is not b else a
    assert isinstance(outcome, Leaf)
    return wanted(outcome)


def negate(mask: tree.Expr | bool) -> tree.Expr | bool:
    if isinstance(mask, bool):
        return not mask
    if isinstance(mask, tree.Unary) and mask.op == "~":
        return mask.operand
    return tree.Unary("~", mask)


def conjoin(a: tree.Expr | bool, b: tree.Expr | bool) -> tree.Expr | bool:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return tree.Binary("&", a, b)


def disjoin(a: tree.Expr | bool, b: tree.Expr | bool) -> tree.Expr | bool:
    if isinstance(a, bool):
        return True if a else b
    if isinstance(b, bool):
        return True if b else a
    return tree.Binary("|", a, b)
