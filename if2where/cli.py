"""The command: reads the options, calls the pipeline, prints what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from if2where.diagnostics.diagnostic import Diagnostic
    from if2where.module import Source
    from if2where.pipeline import Conversion, Options

VERSION = "0.1.0"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="if2where")
def main() -> None:
    """Turn per-sample PyTorch code with ifs on the data into torch.where code that vmap accepts."""


@main.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("-w", "--write", is_flag=True, help="Change the files.")
@click.option("-o", "--output", metavar="FILE", help="Write one file's result elsewhere (-: stdout).")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 where something would change.")
@click.option("--function", "functions", multiple=True, metavar="NAME", help="Convert the functions of this name.")
@click.option(
    "--scope", type=click.Choice(["auto", "vmapped", "all"]), default="auto", show_default=True, help="Which functions."
)
@click.option(
    "--guards",
    type=click.Choice(["auto", "none"]),
    default="auto",
    show_default=True,
    help="Keep the branch not taken from making NaN.",
)
@click.option(
    "--checks",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    show_default=True,
    help="What to do with asserts and raises on the data.",
)
@click.option(
    "--max-iterations",
    type=click.IntRange(1),
    metavar="N",
    help="Bound each data-dependent while by N steps of plain torch.",
)
@click.option("--allow-random", is_flag=True, help="Draw random numbers under a branch for all samples.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out what matches, in folders.")
@click.option(
    "--output-format", type=click.Choice(["text", "json", "sarif", "github"]), default="text", show_default=True
)
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def convert(
    paths: tuple[str, ...],
    write: bool,
    output: str | None,
    check: bool,
    functions: tuple[str, ...],
    scope: str,
    guards: str,
    checks: str,
    max_iterations: int | None,
    allow_random: bool,
    exclude: tuple[str, ...],
    output_format: str,
    quiet: bool,
    debug: bool,
) -> None:
    """Convert Python files: print the diff, or write the result.

    PATH is a file, a folder, or - for stdin (then the source is printed).
    """
    from if2where.files import find
    from if2where.pipeline import Options

    options = Options(scope, functions, guards, checks, max_iterations, allow_random)
    if write and (output is not None or check):
        raise click.UsageError("--write goes with neither --output nor --check")
    files = ["-"] if paths == ("-",) else [str(p) for p in find(paths, exclude)]
    if output is not None and len(files) != 1:
        raise click.UsageError("--output takes one file")
    run = _Run(options, write, output, check, output_format, quiet, debug)
    sys.exit(run.all(files))


@main.command()
@click.argument("target", metavar="FILE[::FUNCTION]")
@click.option(
    "--inputs", default="", metavar="NAME", help="A function of the file, or module:function, that gives the arguments."
)
@click.option("--samples", default=64, show_default=True, help="How many samples are made, where none are given.")
@click.option("--seed", default=0, show_default=True, help="Makes runs repeat.")
@click.option("--second-order", is_flag=True, help="Compare second derivatives.")
@click.option("--forward-mode", is_flag=True, help="Compare the jvp.")
@click.option("--nested", is_flag=True, help="Compare vmap(vmap(...)).")
@click.option("--allow-unexercised", is_flag=True, help="Pass although no sample takes one side of a test.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for each function.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify(
    target: str,
    inputs: str,
    samples: int,
    seed: int,
    second_order: bool,
    forward_mode: bool,
    nested: bool,
    allow_unexercised: bool,
    timeout: float,
    output_format: str,
) -> None:
    """Run functions of FILE sample by sample and converted under vmap, and compare them (needs torch).

    FILE's code is run, each function in a process of its own. Compared are values, dtypes, shapes, gradients and
    which sides of each test were taken. Without --inputs, a function verify_inputs of the file gives the
    arguments, or they are made up. Exit status 1 where something differs, is refused or was not exercised.
    """
    import json

    from if2where.files import FileError, read
    from if2where.module import SourceError, decode
    from if2where.verifying import Request, targets, verify_file

    path, _, name = target.partition("::")
    try:
        source = decode(read(Path(path)), path)
        functions = targets(source, name=name)
    except (FileError, SourceError) as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    if not functions:
        click.echo(
            f"error: no function {name!r} in {path}" if name else f"error: nothing in {path} is vmapped", err=True
        )
        sys.exit(2)
    options = {
        "samples": samples,
        "seed": seed,
        "second_order": second_order,
        "forward_mode": forward_mode,
        "nested": nested,
        "allow_unexercised": allow_unexercised,
    }
    outcomes = []
    for outcome in verify_file(source, functions, Request(inputs, timeout, options)):
        outcomes.append(outcome)
        if output_format == "text":
            click.echo(outcome.text)
    if output_format == "json":
        click.echo(json.dumps([{"function": o.function, "status": o.status, **o.report} for o in outcomes], indent=2))
    sys.exit(int(any(o.status != "equal" for o in outcomes)))


@main.command()
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="Explain all codes.")
def explain(code: str | None, everything: bool) -> None:
    """Say what a refusal's CODE means, with an example and how to mend it."""
    from if2where.diagnostics.codes import CODES
    from if2where.diagnostics.diagnostic import explain as explain_code

    names = [c.code for c in CODES] if everything else [code] if code else []
    if not names:
        raise click.UsageError("give a CODE, or --all")
    texts = [explain_code(n) for n in names]
    if None in texts:
        raise click.UsageError(f"no such code: {code}")
    click.echo("\n\n---\n\n".join(t for t in texts if t is not None))


