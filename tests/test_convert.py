"""``if2where convert`` over many files, and what it says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from if2where.cli import main
from tests.texts import REFUSED

GOOD = (
    "import torch\n\n\ndef f{n}(x):\n    if x > {n}:\n        return x * {n}\n    return -x\n\n\ng = torch.vmap(f{n})\n"
)


def test_many_files_with_bad_ones_among_them(tmp_path: Path) -> None:
    """A line for each bad one, all others done, exit status 2."""
    for n in range(1, 301):
        (tmp_path / f"m{n:03}.py").write_text(GOOD.format(n=n))
    (tmp_path / "m050.py").write_text("import torch\ndef f(:\n    torch.vmap\n")
    (tmp_path / "m100.py").write_bytes(b"# torch.vmap \xff\n")
    (tmp_path / "m150.py").unlink()
    (tmp_path / "m150.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "m200.py").unlink()
    (tmp_path / "m200.py").mkdir()
    (tmp_path / "m250.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "if2where", "convert", "-w", "--jobs", "2", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    *lines, summary = done.stderr.splitlines()
    assert all(": error: " in line for line in lines)
    assert sorted(line.split(":")[0] for line in lines) == [
        str(tmp_path / f"m{n}.py") for n in ("050", "100", "150", "200")
    ]
    assert summary.startswith("converted 295 functions in 295 files, refused 0, left 1 file unchanged")
    for n in range(1, 301):
        if n % 50 or n == 300:
            assert "torch.where(" in (tmp_path / f"m{n:03}.py").read_text()


def test_order_does_not_hang_on_jobs(tmp_path: Path) -> None:
    for n in range(1, 40):
        (tmp_path / f"m{n:02}.py").write_text(REFUSED if n % 3 else GOOD.format(n=n))

    def out(jobs: str) -> tuple[str, str]:
        result = CliRunner().invoke(main, ["convert", "--jobs", jobs, str(tmp_path)])
        assert result.exit_code == 1
        return result.stdout, result.stderr

    assert out("1") == out("3")
    files = [line.split(":")[0] for line in out("3")[1].splitlines() if " IW101 " in line]
    assert len(files) == 26
    assert files == sorted(files)


def test_colours(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(GOOD.format(n=3))

    def shown(*args: str, **env: str) -> str:
        return CliRunner().invoke(main, ["convert", *args, str(file)], env=env, color=True).stdout

    assert "\x1b[32m+    return torch.where" in shown("--color", "always")
    assert "\x1b[" not in shown("--color", "never")
    assert "\x1b[" not in shown(NO_COLOR="1")
    # To a pipe none are written.
    assert "\x1b[" not in CliRunner().invoke(main, ["convert", str(file)]).stdout
    always = shown("--color", "always", NO_COLOR="1")
    assert "\x1b[32m" in always


def test_verbose_quiet_and_statistics(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(GOOD.format(n=3))
    (tmp_path / "b.py").write_text(REFUSED)
    (tmp_path / "c.py").write_text(REFUSED.replace("print(x)", "print(x)\n        print(x)"))

    def told(*args: str) -> str:
        return CliRunner().invoke(main, ["convert", "--check", *args, str(tmp_path)]).stderr

    verbose = told("-v")
    assert f"{tmp_path / 'a.py'}: converted f3 (scope: vmapped)" in verbose
    assert f"{tmp_path / 'b.py'}: nothing to convert (scope: vmapped)" in verbose
    counted = [line.split(maxsplit=2) for line in told("--statistics").splitlines() if line.startswith("  ")]
    assert [row[1] for row in counted if row[0].isdigit()] == ["IW101"]
    assert "would convert" in told()
    assert "would convert" not in told("-q")


def test_sarif_is_valid(tmp_path: Path) -> None:
    """By a model of SARIF 2.1.0 that others made from its schema."""
    sarif = pytest.importorskip("sarif_pydantic")
    (tmp_path / "b.py").write_text(REFUSED)
    result = CliRunner().invoke(main, ["convert", "--output-format", "sarif", str(tmp_path)])
    written = json.loads(result.stdout)
    # Nothing is lost on the way through the model: each key that is written is one that it knows.
    read = sarif.Sarif.model_validate(written)
    assert json.loads(read.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True)) == written
    (found,) = read.runs[0].results
    assert found.rule_id == "IW101"
    assert [r.id for r in read.runs[0].tool.driver.rules] == ["IW101"]
    # The model does refuse what is wrong.
    written["runs"][0]["results"][0]["level"] = "dreadful"
    with pytest.raises(ValueError, match="level"):
        sarif.Sarif.model_validate(written)
