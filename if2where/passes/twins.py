"""Twins: second versions of helpers, which stand beside the originals.

A helper under a mask whose operations may do harm gets one that takes the mask, and guards them by
it. A helper that is called with plain numbers elsewhere gets one that is converted, and stays itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from if2where.program import Callee
from if2where.region import tree


@dataclass(frozen=True)
class Twin:
    """A second version: its name, and the keyword by which it takes the mask (None where it takes none)."""

    name: str
    mask: str | None = None


#: Gives the text of a function under a new name, with the mask as a parameter; None where it is refused.
Make = Callable[[Callee, Twin], str | None]


@dataclass
class Twins:
    """The second versions that the conversion of a program has asked for."""

    make: Make
    masked: dict[Callee, Twin | None] = field(default_factory=dict)
    plain: dict[Callee, Twin] = field(default_factory=dict)
    texts: dict[Callee, list[tuple[str, str]]] = field(default_factory=dict)

    def under_mask(self, callee: Callee, call: tree.Call, caller: Callee) -> Twin | None:
        """The version of a helper that takes a mask, for a call of it; None where there can be none."""
        if not _reachable(callee, call, caller):
            return None
        if callee not in self.masked:
            twin = Twin(_free(callee, f"{_name(callee)}_masked"), _mask_name(callee))
            # Named before it is made: it may call itself.
            self.masked[callee] = twin
            text = self.make(callee, twin)
            if text is None:
                self.masked[callee] = None
            else:
                self.texts.setdefault(callee, []).append((twin.name, text))
        return self.masked[callee]

    def named(self, callee: Callee) -> Twin:
        """The version of a helper that is converted while the helper stays."""
        if callee not in self.plain:
            self.plain[callee] = Twin(_free(callee, f"{_name(callee)}_batched"))
        return self.plain[callee]


def beside(callee: Callee, twins: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What goes behind the function's own text."""
    gap = callee.unit.newline * (2 if callee.owner is not None else 3)
    for _, text in twins:
        yield gap + _indent(callee) + text


def copyable(callee: Callee) -> bool:
    """Whether a second function may stand beside this one: at the top of its module, or in a class."""
    node = callee.node
    if not isinstance(node, tree.FunctionDef) or callee.parent is not None or callee.span is None or node.is_async:
        return False
    if callee.is_property or any(p.kind in ("star", "double star") for p in callee.params):
        return False
    if any(not isinstance(d, tree.Name) or d.id not in ("staticmethod", "classmethod") for d in node.decorators):
        return False
    return callee.span.parent is None


def _reachable(callee: Callee, call: tree.Call, caller: Callee) -> bool:
    """Whether the caller reaches the twin as it reaches the function."""
    if not copyable(callee):
        return False
    if isinstance(call.func, tree.Name):
        return callee.module is caller.module and call.func.id == _name(callee)
    return isinstance(call.func, tree.Attribute) and callee.owner is not None and call.func.attr == _name(callee)


def redirected(call: tree.Call, twin: Twin) -> tree.Call:
    """The call, of the twin; its mask is yet to be added."""
    if isinstance(call.func, tree.Attribute):
        return tree.Call(tree.Attribute(call.func.value, twin.name), call.args)
    return tree.Call(tree.Name(twin.name), call.args)


def _name(callee: Callee) -> str:
    assert isinstance(callee.node, tree.FunctionDef)
    return callee.node.name


def _free(callee: Callee, wanted: str) -> str:
    """The name, or one like it, that the module does not use."""
    text = callee.module.source.text
    names = (wanted if k < 2 else f"{wanted}_{k}" for k in range(1, len(text) + 2))
    return next(n for n in names if not re.search(rf"\b{n}\b", text))


def _mask_name(callee: Callee) -> str:
    names = ("mask" if k < 2 else f"mask_{k}" for k in range(1, len(callee.unit.text) + 2))
    return next(n for n in names if not re.search(rf"\b{n}\b", callee.unit.text))


def _indent(callee: Callee) -> str:
    assert callee.span is not None
    text, start = callee.module.source.text, callee.span.span[0]
    return text[max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1 : start]
