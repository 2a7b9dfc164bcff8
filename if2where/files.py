"""Finding files, reading them, and writing them back whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

SUFFIXES = (".py", ".ipynb")
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "venv", "env", "site-packages"}


class FileError(Exception):
    """A file that cannot be read or written."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}:1:1: error: {message}")


def find(paths: Iterable[str], exclude: Iterable[str] = (), respect_gitignore: bool = True) -> Iterator[Path]:
    """The Python files and notebooks named, and those in the folders named, in a stable order, each once.

    A folder's hidden, cache, build and virtual environment folders are left out; so is what matches
    an ``exclude`` pattern, by its name or its path, and what a .gitignore of the repository around it
    names. A file that is named itself is always there. A folder with a file's suffix is given too:
    reading it says what it is.
    """
    patterns = tuple(exclude)
    seen: set[Path] = set()
    for path in map(Path, paths):
        for found in _walk(path, patterns, Ignored(path) if respect_gitignore else None) if path.is_dir() else (path,):
            if found not in seen:
                seen.add(found)
                yield found


def _walk(path: Path, patterns: tuple[str, ...], ignored: Ignored | None) -> Iterator[Path]:
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        entered = [f for f in folders if _enters(here / f, patterns)]
        if ignored is not None:
            entered = [f for f in entered if not ignored.matches(here / f, folder=True)]
        odd = [f for f in entered if f.endswith(SUFFIXES)]
        folders[:] = sorted(set(entered).difference(odd))
        for name in sorted([*names, *odd]):
            found = here / name
            if found.suffix in SUFFIXES and not _excluded(found, patterns):
                if ignored is None or not ignored.matches(found):
                    yield found


class Ignored:
    """What the .gitignore files of the repository around a folder leave out, as git reads them."""

    def __init__(self, start: Path) -> None:
        absolute = start.absolute()
        above = (absolute, *absolute.parents)
        # Outside a repository nothing above the folder counts.
        self.root = next((f for f in above if (f / ".git").exists()), absolute)
        self._read: dict[Path, Any] = {}

    def matches(self, path: Path, folder: bool = False) -> bool:
        """Whether git would leave the file or folder out, its parents being in."""
        place = path.absolute()
        chain = [f for f in place.parents if f == self.root or self.root in f.parents]
        # The nearest file that says anything decides.
        for parent in chain:
            spec = self._spec(parent)
            if spec is not None:
                told = spec.check_file(place.relative_to(parent).as_posix() + ("/" if folder else "")).include
                if told is not None:
                    return bool(told)
        return False

    def _spec(self, folder: Path) -> Any:
        if folder not in self._read:
            from pathspec import GitIgnoreSpec

            try:
                text = (folder / ".gitignore").read_text("utf-8", "replace")
            except OSError:
                self._read[folder] = None
            else:
                self._read[folder] = GitIgnoreSpec.from_lines(text.splitlines())
        return self._read[folder]


def _enters(folder: Path, patterns: tuple[str, ...]) -> bool:
    plain = not folder.name.startswith(".") and folder.name not in _SKIPPED_FOLDERS
    return plain and not (folder / "pyvenv.cfg").exists() and not _excluded(folder, patterns)


def _excluded(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path.name, p) or fnmatch(path.as_posix(), p) for p in patterns)


def read(path: Path) -> bytes:
    """The file's bytes; raises FileError with the system's own reason."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror or error}") from None


def write(path: Path, data: bytes, expected: bytes | None = None) -> None:
    """Replaces the file's content in one step, its mode bits kept; a link's target is replaced, not the link.

    With ``expected``, what the file held when it was read: raises FileError where it has changed since.
    """
    target = path.resolve()
    try:
        if expected is not None and target.read_bytes() != expected:
            raise FileError(str(path), "changed while it was being converted; left alone")
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not os.access(target, os.W_OK):
            raise FileError(str(path), "cannot be written: it is read-only")
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, mode if mode is not None else 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise FileError(str(path), f"cannot be written: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