@main.command()
def quickstart() -> None:
    """Convert the bundled example, run it under vmap, and compare it with the loop (needs torch)."""
    from if2where.quickstart import run

    sys.exit(run())


@dataclass
class _Run:
    """One run of the command over files; methods give the exit status."""

    options: Options
    write: bool
    output: str | None
    check: bool
    output_format: str
    quiet: bool
    debug: bool

    def all(self, files: Sequence[str]) -> int:
        from if2where.files import FileError

        sources: list[Source] = []
        data: dict[str, bytes] = {}
        failed = 0
        for path in files:
            try:
                raw, source = self.read(path)
            except FileError as error:
                click.echo(str(error), err=True)
                failed += 1
            except Exception as error:
                click.echo(str(error), err=True)
                failed += 1
            else:
                sources.append(source)
                data[path] = raw
        results, broken = self.convert(sources)
        failed += broken
        diagnostics: list[Diagnostic] = []
        changed = 0
        for source, result in results:
            diagnostics += [*result.refusals, *result.notes]
            changed += result.text != source.text
            try:
                self.deliver(source, result, data[source.path])
            except FileError as error:
                click.echo(str(error), err=True)
                failed += 1
        self.report(diagnostics)
        self.summary([r for _, r in results], changed)
        unmatched = self.unmatched([r for _, r in results])
        if failed or unmatched:
            return 2
        refused = any(r.refusals for _, r in results)
        return int(refused or (self.check and changed > 0))

    def read(self, path: str) -> tuple[bytes, Source]:
        from if2where.files import read
        from if2where.module import decode

        raw = sys.stdin.buffer.read() if path == "-" else read(Path(path))
        return raw, decode(raw, path)

    def convert(self, sources: list[Source]) -> tuple[list[tuple[Source, Conversion]], int]:
        """The files together, so that calls across them are followed; one by one where that fails."""
        from if2where.module import SourceError
        from if2where.pipeline import convert_files

        done: list[tuple[Source, Conversion]] = []
        failed = 0
        for group in [sources] if len(sources) <= 20 else [[s] for s in sources]:
            try:
                results = convert_files(group, self.options)
            except Exception as error:
                if len(group) > 1:
                    some, broken = self.one_by_one(group)
                    done, failed = done + some, failed + broken
                    continue
                if self.debug:
                    raise
                click.echo(
                    f"{group[0].path}:1:1: error: IW999 internal error: {type(error).__name__}: {error}", err=True
                )
                failed += 1
                continue
            for source, result in zip(group, results, strict=True):
                if isinstance(result, SourceError):
                    click.echo(str(result), err=True)
                    failed += 1
                else:
                    done.append((source, result))
        return done, failed

    def one_by_one(self, group: list[Source]) -> tuple[list[tuple[Source, Conversion]], int]:
        done: list[tuple[Source, Conversion]] = []
        failed = 0
        for source in group:
            some, broken = self.convert([source])
            done, failed = done + some, failed + broken
        return done, failed

    def deliver(self, source: Source, result: Conversion, raw: bytes) -> None:
        from if2where.files import write
        from if2where.module import encode

        if self.output is not None:
            data = encode(source, result.text)
            if self.output == "-":
                sys.stdout.buffer.write(data)
            else:
                write(Path(self.output), data)
        elif source.path == "-":
            sys.stdout.buffer.write(encode(source, result.text))
        elif result.text != source.text and self.write:
            write(Path(source.path), encode(source, result.text), raw)
        elif result.text != source.text and self.output_format == "text" and not self.check:
            click.echo(diff(source.path, source.text, result.text), nl=False)

    def report(self, diagnostics: list[Diagnostic]) -> None:
        from if2where.diagnostics.formats import render

        if self.output_format != "text":
            click.echo(render(diagnostics, self.output_format))
        elif diagnostics:
            click.echo(render(diagnostics, "text"), err=True)

    def summary(self, results: list[Conversion], changed: int) -> None:
        if self.quiet or self.output_format != "text":
            return
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


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def diff(path: str, before: str, after: str) -> str:
    """A unified diff of two texts, as git shows it."""
    import difflib

    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path)
    return "".join(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in lines)
