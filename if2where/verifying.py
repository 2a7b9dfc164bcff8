"""The verification of files: which functions, each in a process of its own with a time limit."""

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


def verify_file(source: Source, functions: list[tuple[str, Any]], request: Request) -> Iterator[Outcome]:
    """One outcome after the other."""
    for name, dims in functions:
        yield _verified(source.path, name, dims, request)


def _verified(path: str, name: str, dims: Any, request: Request) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        asked, result = Path(folder) / "request.json", Path(folder) / "result.json"
        asked.write_text(
            json.dumps(
                {"path": path, "function": name, "in_dims": dims, "inputs": request.inputs, "options": request.options}
            )
        )
        command = [sys.executable, "-m", "if2where.runtime.worker", str(asked), str(result)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=request.timeout, check=False)
        except subprocess.TimeoutExpired:
            return Outcome(name, "failed", f"{name}: it did not end within {request.timeout:g} s")
        if not result.exists():
            last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
            return Outcome(name, "failed", f"{name}: {last}")
        report = json.loads(result.read_text())
    if "error" in report:
        return Outcome(name, report["error"], f"{name}: {report['text']}", report)
    status = "equal" if report["ok"] else "unexercised" if not report["differences"] else "different"
    return Outcome(name, status, report["text"], report)
