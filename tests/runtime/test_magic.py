"""``%%if2where`` in a real IPython shell, and the pytest fixture in a real run of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CELL = """\
import torch

def f(x):
    if x > 0:
        return torch.sqrt(x)
    return -x
"""


@pytest.fixture
def shell() -> Any:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    made = interactive.InteractiveShell.instance()
    made.run_cell("%load_ext if2where")
    made.reset()
    yield made
    interactive.InteractiveShell.clear_instance()


def test_the_cell_is_converted_and_run(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%%if2where\n" + CELL)
    x = torch.tensor([-1.0, 0.0, 4.0])
    assert torch.equal(torch.vmap(shell.user_ns["f"])(x), torch.tensor([1.0, 0.0, 2.0]))
    assert capsys.readouterr().out == ""
    shell.run_cell("%%if2where --diff\n" + CELL)
    assert "+    return torch.where(" in capsys.readouterr().out


def test_a_refusal_is_told_and_the_cell_runs(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%%if2where\n" + CELL.replace("return -x", "return -x if x < -1 else print(x)"))
    assert "cell:6:12: IW201 " in capsys.readouterr().err
    assert float(shell.user_ns["f"](torch.tensor(4.0))) == 2


def test_only_the_functions_named(shell: Any) -> None:
    shell.run_cell("%%if2where g\n" + CELL + CELL.replace("def f", "def g"))
    x = torch.tensor([-1.0, 4.0])
    assert torch.vmap(shell.user_ns["g"])(x).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="data-dependent"):
        torch.vmap(shell.user_ns["f"])(x)


def test_what_it_does_not_know(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell("%%if2where --guard none\n" + CELL)
    assert "usage: %%if2where" in str(result.error_in_exec)
    capsys.readouterr()


def test_the_fixture_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """\
import torch


def f(x):
    if x > 0:
        return torch.sqrt(x)
    return -x


def test_right(assert_vmap_equivalent):
    assert_vmap_equivalent(f, (torch.tensor([-1.0, 0.5, 4.0]),))


def test_wrong(assert_vmap_equivalent):
    by_hand = lambda x: torch.where(x > 0, torch.sqrt(x), -x)
    assert_vmap_equivalent(f, (torch.tensor([-1.0, 0.5, 4.0]),), converted=by_hand)
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "VerificationError" in done.stdout
