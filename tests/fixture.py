"""The fixtures: pairs of a module before and after, and modules that are refused."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from if2where.module import Source, SourceError, decode
from if2where.pipeline import Conversion, Options, convert_files

ROOT = Path(__file__).resolve().parent.parent / "fixtures"
CASES = Path(__file__).resolve().parent.parent.parent / "shared" / "cases"


@dataclass(frozen=True)
class Fixture:
    """One folder. ``constants`` are the module-level literals of ``before.py``: ENTRY, IN_DIMS, EXPECT, TRAPS, GRAD."""

    name: str

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @cached_property
    def source(self) -> Source:
        return decode((self.folder / "before.py").read_bytes(), "before.py")

    @cached_property
    def constants(self) -> dict[str, Any]:
        return constants(self.source.text)

    @property
    def expect(self) -> str:
        return str(self.constants.get("EXPECT", "convert"))

    def convert(self) -> Conversion:
        return convert(self.source)


def convert(source: Source) -> Conversion:
    result = convert_files([source], Options())[0]
    assert not isinstance(result, SourceError), result
    return result


def constants(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stmt in ast.parse(text).body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            try:
                found[stmt.targets[0].id] = ast.literal_eval(stmt.value)
            except ValueError:
                continue
    return found


def fixtures() -> list[Fixture]:
    return [Fixture(p.parent.name) for p in sorted(ROOT.glob("*/before.py"))]


def outside_functions(text: str) -> list[str]:
    """The text of the module-level statements that hold no function and no import."""
    kept = []
    for stmt in ast.parse(text).body:
        functions = any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for n in ast.walk(stmt))
        if not functions and not isinstance(stmt, ast.Import | ast.ImportFrom):
            kept.append(ast.get_source_segment(text, stmt) or "")
    return kept
