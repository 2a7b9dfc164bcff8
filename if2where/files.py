"""Finding files, reading them, and writing them back whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "build", "dist", "venv", "env", "site-packages"}


class FileError(Exception):
    """A file that cannot be read or written."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}:1:1: error: {message}")


def find(paths: Iterable[str], exclude: Iterable[str] = ()) -> Iterator[Path]:
    """The Python files named, and those in the folders named, in a stable order.

    A folder's hidden, cache, build and virtual environment folders are left out; so is what matches
    an ``exclude`` pattern, by its name or its path. A file that is named itself is always there.
    """
    patterns = tuple(exclude)
    for path in map(Path, paths):
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(f for f in folders if _enters(Path(folder) / f, patterns))
            for name in sorted(names):
                found = Path(folder) / name
                if name.endswith(".py") and not _excluded(found, patterns):
                    yield found


def _enters(folder: Path, patterns: tuple[str, ...]) -> bool:
    plain = not folder.name.startswith(".") and folder.name not in _SKIPPED_FOLDERS
    return (
        plain
        and not (folder / "pyvenv.cfg").exists()
        and not folder.name.endswith(".py")
        and not _excluded(folder, patterns)
    )


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
