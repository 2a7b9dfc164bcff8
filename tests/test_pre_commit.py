"""The hooks, run by pre-commit itself in a repository of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from if2where.quickstart import EXAMPLE
from tests.texts import REFUSED

pytest.importorskip("pre_commit")
ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no repository")


def test_hooks(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    env = {**os.environ, "PRE_COMMIT_HOME": str(home)}

    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(work), *args], check=True, capture_output=True)

    def hook(name: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), name, "--all-files", "--verbose"]
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    git("init", "-q")
    (work / "model.py").write_text(EXAMPLE)
    (work / "notes.txt").write_text("if x > 0:\n")
    git("add", ".")

    status, said = hook("if2where-check")
    assert (status, "would convert 1 function" in said) == (1, True), said
    assert (work / "model.py").read_text() == EXAMPLE

    # The first run changes the file and fails, the second has nothing to do.
    status, said = hook("if2where")
    assert (status, "files were modified by this hook" in said) == (1, True), said
    assert "torch.where(tmp > 5" in (work / "model.py").read_text()
    git("add", ".")
    status, said = hook("if2where")
    assert status == 0, said
    status, said = hook("if2where-check")
    assert status == 0, said

    (work / "bad.py").write_text(REFUSED)
    git("add", ".")
    status, said = hook("if2where")
    assert (status, "bad.py:6:9: IW101 " in said) == (1, True), said
    assert (work / "bad.py").read_text() == REFUSED


def test_its_environment_holds_no_torch() -> None:
    needed = [r for r in metadata.requires("if2where") or [] if "extra ==" not in r]
    assert any(r.startswith("libcst") for r in needed)
    assert not any(r.startswith("torch") for r in needed)
