"""The conversion of files: read, convert (in several processes where there is much), write, and say what came of it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from if2where.files import FileError, read, write
from if2where.module import Source, SourceError, decode, encode
from if2where.notebook import Notebook, read_notebook
from if2where.pipeline import Conversion, Options, convert_files, needs_nothing

if TYPE_CHECKING:
    from if2where.diagnostics.diagnostic import Diagnostic
    from if2where.settings import Settings

#: Up to so many files are converted together, so that calls from one into another are followed.
_TOGETHER = 20


@dataclass(frozen=True)
class Failure:
    """A file at which the converter itself failed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:1:1: error: IW999 internal error: {self.message}"


@dataclass(frozen=True)
class Opened:
    """A file as it was read."""

    raw: bytes
    source: Source
    notebook: Notebook | None = None

    @property
    def path(self) -> str:
        return self.source.path

    def bytes_of(self, text: str) -> bytes:
        return self.notebook.with_text(text) if self.notebook is not None else encode(self.source, text)

    def pieces(self, text: str) -> list[tuple[str, str, str]]:
        """The texts that a reader compares, before and after, each under its name: the file's, or its cells'."""
        if self.notebook is None:
            return [(self.path, self.source.text, text)]
        before, after = self.notebook.cell_texts(self.source.text), self.notebook.cell_texts(text)
        return [(f"{self.path}:cell {k + 1}", a, b) for k, a, b in zip(self.notebook.cells, before, after, strict=True)]

    def placed(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic at its place in the file: in a notebook, the cell and the line in it."""
        if self.notebook is None:
            return diagnostic
        cell, line = self.notebook.place(self.source.text, diagnostic.line)
        return replace(diagnostic, path=f"{self.path}:cell {cell}", line=line)


@dataclass
class Run:
    """One run of ``if2where convert``; ``all`` gives the exit status."""

    options: Options
    settings: Settings
    write: bool = False
    output: str | None = None
    check: bool = False
    output_format: str = "text"
    quiet: bool = False
    verbose: bool = False
    statistics: bool = False
    debug: bool = False
    jobs: int = 1
    #: Original and conversion are run and compared first; with this function's inputs, where it is named.
    verify: bool = False
    inputs: str = ""
    failed: int = 0
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def all(self, paths: Iterable[str]) -> int:
        opened = [o for p in paths if (o := self.open(p)) is not None]
        results = self.converted(opened)
        if self.verify:
            results = self.verified(results)
        kept: list[Conversion] = []
        for file, result in results:
            result = self.without_ignored(result)
            kept.append(result)
            self.diagnostics += [file.placed(d) for d in (*result.refusals, *result.notes)]
            try:
                self.deliver(file, result)
            except FileError as error:
                self.fail(str(error))
        self.report()
        self.summary(kept)
        unmatched = self.unmatched(kept)
        if self.failed or unmatched:
            return 2
        changed = any(r.text != f.source.text for f, r in results)
        return int(any(r.refusals for r in kept) or bool(self.options.left_out) or (self.check and changed))

    def fail(self, message: str) -> None:
        click.echo(message, err=True)
        self.failed += 1

    def open(self, path: str) -> Opened | None:
        try:
            raw = sys.stdin.buffer.read() if path == "-" else read(Path(path))
            if path.endswith(".ipynb"):
                notebook = read_notebook(raw, path)
                return Opened(raw, notebook.source, notebook)
            return Opened(raw, decode(raw, path))
        except (FileError, SourceError) as error:
            self.fail(str(error))
            return None

    # --- converting -------------------------------------------------------------------------

    def converted(self, files: Sequence[Opened]) -> list[tuple[Opened, Conversion]]:
        """Each file with what became of it, in order; those that failed are told of and left out."""
        matter = [f for f in files if not needs_nothing(f.source, self.options)]
        groups = [matter] if len(matter) <= _TOGETHER else [[f] for f in matter]
        sources = [[f.source for f in group] for group in groups if group]
        found: dict[str, Conversion] = {}
        for results in self.in_turn(sources):
            for result in results:
                if isinstance(result, Conversion):
                    found[result.path] = result
                else:
                    self.fail(str(result))
        given = {f.path for f in matter}
        untouched = {
            f.path: Conversion(f.path, f.source.text, scope=self.options.scope) for f in files if f.path not in given
        }
        return [(f, r) for f in files if (r := found.get(f.path) or untouched.get(f.path)) is not None]

    def in_turn(self, groups: list[list[Source]]) -> Iterator[list[Conversion | SourceError | Failure]]:
        workers = min(self.jobs, len(groups))
        if workers < 2:
            yield from _progress((convert_group(g, self.options, self.debug) for g in groups), len(groups))
            return
        with ProcessPoolExecutor(workers) as pool:
            n = len(groups)
            results = pool.map(convert_group, groups, [self.options] * n, [self.debug] * n, chunksize=4)
            yield from _progress(results, n)

    # --- verifying --------------------------------------------------------------------------

    def verified(self, results: list[tuple[Opened, Conversion]]) -> list[tuple[Opened, Conversion]]:
        """The conversions with only those functions converted whose conversion was run and found the same."""
        from if2where.verifying import Request, targets, verify_file

        results = [r for r in results if self.can_verify(r[0])]
        request = Request(self.inputs)
        done: set[tuple[str, str, str]] = set()
        while True:
            left_out: set[tuple[str, str]] = set()
            for file, result in results:
                if result.text == file.source.text:
                    continue
                names = [
                    t
                    for chosen in self.options.functions or ("",)
                    for t in targets(file.source, self.options.scope, chosen)
                    if t[0] in result.converted and (file.path, t[0], result.text) not in done
                ]
                for outcome in verify_file(file.source, names, request, result.text):
                    done.add((file.path, outcome.function, result.text))
                    if outcome.status != "equal":
                        click.echo(f"{file.path}: not converted, {outcome.status}: {outcome.text}", err=True)
                        left_out.add((file.path, outcome.function))
            if not left_out:
                return results
            self.options = replace(self.options, left_out=self.options.left_out | left_out)
            results = self.converted([f for f, _ in results])

    def can_verify(self, file: Opened) -> bool:
        if file.notebook is not None:
            self.fail(
                f"{file.path}:1:1: error: --verify cannot run a notebook; call if2where.verify in one of its cells"
            )
        return file.notebook is None

    # --- what came of it --------------------------------------------------------------------

    def without_ignored(self, result: Conversion) -> Conversion:
        codes = self.settings.ignored_codes(result.path)
        if not codes:
            return result
        refusals = tuple(d for d in result.refusals if d.code.code not in codes)
        return replace(result, refusals=refusals, notes=tuple(d for d in result.notes if d.code.code not in codes))

    def deliver(self, file: Opened, result: Conversion) -> None:
        changed = result.text != file.source.text
        if self.output is not None or file.path == "-":
            data = file.bytes_of(result.text) if changed else file.raw
            if self.output in (None, "-"):
                sys.stdout.buffer.write(data)
            elif self.output is not None:
                write(Path(self.output), data)
        elif changed and self.write:
            write(Path(file.path), file.bytes_of(result.text), file.raw)
        elif changed and self.output_format == "text" and not self.check:
            for name, before, after in file.pieces(result.text):
                click.echo(coloured(diff(name, before, after)), nl=False)
        if self.verbose:
            what = f"converted {', '.join(result.converted)}" if changed else "nothing to convert"
            click.echo(f"{file.path}: {what} (scope: {result.scope})", err=True)

    def report(self) -> None:
        from if2where.diagnostics.formats import render

        if self.output_format != "text":
            click.echo(render(self.diagnostics, self.output_format))
        elif self.diagnostics:
            click.echo("\n".join(map(_coloured_diagnostic, self.diagnostics)), err=True)
        if self.statistics:
            counts = Counter(d.code for d in self.diagnostics)
            for code, n in sorted(counts.items(), key=lambda item: (-item[1], item[0].code)):
                click.echo(f"{n:6}  {code.code}  {code.summary}", err=True)

    def summary(self, results: list[Conversion]) -> None:
        if self.quiet or self.output_format != "text":
            return
        changed = sum(bool(r.converted) for r in results)
        functions = sum(len(r.converted) for r in results)
        refused = len({(d.path, d.function) for r in results for d in r.refusals})
        verb = "would convert" if self.check else "converted"
        line = f"{verb} {_count(functions, 'function')} in {_count(changed, 'file')}, refused {refused}, left {_count(len(results) - changed, 'file')} unchanged"
        if self.options.scope == "auto" and not self.options.functions and results:
            taken = sorted({r.scope for r in results})
            line += f" (scope: {', '.join(taken)})"
        if self.options.guards == "none" and functions:
            line += "; not guarded: the branch not taken may send NaN into gradients"
        click.echo(line, err=True)

    def unmatched(self, results: list[Conversion]) -> bool:
        if not self.options.functions or not results:
            return False
        missing = set.intersection(*(set(r.unmatched) for r in results))
        for name in sorted(missing):
            click.echo(f"error: no function {name!r} in the files given", err=True)
        return bool(missing)


def convert_group(
    sources: Sequence[Source], options: Options, debug: bool = False
) -> list[Conversion | SourceError | Failure]:
    """The files converted together, so that calls across them are followed; one by one where that fails."""
    try:
        return list(convert_files(sources, options))
    except Exception as error:  # of the converter's own: the other files are still done
        if len(sources) > 1:
            return [r for s in sources for r in convert_group([s], options, debug)]
        if debug:
            raise
        return [Failure(sources[0].path, f"{type(error).__name__}: {error}")]


def default_jobs() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _progress(
    results: Iterable[list[Conversion | SourceError | Failure]], total: int
) -> Iterator[list[Conversion | SourceError | Failure]]:
    """The results as they come, with a bar on a terminal where there are many."""
    if total <= _TOGETHER or not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(results, "converting", total=total, console=Console(stderr=True), transient=True)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


# --- text for people ------------------------------------------------------------------------


def diff(path: str, before: str, after: str) -> str:
    """A unified diff of two texts, as git shows it."""
    import difflib

    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path)
    return "".join(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in lines)


def coloured(text: str) -> str:
    """A diff in git's colours; click drops them where the output is no terminal."""
    return "".join(map(_coloured_line, text.splitlines(keepends=True)))


def _coloured_line(line: str) -> str:
    if line.startswith(("+++", "---")):
        return click.style(line, bold=True)
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style(line, fg=colour) if colour else line


def _coloured_diagnostic(d: Diagnostic) -> str:
    from if2where.diagnostics.diagnostic import render_text

    text = render_text(d)
    place = f"{d.path}:{d.line}:{d.col}:"
    code = click.style(d.code.code, fg="yellow" if d.is_note else "red")
    return text.replace(f"{place} {d.code.code}", f"{click.style(place, bold=True)} {code}", 1)
