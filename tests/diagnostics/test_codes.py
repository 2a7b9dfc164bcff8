"""The registry of codes is whole, and every rendering holds what it must."""

from __future__ import annotations

import json
import re
from pathlib import Path

import if2where
from if2where.diagnostics.codes import BY_CODE, BY_NAME, CODES
from if2where.diagnostics.diagnostic import Diagnostic, explain, render_text
from if2where.diagnostics.formats import render


def test_codes_are_unique_and_explained() -> None:
    assert len(BY_CODE) == len(BY_NAME) == len(CODES)
    for code in CODES:
        assert re.fullmatch(r"IW\d{3}", code.code)
        assert code.summary
        assert code.reason.endswith(".")
        assert code.hint
        assert code.summary in (explain(code.code) or "")


def test_every_name_in_use_is_registered() -> None:
    package = Path(if2where.__file__).parent
    used = set()
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r"(?:refuse|note|Finding)\(\s*\"([a-z-]+)\"", text))
    assert len(used) > 20
    assert used <= set(BY_NAME)


def test_renderings() -> None:
    diagnostic = Diagnostic(BY_NAME["falls-off-the-end"], "a.py", 3, 5, "a detail", "f")
    assert render_text(diagnostic).startswith("a.py:3:5: IW203 one path returns a value")
    assert json.loads(render([diagnostic], "json"))[0]["column"] == 5
    assert render([diagnostic], "github").startswith("::error file=a.py,line=3,col=5,title=IW203::")
    run = json.loads(render([diagnostic], "sarif"))["runs"][0]
    assert [r["id"] for r in run["tool"]["driver"]["rules"]] == ["IW203"]
