"""The pipeline: text in, text out (being filled in)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from if2where.diagnostics.diagnostic import Diagnostic
    from if2where.module import Source, SourceError


@dataclass(frozen=True)
class Options:
    scope: str = "auto"
    functions: tuple[str, ...] = ()
    guards: str = "auto"
    checks: str = "keep"
    max_iterations: int | None = None
    allow_random: bool = False


@dataclass(frozen=True)
class Conversion:
    path: str
    text: str
    converted: tuple[str, ...]
    refusals: tuple[Diagnostic, ...]
    notes: tuple[Diagnostic, ...]
    scope: str
    unmatched: tuple[str, ...]


def convert_files(sources: Sequence[Source], options: Options) -> list[Conversion | SourceError]:
    raise NotImplementedError
