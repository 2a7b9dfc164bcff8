"""The command: reads the options, calls the pipeline, prints what came of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from if2where.settings import CHECKS, FORMATS, GUARDS, SCOPES, SIZES, WAYS, Settings, SettingsError, load, nearest

if TYPE_CHECKING:
    from if2where.module import Source

VERSION = "0.1.0"

EXAMPLES = """\b
Examples:
  if2where convert model.py              print the diff
  if2where convert --write src/          change the files
  if2where convert --check --scope vmapped .
  if2where convert --function energy -o energy_where.py energy.py
  if2where convert - < model.py          from stdin to stdout
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="if2where")
def main() -> None:
    """Turn per-sample PyTorch code with ifs on the data into torch.where code that vmap accepts."""


@main.command(epilog=EXAMPLES)
@click.argument("paths", nargs=-1)
@click.option("-w", "--write", is_flag=True, help="Change the files.")
@click.option("-o", "--output", metavar="FILE", help="Write one file's result elsewhere (-: stdout).")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 where something would change.")
@click.option("--verify", is_flag=True, help="Run both first; leave out what is not the same (runs the file's code).")
@click.option("--inputs", default="", metavar="NAME", help="With --verify: what gives the arguments, as for verify.")
@click.option("--function", "functions", multiple=True, metavar="NAME", help="Convert the functions of this name.")
@click.option("--scope", type=click.Choice(SCOPES), help="Which functions.  [default: auto]")
@click.option("--guards", type=click.Choice(GUARDS), help="Keep the branch not taken from making NaN.  [default: auto]")
@click.option("--checks", type=click.Choice(CHECKS), help="Asserts and raises on the data.  [default: keep]")
@click.option(
    "--max-iterations",
    type=click.IntRange(1),
    metavar="N",
    help="Bound each data-dependent while by N steps of plain torch.",
)
@click.option("--allow-random", is_flag=True, help="Draw random numbers under a branch for all samples.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out what matches, in folders.")
@click.option("--extend-exclude", multiple=True, metavar="GLOB", help="Leave that out too.")
@click.option("--no-gitignore", is_flag=True, help="Do not leave out what .gitignore names.")
@click.option("--config", metavar="FILE", help="Take the settings from FILE, not from the nearest pyproject.toml.")
@click.option("--isolated", is_flag=True, help="Take no settings from any file.")
@click.option("--show-settings", is_flag=True, help="Print the settings that hold, and where they are from.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="Processes at once.  [default: one a core]")
@click.option("--output-format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.option("-v", "--verbose", is_flag=True, help="Say of each file what became of it.")
@click.option("--statistics", is_flag=True, help="Count the refusals by code.")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@click.pass_context
def convert(
    context: click.Context,
    paths: tuple[str, ...],
    write: bool,
    output: str | None,
    check: bool,
    verify: bool,
    inputs: str,
    functions: tuple[str, ...],
    scope: str | None,
    guards: str | None,
    checks: str | None,
    max_iterations: int | None,
    allow_random: bool,
    exclude: tuple[str, ...],
    extend_exclude: tuple[str, ...],
    no_gitignore: bool,
    config: str | None,
    isolated: bool,
    show_settings: bool,
    jobs: int | None,
    output_format: str,
    color: str,
    quiet: bool,
    verbose: bool,
    statistics: bool,
    debug: bool,
) -> None:
    """Convert Python files and notebooks: print the diff, or write the result.

    PATH is a file, a folder, or - for stdin (then the source is printed).
    """
    if not paths and not show_settings:
        raise click.UsageError("give a PATH")
    if write and (output is not None or check):
        raise click.UsageError("--write goes with neither --output nor --check")
    if verify and "-" in paths:
        raise click.UsageError("--verify needs a file, not stdin")
    if config is not None and isolated:
        raise click.UsageError("--config and --isolated exclude each other")
    given: dict[str, object] = {
        "scope": scope,
        "functions": functions,
        "guards": guards,
        "checks": checks,
        "max_iterations": max_iterations,
        "allow_random": allow_random or None,
        "exclude": exclude,
        "extend_exclude": extend_exclude,
        "respect_gitignore": False if no_gitignore else None,
    }
    settings, place = _settings(paths, config, isolated, given)
    if show_settings:
        click.echo(f"# {place or 'no settings file'}\n{settings.toml()}")
        return
    context.color = _wants_colour(color)

    from if2where.converting import Run, default_jobs
    from if2where.files import find

    files = ["-"] if paths == ("-",) else [str(p) for p in find(paths, settings.excluded, settings.respect_gitignore)]
    if output is not None and len(files) != 1:
        raise click.UsageError("--output takes one file")
    run = Run(
        settings.options(),
        settings,
        write=write,
        output=output,
        check=check,
        output_format=output_format,
        quiet=quiet,
        verbose=verbose,
        statistics=statistics,
        debug=debug,
        jobs=jobs or default_jobs(),
        verify=verify,
        inputs=inputs,
    )
    sys.exit(run.all(files))


def _settings(
    paths: tuple[str, ...], config: str | None, isolated: bool, given: dict[str, object]
) -> tuple[Settings, Path | None]:
    """The settings, and the file that they are from."""
    try:
        place = Path(config) if config is not None else None if isolated else nearest([p for p in paths if p != "-"])
        found = load(place)
    except SettingsError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    return found.over(given), place


def _wants_colour(color: str) -> bool | None:
    """What click goes by: None leaves it to the terminal. NO_COLOR is as in https://no-color.org."""
    if color == "auto":
        return False if os.environ.get("NO_COLOR") else None
    return color == "always"


# Of the commands that run functions of a file.
_TARGET = click.argument("target", metavar="FILE[::FUNCTION]")
_INPUTS = click.option(
    "--inputs", default="", metavar="NAME", help="A function of the file, or module:function, that gives the arguments."
)
_SAMPLES = click.option(
    "--samples", default=64, show_default=True, help="How many samples are made, where none are given."
)
_SEED = click.option("--seed", default=0, show_default=True, help="Makes runs repeat.")
_TEXT_OR_JSON = click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)


@main.command()
@_TARGET
@_INPUTS
@_SAMPLES
@_SEED
@click.option("--second-order", is_flag=True, help="Compare second derivatives.")
@click.option("--forward-mode", is_flag=True, help="Compare the jvp.")
@click.option("--nested", is_flag=True, help="Compare vmap(vmap(...)).")
@click.option("--allow-unexercised", is_flag=True, help="Pass although no sample takes one side of a test.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for each function.")
@_TEXT_OR_JSON
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

    from if2where.verifying import Request, verify_file

    source, functions = _functions(target)
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
@_TARGET
@_INPUTS
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Batch sizes.")
@click.option(
    "--way",
    "ways",
    multiple=True,
    type=click.Choice(WAYS),
    help="Only this way; may be given more than once.",
)
@click.option("--report", metavar="FILE.html", help="Write a page with the diff, curves and a plot (needs matplotlib).")
@_SAMPLES
@_SEED
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for each function.")
@_TEXT_OR_JSON
def bench(
    target: str,
    inputs: str,
    sizes: str,
    ways: tuple[str, ...],
    report: str | None,
    samples: int,
    seed: int,
    timeout: float,
    output_format: str,
) -> None:
    """Time functions of FILE: the loop, converted, compiled, and with torch.cond (needs torch).

    FILE's code is run, each function in a process of its own; where the arguments come from is as for verify.
    """
    import json

    from if2where.files import FileError, write
    from if2where.verifying import Request, measure

    try:
        counts = [int(s) for s in sizes.split(",")]
    except ValueError:
        raise click.UsageError(f"--sizes takes whole numbers, as in 1,100,10000: {sizes!r}") from None
    if min(counts) < 1:
        raise click.UsageError("--sizes takes numbers above 0")
    source, functions = _functions(target)
    if report is not None and len(functions) != 1:
        raise click.UsageError(f"--report takes one function: {', '.join(f'{source.path}::{n}' for n, _ in functions)}")
    options: dict[str, object] = {"samples": samples, "seed": seed, "sizes": counts}
    if ways:
        options["ways"] = ways
    failed, results = False, []
    for name, dims in functions:
        found = measure(source, name, dims, Request(inputs, timeout, options), report is not None)
        failed |= "error" in found
        results.append({"function": name, **found})
        if output_format == "text":
            click.echo(f"{name}: {found['error']}: {found['text']}" if "error" in found else found["text"])
        if report is not None and "error" not in found:
            try:
                from if2where.report import page

                write(Path(report), page(source.path, found["diff"], found).encode())
            except ImportError:
                click.echo("error: --report needs matplotlib: pip install if2where[report]", err=True)
                sys.exit(2)
            except FileError as error:
                click.echo(str(error), err=True)
                sys.exit(2)
    if output_format == "json":
        click.echo(json.dumps(results, indent=2))
    sys.exit(int(failed))


def _functions(target: str) -> tuple[Source, list[tuple[str, object]]]:
    """The file of FILE[::FUNCTION] and its functions, each with its in_dims; ends the command where there are none."""
    from if2where.files import FileError, read
    from if2where.module import SourceError, decode
    from if2where.verifying import targets

    path, _, name = target.partition("::")
    try:
        source = decode(read(Path(path)), path)
        functions = targets(source, name=name)
    except (FileError, SourceError) as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    if not functions:
        reason = f"no function {name!r} in {path}" if name else f"nothing in {path} is vmapped"
        click.echo(f"error: {reason}", err=True)
        sys.exit(2)
    return source, functions


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
def lsp() -> None:
    """Serve an editor over stdin and stdout: diagnostics, conversions, hover (needs the extra lsp)."""
    try:
        from if2where.lsp import server
    except ImportError:
        click.echo("error: the language server needs pygls: pip install if2where[lsp]", err=True)
        sys.exit(2)
    server().start_io()


@main.command()
def quickstart() -> None:
    """Convert the bundled example, run it under vmap, and compare it with the loop (needs torch)."""
    from if2where.quickstart import run

    sys.exit(run())
