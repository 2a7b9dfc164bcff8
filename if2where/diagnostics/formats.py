"""Diagnostics for other programs: JSON, SARIF 2.1.0, and GitHub's workflow annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from if2where.diagnostics.codes import CODES
from if2where.diagnostics.diagnostic import Diagnostic, render_text


def render(diagnostics: Sequence[Diagnostic], output_format: str) -> str:
    """All diagnostics in one of ``settings.FORMATS``, without a last newline."""
    if output_format == "json":
        return json.dumps([_as_json(d) for d in diagnostics], indent=2)
    if output_format == "sarif":
        return json.dumps(_as_sarif(diagnostics), indent=2)
    line = _as_github if output_format == "github" else render_text
    return "\n".join(line(d) for d in diagnostics)


def _as_json(d: Diagnostic) -> dict[str, Any]:
    return {
        "code": d.code.code,
        "name": d.code.name,
        "path": d.path,
        "line": d.line,
        "column": d.col,
        "message": d.message,
        "hint": d.code.hint,
        "function": d.function,
        "severity": "note" if d.is_note else "error",
    }


def _as_github(d: Diagnostic) -> str:
    level = "notice" if d.is_note else "error"
    return f"::{level} file={d.path},line={d.line},col={d.col},title={d.code.code}::{d.message}. {d.code.hint}"


def _as_sarif(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    used = {d.code.code for d in diagnostics}
    rules = [
        {
            "id": c.code,
            "name": c.name,
            "shortDescription": {"text": c.summary},
            "fullDescription": {"text": c.reason},
            "help": {"text": c.hint},
        }
        for c in CODES
        if c.code in used
    ]
    results = [
        {
            "ruleId": d.code.code,
            "level": "note" if d.is_note else "error",
            "message": {"text": d.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": d.path.replace("\\", "/")},
                        "region": {"startLine": d.line, "startColumn": d.col},
                    }
                }
            ],
        }
        for d in diagnostics
    ]
    tool = {"driver": {"name": "if2where", "rules": rules}}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": results}],
    }
