"""Notebook files: converted cell by cell, everything else in them as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from if2where.cli import main

ENERGY = "def energy(r):\n    if r < 1:\n        return r * r\n    return 2 * r - 1"
MAGIC = """\
%matplotlib inline
import torch
!ls
text = '''
%d of these
'''
torch.vmap?"""
LAST = "%%time\nout = torch.vmap(energy)(torch.linspace(0, 2, 5))\nout"
SHELL = "%%bash\nif [ 1 -gt 0 ]; then echo yes; fi"


def cell(source: str, kind: str = "code", lines: bool = True) -> dict[str, object]:
    text = source.splitlines(keepends=True) if lines else source
    found: dict[str, object] = {"cell_type": kind, "id": "abc", "metadata": {"tags": ["é"]}, "source": text}
    if kind == "code":
        output = {"output_type": "stream", "name": "stdout", "text": ["0\n"]}
        found |= {"execution_count": 3, "outputs": [output]}
    return found


def notebook(*cells: dict[str, object], language: str = "python") -> dict[str, object]:
    spec = {"display_name": "x", "language": language, "name": "x"}
    return {"cells": list(cells), "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


def convert(file: Path, *options: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["convert", *options, str(file)])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("indent", [1, 2, None])
def test_only_the_cell_with_the_function_changes(tmp_path: Path, lines: bool, indent: int | None) -> None:
    file = tmp_path / "n.ipynb"
    book = notebook(
        cell("# Energies\nif x > 0:", "markdown"),
        cell(MAGIC, lines=lines),
        cell(SHELL, lines=lines),
        cell("", lines=lines),
        cell(ENERGY, lines=lines),
        cell(LAST, lines=lines),
    )
    before = json.dumps(book, indent=indent, ensure_ascii=False) + "\n"
    file.write_text(before, encoding="utf-8")
    status, shown, told = convert(file)
    assert status == 0, told
    assert shown.startswith(f"--- {file}:cell 5\n+++ {file}:cell 5\n@@ -1,4 +1,2 @@\n")
    assert convert(file, "-w")[0] == 0
    after = file.read_text(encoding="utf-8")
    made = json.loads(after)
    source = made["cells"][4].pop("source")
    book["cells"][4].pop("source")  # type: ignore[index]
    assert made == book
    assert "".join(source) == "def energy(r):\n    return torch.where(r < 1, r * r, 2 * r - 1)"
    assert isinstance(source, list) == lines
    # Nothing but those lines: the file's own layout is kept.
    changed = [row for row in after.splitlines() if row not in before.splitlines()]
    assert all("energy" in row or "torch.where" in row for row in changed)
    assert after.endswith("}\n")
    assert convert(file, "--check")[0] == 0


def test_a_refusal_names_the_cell(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    bad = "import torch\n\ndef f(x):\n    if x > 0:\n        print(x)\n    return x\n\ng = torch.vmap(f)"
    file.write_text(json.dumps(notebook(cell("%pip list"), cell("# text", "markdown"), cell(bad))))
    before = file.read_bytes()
    status, _, told = convert(file, "-w")
    assert status == 1
    assert f"{file}:cell 3:5:9: IW101 " in told
    assert file.read_bytes() == before


def test_an_import_that_is_needed_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    loop = "def f(x):\n    while x > 1:\n        x = x / 2\n    return x"
    file.write_text(json.dumps(notebook(cell("import torch"), cell(loop), cell("y = torch.vmap(f)(torch.ones(3))"))))
    assert convert(file, "-w")[0] == 0
    sources = ["".join(c["source"]) for c in json.loads(file.read_text())["cells"]]
    assert "from if2where.runtime import any_active" in sources[0] or "any_active" in sources[0]
    assert "any_active" in sources[1]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"cells": 1}',
        '{"cells": [{"cell_type": "code"}]}',
        '{"cells": [{"cell_type": "code", "source": 3}]}',
    ],
)
def test_no_notebook_at_all(tmp_path: Path, content: str) -> None:
    file = tmp_path / "n.ipynb"
    file.write_text(content)
    status, _, told = convert(file, "-w")
    assert status == 2
    assert told.startswith(f"{file}:1:1: error: no notebook: ")
    assert file.read_text() == content


def test_other_languages_and_empty_ones_are_left(tmp_path: Path) -> None:
    for name, book in {"r": notebook(cell("x <- torch.vmap"), language="R"), "empty": notebook()}.items():
        file = tmp_path / f"{name}.ipynb"
        file.write_text(json.dumps(book))
        assert convert(file, "-w")[0] == 0
        assert json.loads(file.read_text()) == book


def test_verify_says_that_it_cannot_run_one(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    file.write_text(json.dumps(notebook(cell(f"import torch\n{ENERGY}"), cell("torch.vmap(energy)"))))
    before = file.read_bytes()
    status, _, told = convert(file, "-w", "--verify")
    assert status == 2
    assert "--verify cannot run a notebook" in told
    assert file.read_bytes() == before
