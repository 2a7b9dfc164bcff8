"""Demand: in which samples an operation's result is used, as conditions over mask variables.

A condition is a set of literals (mask, held or not), all of which must be so; a demand is a set
of conditions, one of which must be. The empty condition holds in every sample; the empty demand
in none.
"""

from __future__ import annotations

from dataclasses import dataclass

from if2where.region import facts as region_facts
from if2where.region import tree


@dataclass(frozen=True)
class Literal:
    """A mask and whether it holds. ``atom`` is a variable's key, or the mask expression itself where it has no name."""

    atom: region_facts.Key | tree.Expr
    held: bool


Condition = frozenset[Literal]
Demand = frozenset[Condition]

ALWAYS: Condition = frozenset()
ALL: Demand = frozenset([ALWAYS])
NEVER: Demand = frozenset()
#: A demand of more conditions than this is widened to what they have in common.
MAX_CONDITIONS = 6


def either(a: Demand, b: Demand) -> Demand:
    """Where one of the two demands holds, without conditions that another covers."""
    if a == b or not b:
        return a
    if not a:
        return b
    whole = a | b
    kept = [c for c in whole if not any(o < c for o in whole)]
    merged = _complementary(kept)
    if len(merged) > MAX_CONDITIONS:
        return frozenset([frozenset.intersection(*merged)])
    return frozenset(merged)


def _complementary(conditions: list[Condition]) -> list[Condition]:
    """Joins pairs that differ in one mask only: held or not, it does not matter."""
    changed = True
    while changed:
        changed = False
        for k, a in enumerate(conditions):
            for b in conditions[k + 1 :]:
                differ = a ^ b
                if len(differ) == 2 and len({x.atom for x in differ}) == 1:
                    joined = a & b
                    conditions = [c for c in conditions if c not in (a, b) and not joined <= c] + [joined]
                    changed = True
                    break
            if changed:
                break
    return conditions


def both(demand: Demand, more: Demand) -> Demand:
    """Where both hold."""
    result: Demand = NEVER
    for a in demand:
        for b in more:
            together = a | b
            if not any(Literal(x.atom, not x.held) in together for x in together):
                result = either(result, frozenset([together]))
    return result


def holds(mask: tree.Expr, held: bool = True) -> Demand:
    """The demand "the mask holds" (or does not), taken apart along ~, & and |."""
    if isinstance(mask, tree.Unary) and mask.op == "~":
        return holds(mask.operand, not held)
    if isinstance(mask, tree.Binary) and mask.op in ("&", "|") and mask.origin is None:
        a, b = holds(mask.left, held), holds(mask.right, held)
        return both(a, b) if (mask.op == "&") == held else either(a, b)
    if isinstance(mask, tree.Name):
        return frozenset([frozenset([Literal(region_facts.key(mask), held)])])
    return frozenset([frozenset([Literal(mask, held)])])


def named(demand: Demand) -> Demand:
    """The demand in terms of mask variables only, which makes it larger."""
    result: Demand = NEVER
    for condition in demand:
        result = either(result, frozenset([frozenset(x for x in condition if isinstance(x.atom, tuple))]))
    return result


def without(demand: Demand, atoms: frozenset[region_facts.Key], shrinking: frozenset[Literal]) -> Demand:
    """The demand with literals on the given mask variables dropped, which makes it larger.

    A literal that ever fewer samples fulfil (who is still in a loop) may stay: what it was earlier
    contains what it is later.
    """
    result: Demand = NEVER
    for condition in demand:
        kept = frozenset(x for x in condition if not (isinstance(x.atom, tuple) and x.atom in atoms) or x in shrinking)
        result = either(result, frozenset([kept]))
    return result


def begun(demand: Demand, literal: Literal, told: Demand) -> Demand:
    """The demand before a mask is set: for the literal stands what the value that the mask is set to tells."""
    if not any(literal in condition for condition in demand):
        return demand
    result: Demand = NEVER
    for condition in demand:
        before = both(frozenset([condition - {literal}]), told) if literal in condition else frozenset([condition])
        result = either(result, before)
    return result
