"""A diagnostic: a code at a place in a file."""

from __future__ import annotations

from dataclasses import dataclass

from if2where.diagnostics.codes import BY_CODE, BY_NAME, Code


@dataclass(frozen=True)
class Diagnostic:
    """A refusal or note. ``line`` and ``col`` count from 1; ``detail`` adds to the code's own summary."""

    code: Code
    path: str
    line: int
    col: int
    detail: str = ""
    function: str = ""

    @property
    def is_note(self) -> bool:
        return self.code.code < "IW100"

    @property
    def message(self) -> str:
        return f"{self.code.summary}{': ' if self.detail else ''}{self.detail}"


def render_text(diagnostic: Diagnostic) -> str:
    """``path:line:col: CODE message`` and, on a line of its own, how to mend it."""
    d = diagnostic
    where = f" (in {d.function})" if d.function else ""
    return f"{d.path}:{d.line}:{d.col}: {d.code.code} {d.message}{where}\n    {d.code.hint}"


def explain(name: str) -> str | None:
    """What a code (or its name) means, with an example; None for one that is not known."""
    code = BY_CODE.get(name.upper()) or BY_NAME.get(name)
    if code is None:
        return None
    example = "".join(f"\n    {line}" for line in code.example.splitlines())
    shown = f"\n\nExample:\n{example}" if example else ""
    return f"{code.code} {code.name}: {code.summary}\n\n{code.reason}{shown}\n\nTo mend it: {code.hint}."
