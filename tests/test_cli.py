"""The command, as a person runs it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from if2where.cli import main
from if2where.quickstart import EXAMPLE
from tests.texts import REFUSED

NOTHING = (
    "import torch\n\n\ndef f(x, flag=True):\n    if flag:\n        return x\n    return -x\n\n\ng = torch.vmap(f)\n"
)


def run(*args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "if2where", *args], input=stdin, capture_output=True, check=False)


def test_diff_is_printed_and_nothing_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(EXAMPLE)
    result = CliRunner().invoke(main, ["convert", str(file)])
    assert result.exit_code == 0
    assert "+    root = torch.where(tmp > 5, t * b, -t)" in result.stdout
    assert "converted 1 function in 1 file, refused 0" in result.stderr
    assert file.read_text() == EXAMPLE


def test_write_keeps_mode_bits(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(EXAMPLE)
    file.chmod(0o750)
    assert CliRunner().invoke(main, ["convert", "-w", str(file)]).exit_code == 0
    assert "torch.where" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert list(tmp_path.iterdir()) == [file]
    assert CliRunner().invoke(main, ["convert", "--check", str(file)]).exit_code == 0


def test_check(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(EXAMPLE)
    assert CliRunner().invoke(main, ["convert", "--check", str(file)]).exit_code == 1
    assert file.read_text() == EXAMPLE


def test_stdin_to_stdout() -> None:
    done = run("convert", "-", stdin=EXAMPLE.encode())
    assert done.returncode == 0
    assert b"torch.where(tmp > 5" in done.stdout
    assert done.stdout.startswith(b'"""One multiplication')


def test_output_file(tmp_path: Path) -> None:
    source, target = tmp_path / "a.py", tmp_path / "b.py"
    source.write_text(EXAMPLE)
    assert CliRunner().invoke(main, ["convert", str(source), "-o", str(target)]).exit_code == 0
    assert "torch.where" in target.read_text()


def test_refusal(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(REFUSED)
    result = CliRunner().invoke(main, ["convert", "-w", str(file)])
    assert result.exit_code == 1
    assert f"{file}:6:9: IW101 " in result.stderr
    assert file.read_text() == REFUSED


@pytest.mark.parametrize("output_format", ["json", "sarif", "github"])
def test_output_formats(tmp_path: Path, output_format: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(REFUSED)
    result = CliRunner().invoke(main, ["convert", "--output-format", output_format, str(file)])
    assert result.exit_code == 1
    if output_format == "github":
        assert result.stdout.startswith(f"::error file={file},line=6,col=9,title=IW101::")
    elif output_format == "json":
        assert [d["code"] for d in json.loads(result.stdout)] == ["IW101"]
    else:
        log = json.loads(result.stdout)
        assert log["version"] == "2.1.0"
        assert log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 6


def test_folder_with_bad_files(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(EXAMPLE)
    (tmp_path / "nothing.py").write_text(NOTHING)
    (tmp_path / "syntax.py").write_text("import torch\ndef f(:\n  torch.vmap\n")
    (tmp_path / "encoding.py").write_bytes(b"# torch.vmap \xff\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "skipped.py").write_text("def f(:\n")
    result = CliRunner().invoke(main, ["convert", "-w", str(tmp_path)])
    assert result.exit_code == 2
    errors = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert [Path(line.split(":")[0]).name for line in errors] == ["encoding.py", "folder.py", "syntax.py"]
    assert "torch.where" in (tmp_path / "good.py").read_text()


def test_missing_file() -> None:
    result = CliRunner().invoke(main, ["convert", "no/such/file.py"])
    assert result.exit_code == 2
    assert "no/such/file.py:1:1: error: cannot be read" in result.stderr


def test_function_option(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def f(x):\n    if x > 0:\n        x = 2 * x\n    return x\n")
    result = CliRunner().invoke(main, ["convert", "--function", "f", "-w", str(file)])
    assert result.exit_code == 0
    assert file.read_text() == "import torch\n\ndef f(x):\n    x = torch.where(x > 0, 2 * x, x)\n    return x\n"
    assert CliRunner().invoke(main, ["convert", "--function", "g", str(file)]).exit_code == 2


def test_guards_none_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch\n\n\ndef f(x):\n    return 1 / x if x > 0 else x\n\n\ng = torch.vmap(f)\n")
    result = CliRunner().invoke(main, ["convert", "--guards", "none", str(file)])
    assert "+    return torch.where(x > 0, 1 / x, x)" in result.stdout
    assert "not guarded" in result.stderr


def test_max_iterations_gives_plain_torch(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch\n\n\ndef f(x):\n    while x > 1:\n        x = x / 2\n    return x\n\n\ng = torch.vmap(f)\n"
    )
    result = CliRunner().invoke(main, ["convert", "--max-iterations", "9", str(file)])
    assert "+    for _ in range(9):" in result.stdout
    assert "any_active" not in result.stdout


def test_explain() -> None:
    result = CliRunner().invoke(main, ["explain", "IW203"])
    assert result.exit_code == 0
    assert "falls-off-the-end" in result.stdout
    assert CliRunner().invoke(main, ["explain", "IW000"]).exit_code == 2
    assert CliRunner().invoke(main, ["explain", "--all"]).stdout.count("To mend it") > 30


def test_no_torch_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(EXAMPLE)
    code = f"""
import sys
from click.testing import CliRunner
from if2where.cli import main
assert CliRunner().invoke(main, ["convert", {str(file)!r}]).exit_code == 0
assert "torch" not in sys.modules
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_internal_error_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import if2where.converting

    def broken(sources: object, options: object) -> object:
        raise KeyError("boom")

    monkeypatch.setattr(if2where.converting, "convert_files", broken)
    file = tmp_path / "a.py"
    file.write_text(EXAMPLE)
    result = CliRunner().invoke(main, ["convert", "-w", str(file)])
    assert result.exit_code == 2
    assert "IW999 internal error: KeyError" in result.stderr
    assert file.read_text() == EXAMPLE


@pytest.mark.torch
def test_quickstart() -> None:
    pytest.importorskip("torch")
    done = run("quickstart")
    assert done.returncode == 0
    assert "DIFFERENT" not in done.stdout.decode()
    assert "x faster" in done.stdout.decode()


def test_quickstart_is_the_fixture() -> None:
    before = Path(__file__).resolve().parent.parent / "fixtures" / "quickstart" / "before.py"
    assert before.read_text() == EXAMPLE
