"""Notebooks: their code cells as one module's text, and the text put back, outputs and metadata kept."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from if2where.module import Source, SourceError

_CELL = "# --- if2where: cell {} ---"
_CELL_LINE = re.compile(r"^# --- if2where: cell (\d+) ---\n", re.MULTILINE)
#: A line that IPython understands and Python does not stands as a statement that does nothing.
_MAGIC = re.compile(r"^(?P<indent>[ \t]*)(?P<magic>[%!?].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
_HIDDEN = re.compile(r"^(?P<indent>[ \t]*)pass  # --- if2where: (?P<magic>.*)$", re.MULTILINE)
#: Cell magics under which the cell is still Python.
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "memit", "mprun", "python", "python3", "if2where")


@dataclass(frozen=True)
class Notebook:
    """A notebook as it was read. ``cells`` are the places of the code cells whose text is in ``source``."""

    raw: str
    content: dict[str, Any]
    cells: tuple[int, ...]
    source: Source

    def place(self, text: str, line: int) -> tuple[int, int]:
        """The cell, counted from 1 over all cells, and the line in it, of a line of the joined text."""
        before = text.splitlines(keepends=True)[:line]
        marks = [k for k, row in enumerate(before) if _CELL_LINE.match(row)]
        if not marks:
            return self.cells[0] + 1, line
        found = _CELL_LINE.match(before[marks[-1]])
        assert found is not None
        return int(found.group(1)), line - marks[-1] - 1

    def cell_texts(self, text: str) -> list[str]:
        """The joined text taken apart again, as the cells' own."""
        return [_shown(part[:-1] if part.endswith("\n") else part) for part in _CELL_LINE.split(text)[::2]]

    def with_text(self, text: str) -> bytes:
        """The notebook with new code in its cells; everything else as it was."""
        content = json.loads(self.raw)
        for place, old, new in zip(self.cells, self.cell_texts(self.source.text), self.cell_texts(text), strict=True):
            if new != old:
                cell = content["cells"][place]
                cell["source"] = new.splitlines(keepends=True) if isinstance(cell["source"], list) else new
        indent = re.search(r"^\{\n( +|\t+)", self.raw)
        dumped = json.dumps(
            content,
            indent=indent.group(1) if indent else None,
            ensure_ascii=self.raw.isascii(),
            separators=(",", ": ") if indent else None,
        )
        return (dumped + self.raw[len(self.raw.rstrip("\n")) :]).encode()


def read_notebook(raw: bytes, path: str) -> Notebook:
    """The notebook in a file's bytes; raises SourceError where they are none."""
    try:
        text = raw.decode("utf-8")
        content = json.loads(text)
        cells = content["cells"]
        # Cells in another language, and those that a cell magic hands to something else, are left alone.
        code = [k for k, c in enumerate(cells) if c["cell_type"] == "code" and _is_python(_text(c))]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(path, 1, 1, f"no notebook: {type(error).__name__}: {error}") from None
    language = content.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    code = code if language == "python" else []
    parts = [_hidden(_text(cells[k])) for k in code]
    joined = "".join(
        (f"{_CELL.format(code[n] + 1)}\n" if n else "") + (f"{part}\n" if n < len(parts) - 1 else part)
        for n, part in enumerate(parts)
    )
    return Notebook(text, content, tuple(code), Source(path, joined))


def _text(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _is_python(text: str) -> bool:
    found = re.match(r"\s*%%(\w+)", text)
    return found is None or found.group(1) in _PYTHON_MAGICS


def _hidden(text: str) -> str:
    return _MAGIC.sub(lambda m: f"{m['indent']}pass  # --- if2where: {m['magic']}", text)


def _shown(text: str) -> str:
    return _HIDDEN.sub(lambda m: f"{m['indent']}{m['magic']}", text)
