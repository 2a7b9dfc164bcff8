"""The code on the pages is run, and what it prints is what the page says."""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import re
import sys
import types
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[int, str, str | None]]:
    """The page's blocks of Python: the line that each starts in, its code, and the output where the next block is text."""
    found: list[tuple[int, str, str | None]] = []
    fences = list(FENCE.finditer(page))
    for k, fence in enumerate(fences):
        if fence[1] != "python":
            continue
        follows = fences[k + 1] if k + 1 < len(fences) else None
        near = follows is not None and follows[1] == "text" and not page[fence.end() : follows.start()].strip()
        line = page.count("\n", 0, fence.start(2)) + 1
        found.append((line, fence[2], follows[2] if near and follows is not None else None))
    return found


def differences(page: str, name: str, **given: object) -> list[str]:
    """Runs the page's blocks in order, in one namespace; the lines whose output is not what the page shows."""
    module = types.ModuleType(name)
    module.__dict__.update(given)
    sys.modules[name] = module
    # TorchScript, tracebacks and the conversion look the source up: the page's code, each line at its own place.
    source = ["\n"] * (page.count("\n") + 1)
    for line, code, _ in blocks(page):
        source[line - 1 : line - 1 + code.count("\n")] = code.splitlines(keepends=True)
    linecache.cache[name] = (len(page), None, source, name)
    found = []
    for line, code, expected in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile("\n" * (line - 1) + code, name, "exec"), module.__dict__)
        if expected is not None and _lines(printed.getvalue()) != _lines(expected):
            found.append(f"{name}:{line}: printed\n{printed.getvalue()}for\n{expected}")
    return found


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.torch
@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_on_the_page(path: Path) -> None:
    pytest.importorskip("torch")
    from if2where.quickstart import EXAMPLE

    # The README speaks of a file that the reader has: its text.
    given = {"text": EXAMPLE} if path.name == "README.md" else {}
    assert differences(path.read_text(), f"<{path.name}>", **given) == []


@pytest.mark.torch
def test_the_library_page() -> None:
    pytest.importorskip("torch")
    page = str(ROOT / "docs" / "library.md")
    result = doctest.testfile(page, module_relative=False, globs={"__name__": "__main__"})
    assert result.attempted > 10
    assert result.failed == 0


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_pictures_are_there(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", FENCE.sub("", path.read_text()))
    made = {"index.md", "what-converts.md", "codes.md"} if path.parent.name == "docs" else set()
    assert [t for t in targets if t not in made and not (path.parent / t).exists()] == []


def test_pages_with_code_are_found() -> None:
    assert sum(len(blocks(path.read_text())) for path in PAGES) >= 10


def test_a_wrong_output_is_found() -> None:
    page = "```python\nx = 1\n```\n\nThen\n\n```python\nprint(x)\n```\n\n```text\n{}\n```\n"
    assert differences(page.format(1), "<right>") == []
    assert differences(page.format(2), "<wrong>") == ["<wrong>:8: printed\n1\nfor\n2\n"]
    with pytest.raises(NameError):
        differences(page.replace("x = 1", "y = 1"), "<raises>")
