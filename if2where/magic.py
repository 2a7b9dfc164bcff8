"""The IPython magic ``%%if2where``: a cell whose functions are converted before it is run."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from if2where.converting import coloured, diff
from if2where.diagnostics.diagnostic import render_text
from if2where.module import SourceError
from if2where.pipeline import Options, convert_source

_USAGE = "usage: %%if2where [--diff] [--guards auto|all|none] [--max-iterations N] [--allow-random] [FUNCTION ...]"


def load_ipython_extension(shell: Any) -> None:
    """For ``%load_ext if2where``."""

    def magic(line: str, cell: str) -> None:
        """Converts the functions of the cell (those named, or all), then runs it.

        What is refused is told of, and runs as it was written.
        """
        shell.run_cell(converted(line, cell))

    shell.register_magic_function(magic, "cell", "if2where")


def converted(line: str, cell: str) -> str:
    """The cell's text, converted; tells of refusals on stderr and with ``--diff`` of what was changed."""
    options, show = _options(line)
    try:
        result = convert_source(cell, "cell", options)
    except SourceError:
        # Running the cell shows what is wrong with it, as ever.
        return cell
    for diagnostic in (*result.refusals, *result.notes):
        print(render_text(diagnostic), file=sys.stderr)
    if show:
        print(coloured(diff("cell", cell, result.text)), end="")
    return result.text


def _options(line: str) -> tuple[Options, bool]:
    words, show = shlex.split(line), False
    given: dict[str, Any] = {}
    functions: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--diff":
            show = True
        elif word == "--allow-random":
            given["allow_random"] = True
        elif word == "--guards" and words and words[0] in ("auto", "all", "none"):
            given["guards"] = words.pop(0)
        elif word == "--max-iterations" and words and words[0].isdigit() and int(words[0]) > 0:
            given["max_iterations"] = int(words.pop(0))
        elif word.startswith("-"):
            raise ValueError(f"{word}: {_USAGE}")
        else:
            functions.append(word)
    return Options(scope="auto", functions=tuple(functions), **given), show
