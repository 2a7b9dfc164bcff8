"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from if2where.files import FileError, find, read, write


def test_link_keeps_being_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.py", tmp_path / "link.py"
    target.write_text("old")
    link.symlink_to(target)
    write(link, b"new", b"old")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("newer")
    with pytest.raises(FileError, match="changed while"):
        write(file, b"new", b"old")
    assert file.read_text() == "newer"


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    file = tmp_path / "a.py"
    file.write_text("old")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(FileError, match="No space left"):
        write(file, b"new", b"old")
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]
    assert file.read_text() == "old"


def test_find(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "c.txt", ".git/x.py", "venv/pyvenv.cfg", "venv/y.py", "sub/z.py", "sub/gen_z.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = [p.relative_to(tmp_path).as_posix() for p in find([str(tmp_path)], ["gen_*"])]
    assert found == ["a.py", "b.py", "sub/z.py"]


def test_reading_a_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        read(tmp_path)


def test_gitignore_as_git_reads_it(tmp_path: Path) -> None:
    """The files found are those that git itself would list, over nested files, negations and folders."""
    import subprocess

    for name in (
        "a.py",
        "out/b.py",
        "sub/c.py",
        "sub/keep.py",
        "sub/deep/d.py",
        "gen_x.py",
        "sub/gen_y.py",
        "lib/e.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("/out/\ngen_*.py\nlib/*\n# a comment\n*.ipynb\n")
    (tmp_path / "sub" / ".gitignore").write_text("!gen_y.py\nc.py\n")
    (tmp_path / "n.ipynb").write_text("{}")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.split()
    wanted = sorted(name for name in listed if name.endswith((".py", ".ipynb")))
    assert wanted == ["a.py", "sub/deep/d.py", "sub/gen_y.py", "sub/keep.py"]

    def names(path: Path, **options: bool) -> list[str]:
        return sorted(p.relative_to(tmp_path).as_posix() for p in find([str(path)], **options))

    assert names(tmp_path) == wanted
    # What the files above a folder say counts in it; a file that is named is taken.
    assert names(tmp_path / "sub") == wanted[1:]
    assert names(tmp_path / "gen_x.py") == ["gen_x.py"]
    assert len(names(tmp_path, respect_gitignore=False)) == 9
