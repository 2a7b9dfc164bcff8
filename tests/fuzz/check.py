"""Checks random programs: the conversion under vmap against the original's loop."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import torch

from if2where.pipeline import convert_source
from tests.execution import compare, load, loop_gradients
from tests.fuzz.programs import program

IN_DIMS = (0, 0, 0, None)


@dataclass(frozen=True)
class Outcome:
    """``kind``: "equal", "unchanged", "refused", "original" (it does not run), "loud" (torch raises), "mismatch" or "crash"."""

    kind: str
    detail: str = ""


def inputs(seed: int, batch: int = 12) -> tuple[object, ...]:
    """Multiples of a quarter, zeros and ties among them."""
    generator = torch.Generator().manual_seed(seed)

    def quarters(*shape: int) -> torch.Tensor:
        return torch.randint(-8, 9, shape, generator=generator).double() / 4

    x, y, v = quarters(batch), quarters(batch), quarters(batch, 3)
    x[0], y[0] = 0.0, 0.0
    y[1] = x[1]
    v[0] = 0.0
    return x, y, v, 1 + seed % 2


def check_source(text: str, seed: int, second_order: bool = True) -> Outcome:
    """What comes of converting and running one program on the inputs of a seed."""
    warnings.simplefilter("ignore")
    original = load(text, "fuzz_original").f
    args = inputs(seed)
    try:
        loop_gradients(original, args, IN_DIMS, 2 if second_order else 1)
    except Exception as error:
        return Outcome("original", f"{type(error).__name__}: {error}")
    try:
        result = convert_source(text)
    except Exception as error:
        return Outcome("crash", f"{type(error).__name__}: {error}")
    if result.refusals:
        return Outcome("refused", "; ".join(f"{d.line}: {d.code.name} {d.detail}" for d in result.refusals))
    try:
        found = compare(
            original, load(result.text, "fuzz_converted").f, args, IN_DIMS, second_order=second_order, anomaly=False
        )
    except Exception as error:
        if "modified by an inplace operation" in str(error):
            # An update in place that autograd forbids once every sample comes to it: it says so.
            return Outcome("loud", str(error)[:100])
        return Outcome("crash", f"converted: {type(error).__name__}: {str(error)[:300]}")
    if found:
        return Outcome("mismatch", "; ".join(found))
    if convert_source(result.text).text != result.text:
        return Outcome("mismatch", "a second conversion changes it again")
    return Outcome("unchanged" if result.text == text else "equal")


def check(seed: int) -> Outcome:
    """What comes of the program of a seed."""
    return check_source(program(seed), seed)


def _alike(a: Outcome, b: Outcome) -> bool:
    return (
        a.kind == b.kind and re.sub(r"[\d\[\]., -]+", "", a.detail)[:40] == re.sub(r"[\d\[\]., -]+", "", b.detail)[:40]
    )


def shrunk(text: str, seed: int, outcome: Outcome) -> str:
    """The smallest program found, by deleting lines, that ends in the same kind of outcome."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("def f("))
    changed = True
    while changed:
        changed = False
        k = len(lines) - 2
        while k > start:
            indent = len(lines[k]) - len(lines[k].lstrip())
            end = k + 1
            while end < len(lines) and lines[end].strip() and len(lines[end]) - len(lines[end].lstrip()) > indent:
                end += 1
            for replacement in ([], [" " * indent + "pass"]):
                trial = [*lines[:k], *replacement, *lines[end:]]
                source = "\n".join(trial) + "\n"
                if lines[k].strip() in ("", "pass") or trial == lines:
                    continue
                try:
                    compile(source, "trial", "exec")
                    ok = _alike(check_source(source, seed), outcome)
                except Exception:
                    ok = False
                if ok:
                    lines, changed = trial, True
                    break
            k -= 1
            k = min(k, len(lines) - 1)
    return "\n".join(lines) + "\n"
