"""Running functions of files: which ones, each in a process of its own with a time limit."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from if2where.module import Source, parse_module
from if2where.select import Target, select


@dataclass(frozen=True)
class Request:
    """What is asked for on the command line. ``timeout`` is in seconds, for each function."""

    inputs: str = ""
    timeout: float = 60.0
    options: dict[str, Any] = field(default_factory=lambda: {"samples": 64, "seed": 0, "allow_unexercised": False})


@dataclass(frozen=True)
class Outcome:
    """What came of one function: ``status`` is "equal", "different", "unexercised", "refused", "not run" or "failed"."""

    function: str
    status: str
    text: str
    report: dict[str, Any] = field(default_factory=dict)


def targets(source: Source, scope: str = "auto", name: str = "") -> list[tuple[str, Any]]:
    """The functions to verify, with their in_dims: those in scope, or the one named."""
    module = parse_module(source)
    if name:
        chosen = select(module, scope, (name,)).targets
        known = {t.function.qualname: t for t in select(module, "vmapped", ()).targets}
        return [(t.function.qualname, _dims(known.get(t.function.qualname, t))) for t in chosen] or []
    found = select(module, scope, ()).targets
    return [(t.function.qualname, _dims(t)) for t in found if "<" not in t.function.qualname]


def _dims(target: Target) -> Any:
    arguments = target.function.node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    names = names[1:] if target.function.owner is not None else names
    return [0 if target.batched.get(n, "unbatched") == "batched" else _dim(target.batched.get(n)) for n in names]


def _dim(spec: Any) -> Any:
    return spec if isinstance(spec, int) else None


def verify_file(
    source: Source, functions: list[tuple[str, Any]], request: Request, converted: str | None = None
) -> Iterator[Outcome]:
    """One outcome after the other: of the functions' conversion in memory, or of the text that the file is to get."""
    for name, dims in functions:
        yield _verified({"path": source.path, "function": name, "in_dims": dims, "converted": converted}, request)


def _verified(asked: dict[str, Any], request: Request) -> Outcome:
    name = asked["function"]
    report = in_process({**asked, "task": "verify"}, request)
    if "error" in report:
        return Outcome(name, report["error"], f"{name}: {report['text']}", report)
    status = "equal" if report["ok"] else "unexercised" if not report["differences"] else "different"
    return Outcome(name, status, report["text"], report)


def measure(source: Source, name: str, dims: Any, request: Request, report: bool) -> dict[str, Any]:
    """The timings of one function, and what a page about it shows; ``error`` and ``text`` where there are none."""
    asked = {"task": "bench", "path": source.path, "function": name, "in_dims": dims, "report": report}
    return in_process(asked, request)


def in_process(asked: dict[str, Any], request: Request) -> dict[str, Any]:
    """What a process of its own reports, or ``error`` and ``text`` where there is no report."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "request.json", Path(folder) / "result.json"
        question.write_text(json.dumps({**asked, "inputs": request.inputs, "options": request.options}))
        command = [sys.executable, "-m", "if2where.runtime.worker", str(question), str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=request.timeout, check=False)
        except subprocess.TimeoutExpired:
            return {"error": "failed", "text": f"it did not end within {request.timeout:g} s"}
        if not answer.exists():
            last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
            return {"error": "failed", "text": last}
        report: dict[str, Any] = json.loads(answer.read_text())
        return report
