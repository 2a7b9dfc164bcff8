"""Settings: where they are read from, what they may be, and what the command line puts over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from if2where.cli import main
from if2where.settings import Settings, SettingsError, load, nearest
from tests.texts import REFUSED

CODE = "import torch\n\n\ndef f(x):\n    return 1 / x if x > 0 else x\n\n\ng = torch.vmap(f)\n"


def project(folder: Path, settings: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(settings)
    return file


def test_every_setting_is_read(tmp_path: Path) -> None:
    text = """\
[tool.if2where]
scope = "all"
functions = ["energy"]
guards = "none"
checks = "drop"
max-iterations = 50
allow-random = true
exclude = ["gen_*"]
extend-exclude = ["old"]
respect-gitignore = false

[tool.if2where.per-file-ignores]
"tests/*" = ["IW101"]
"""
    found = load(project(tmp_path, text))
    assert found == Settings(
        scope="all",
        functions=("energy",),
        guards="none",
        checks="drop",
        max_iterations=50,
        allow_random=True,
        exclude=("gen_*",),
        extend_exclude=("old",),
        respect_gitignore=False,
        per_file_ignores=(("tests/*", ("IW101",)),),
    )
    # What is shown is what was read.
    assert load(project(tmp_path, found.toml())) == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("scop = 'all'", "unknown setting 'scop'; did you mean 'scope'?"),
        ("max_iterations = 3", "unknown setting 'max_iterations'; did you mean 'max-iterations'?"),
        ("zzz = 1", "unknown setting 'zzz'; known are: scope, "),
        ("scope = 'some'", "scope must be one of auto, vmapped, all, not 'some'"),
        ("max-iterations = 0", "max-iterations must be a whole number above 0"),
        ("max-iterations = true", "max-iterations must be a whole number above 0"),
        ("allow-random = 1", "allow-random must be true or false"),
        ("functions = 'f'", "functions must be a list of strings"),
        ("exclude = [1]", "exclude must be a list of strings"),
        ("per-file-ignores = ['IW101']", "per-file-ignores must be a table of file patterns"),
        ("per-file-ignores = {'a.py' = ['IW000']}", "'IW000' is none"),
        ("scope = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, line: str, message: str) -> None:
    file = project(tmp_path, f"[tool.if2where]\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    (tmp_path / "a.py").write_text(CODE)
    result = CliRunner().invoke(main, ["convert", str(tmp_path / "a.py")])
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_nearest_file_with_a_table_of_ours(tmp_path: Path) -> None:
    inner = tmp_path / "package" / "sub"
    inner.mkdir(parents=True)
    (inner / "a.py").write_text(CODE)
    (tmp_path / "b.py").write_text(CODE)
    assert nearest([str(inner / "a.py")]) is None
    outer = project(tmp_path, "[tool.if2where]\nguards = 'none'\n")
    project(inner, "[tool.other]\nx = 1\n")
    assert nearest([str(inner / "a.py")]) == outer
    near = project(inner, "[tool.if2where]\nguards = 'auto'\n")
    assert nearest([str(inner)]) == near
    # Files of two folders go by what is above both.
    assert nearest([str(inner / "a.py"), str(tmp_path / "b.py")]) == outer


def test_the_command_line_goes_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(CODE)
    project(tmp_path, "[tool.if2where]\nguards = 'none'\n")
    bare, guarded = "+    return torch.where(x > 0, 1 / x, x)", "1 / torch.where(x > 0, x, 1)"

    def shown(*args: str) -> str:
        return CliRunner().invoke(main, ["convert", *args, str(file)]).stdout

    assert bare in shown()
    assert bare not in shown("--guards", "auto")
    assert bare not in shown("--isolated")
    other = tmp_path / "other.toml"
    other.write_text("guards = 'auto'\n")
    assert bare not in shown("--config", str(other))
    assert guarded in shown("--config", str(other)).replace("x_gt_0", "x > 0")
    result = CliRunner().invoke(main, ["convert", "--isolated", "--config", str(other), str(file)])
    assert result.exit_code == 2


def test_show_settings(tmp_path: Path) -> None:
    file = project(tmp_path, "[tool.if2where]\nguards = 'none'\n")
    result = CliRunner().invoke(main, ["convert", "--show-settings", "--scope", "all", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"# {file}\n[tool.if2where]\n")
    assert 'guards = "none"' in result.stdout
    assert 'scope = "all"' in result.stdout
    isolated = CliRunner().invoke(main, ["convert", "--show-settings", "--isolated", str(tmp_path)])
    assert isolated.stdout.startswith("# no settings file\n")


def test_per_file_ignores(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(REFUSED)
    project(tmp_path, "[tool.if2where.per-file-ignores]\n'a.py' = ['IW101']\n")
    result = CliRunner().invoke(main, ["convert", str(tmp_path)])
    assert result.exit_code == 1
    assert "b.py:6:9: IW101" in result.stderr
    assert "a.py" not in result.stderr
    alone = CliRunner().invoke(main, ["convert", str(tmp_path / "a.py")])
    assert alone.exit_code == 0


def test_excluded_folders_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.py").write_text(CODE)
    (tmp_path / "gen_a.py").write_text(CODE)
    (tmp_path / "a.py").write_text(CODE)
    project(tmp_path, "[tool.if2where]\nexclude = ['old']\n")

    def names(*args: str) -> list[str]:
        result = CliRunner().invoke(main, ["convert", "-v", "--check", *args, str(tmp_path)])
        rows = [line for line in result.stderr.splitlines() if ": converted f " in line]
        return [Path(row.split(":")[0]).relative_to(tmp_path).as_posix() for row in rows]

    assert names() == ["a.py", "gen_a.py"]
    assert names("--extend-exclude", "gen_*") == ["a.py"]
    # --exclude takes the place of the file's; --extend-exclude is added to it.
    assert names("--exclude", "gen_*") == ["a.py", "old/a.py"]
