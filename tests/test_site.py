"""The documentation site: built strictly, complete, and shown by a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import browse, needs_browser

pytest.importorskip("material")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-q",
        "-f",
        str(ROOT / ".mkdocs.yml"),
        "-d",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_code_and_every_fixture_has_its_place(site: Path) -> None:
    from if2where.diagnostics.codes import CODES

    codes = (site / "codes" / "index.html").read_text()
    assert [c.code for c in CODES if f'id="{c.code}"' not in codes] == []
    converts = (site / "what-converts" / "index.html").read_text()
    names = [p.parent.name for p in (ROOT / "fixtures").glob("*/after.py") if not p.parent.name.startswith("refuse_")]
    assert len(names) > 100
    assert [n for n in names if f'id="{n.replace("_", "-")}"' not in converts] == []
    reference = (site / "reference" / "index.html").read_text()
    for name in ("convert", "vmap", "verify", "bench", "convert_source", "any_active"):
        assert re.search(rf'id="if2where[\w.]*\.{name}"', reference), name


@needs_browser
def test_a_browser_shows_the_front_page(site: Path, tmp_path: Path) -> None:
    shown = browse(site / "index.html", tmp_path, "--dump-dom")
    assert "torch.where" in shown
    assert "Try it" in shown
