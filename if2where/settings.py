"""Settings: ``[tool.if2where]`` in the nearest pyproject.toml, the command line over it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from if2where.pipeline import Options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What options may be; here, so that the command's help needs neither libcst nor torch.
SCOPES = ("auto", "vmapped", "all")
GUARDS = ("auto", "all", "none")
CHECKS = ("keep", "drop")
FORMATS = ("text", "json", "sarif", "github")
#: The ways that ``bench`` measures, and on how many samples.
WAYS = ("loop", "converted", "compiled", "torch.cond")
SIZES = (1, 10, 100, 1_000, 10_000, 100_000)


class SettingsError(Exception):
    """A settings file that cannot be read, or that holds what is no setting."""


@dataclass(frozen=True)
class Settings:
    """What a run goes by. A field's name, with hyphens, is its key in ``[tool.if2where]``."""

    scope: str = "auto"
    functions: tuple[str, ...] = ()
    guards: str = "auto"
    checks: str = "keep"
    max_iterations: int | None = None
    allow_random: bool = False
    exclude: tuple[str, ...] = ()
    extend_exclude: tuple[str, ...] = ()
    respect_gitignore: bool = True
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def options(self) -> Options:
        """What of them the conversion goes by."""
        from if2where.pipeline import Options

        return Options(self.scope, self.functions, self.guards, self.checks, self.max_iterations, self.allow_random)

    @property
    def excluded(self) -> tuple[str, ...]:
        return (*self.exclude, *self.extend_exclude)

    def ignored_codes(self, path: str) -> frozenset[str]:
        """The codes that are not reported for a file: patterns match its name or the end of its path."""
        place = Path(path)
        return frozenset(
            code.upper()
            for pattern, codes in self.per_file_ignores
            if fnmatch(place.name, pattern) or fnmatch(place.as_posix(), pattern) or place.match(pattern)
            for code in codes
        )

    def over(self, given: Mapping[str, Any]) -> Settings:
        """These settings with what the command line gives (None and empty: nothing) over them."""
        return replace(self, **{k: v for k, v in given.items() if v is not None and v != ()})

    def toml(self) -> str:
        """The settings as they would stand in a pyproject.toml."""
        lines = ["[tool.if2where]"]
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and f.name != "per_file_ignores":
                lines.append(f"{_key(f.name)} = {_toml(value)}")
        if self.per_file_ignores:
            lines += ["", "[tool.if2where.per-file-ignores]"]
            lines += [f"{_toml(pattern)} = {_toml(codes)}" for pattern, codes in self.per_file_ignores]
        return "\n".join(lines)


def _key(name: str) -> str:
    return name.replace("_", "-")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def nearest(paths: Sequence[str]) -> Path | None:
    """The pyproject.toml with settings of ours that is nearest above what the paths have in common."""
    folders = [p if p.is_dir() else p.parent for p in (Path(path).absolute() for path in paths)] or [Path.cwd()]
    common = [folder for folder in (folders[0], *folders[0].parents) if all(folder in (f, *f.parents) for f in folders)]
    for folder in common:
        file = folder / "pyproject.toml"
        if file.is_file() and "if2where" in _table(file).get("tool", {}):
            return file
    return None


def load(file: Path | None) -> Settings:
    """The settings of a file: its ``[tool.if2where]``, or the whole file where it is no pyproject.toml.

    Without a file, those that hold where nobody says anything.

    Raises SettingsError where one is unknown or has a value of the wrong kind.
    """
    if file is None:
        return Settings()
    table = _table(file)
    if file.name == "pyproject.toml" or "tool" in table:
        table = table.get("tool", {}).get("if2where", {})
    known = {_key(f.name): f.name for f in fields(Settings)}
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
            raise SettingsError(f"{file}: unknown setting {key!r}; {hint}")
        name = known[key]
        try:
            found[name] = _READ[name](value)
        except ValueError as error:
            raise SettingsError(f"{file}: {key} must be {error}, not {value!r}") from None
    return Settings(**found)


def _table(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from None
    return document


# --- what each setting may be ---------------------------------------------------------------


def _one_of(choices: Sequence[str]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _steps(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a whole number above 0")
    return value


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError("a list of strings")
    return tuple(value)


def _ignores(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    from if2where.diagnostics.codes import BY_CODE

    if not isinstance(value, dict):
        raise ValueError("a table of file patterns, each with a list of codes")
    found = tuple((pattern, _strings(codes)) for pattern, codes in value.items())
    for _, codes in found:
        for code in codes:
            if code.upper() not in BY_CODE:
                raise ValueError(f"a table of lists of codes ({code!r} is none)")
    return found


_READ: dict[str, Callable[[object], Any]] = {
    "scope": _one_of(SCOPES),
    "functions": _strings,
    "guards": _one_of(GUARDS),
    "checks": _one_of(CHECKS),
    "max_iterations": _steps,
    "allow_random": _flag,
    "exclude": _strings,
    "extend_exclude": _strings,
    "respect_gitignore": _flag,
    "per_file_ignores": _ignores,
}
