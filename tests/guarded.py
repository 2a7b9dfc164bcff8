"""Programs that put a harmful operation behind, or before, each kind of branch: one per combination.

``python -m tests.guarded`` runs them all and prints those whose conversion differs from the loop.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from if2where.pipeline import convert_source
from tests.execution import compare, load, loop_gradients

IN_DIMS = (0, 0)


@dataclass(frozen=True)
class Operation:
    """``text`` is an expression in {u}, harmless where ``test`` (in x, the operand's source) holds."""

    name: str
    text: str
    test: str


OPERATIONS = [
    Operation(name, text, test)
    for name, text, test in [
        ("sqrt", "torch.sqrt({u})", "{u} > 0"),
        ("method", "{u}.sqrt()", "{u} > 0"),
        ("rsqrt", "torch.rsqrt({u})", "{u} > 0"),
        ("log", "torch.log({u})", "{u} > 0"),
        ("log1p", "torch.log1p({u})", "{u} > -1"),
        ("reciprocal", "1.5 / {u}", "{u} != 0"),
        ("quotient", "y / {u}", "abs({u}) > 0"),
        ("quotient of a square", "y / ({u} * {u})", "{u} != 0"),
        ("root", "{u} ** 0.5", "{u} > 0"),
        ("inverse power", "{u} ** -2", "{u} != 0"),
        ("power by a tensor", "{u} ** y", "{u} > 0"),
        ("pow", "torch.pow({u}, 1.5)", "{u} > 0"),
        ("acos", "torch.acos({u})", "abs({u}) < 1"),
        ("asin", "torch.asin({u})", "-1 < {u} < 1"),
        ("acosh", "torch.acosh({u})", "{u} > 1"),
        ("atanh", "torch.atanh({u})", "abs({u}) < 1"),
        ("exp", "torch.exp({u})", "{u} < 50"),
        ("sinh", "torch.sinh({u})", "abs({u}) < 50"),
        ("cosh", "torch.cosh({u})", "abs({u}) < 50"),
        ("lgamma", "torch.lgamma({u})", "{u} > 0"),
        ("digamma", "torch.digamma({u})", "{u} > 0"),
        ("erfinv", "torch.erfinv({u})", "abs({u}) < 1"),
        ("logit", "torch.logit({u})", "0 < {u} < 1"),
        ("xlogy", "torch.xlogy(y, {u})", "{u} > 0"),
        ("atan2", "torch.atan2({u}, {u})", "{u} != 0"),
        ("hypot", "torch.hypot({u}, 2 * {u})", "{u} != 0"),
        ("norm", "torch.stack([{u}, {u}]).norm()", "{u} != 0"),
        ("vector_norm", "torch.linalg.vector_norm(torch.stack([{u}, {u}]))", "{u} != 0"),
        ("normalize", "F.normalize(torch.stack([{u}, 2 * {u}]), dim=0).sum()", "{u} != 0"),
        ("std", "torch.stack([{u}, 2 * {u}, 4 * {u}]).std()", "{u} != 0"),
        ("cholesky", "torch.linalg.cholesky(torch.diag(torch.stack([{u}, 2 * {u}]))).sum()", "{u} > 0"),
        ("inverse", "torch.linalg.inv(torch.diag(torch.stack([{u}, 2 * {u}]))).sum()", "{u} != 0"),
        ("solve", "torch.linalg.solve(torch.diag(torch.stack([{u}, {u}])), torch.stack([y, y])).sum()", "{u} != 0"),
        ("logdet", "torch.logdet(torch.diag(torch.stack([{u}, 2 * {u}])))", "{u} > 0"),
        ("product with a NaN", "y * {u}", "not torch.isnan({u})"),
        ("dot with a NaN", "torch.stack([y, y]) @ torch.stack([{u}, {u}])", "torch.isfinite({u})"),
        ("sine of a NaN", "torch.sin({u})", "{u} == {u}"),
        ("polynomial", "{u} * (1 - {u} * {u} * (2 - {u} * {u}))", "abs({u}) <= 1e3"),
        ("cube", "{u} ** 3", "-100 < {u} < 100"),
    ]
]

#: What the operation is applied to, and where else it may come from than from a plain argument.
OPERANDS = {
    "argument": "x",
    "local": "u",
    "expression": "(x + 0.0 * y)",
}

#: Branches with the operation {op} behind the test {test} ({fails} its negation).
BRANCHES = {
    "then": "    r = y\n    if {test}:\n        r = y * {op}\n    return r\n",
    "else": "    if {fails}:\n        r = 2 * y\n    else:\n        r = y + {op}\n    return r\n",
    "elif": "    if y > 1:\n        r = y\n    elif {test}:\n        r = {op} * y\n    else:\n        r = -y\n    return r\n",
    "early return": "    if {fails}:\n        return y\n    return torch.tanh(y * {op})\n",
    "ternary": "    return ({op} if {test} else y) * y\n",
    "and": "    if ({test}) and {op} < 2:\n        return 2 * y\n    return y * y\n",
    "nested": (
        "    r = y\n    if y > -1:\n        if {test}:\n            t = {op}\n            if y < 1:\n"
        "                r = t * y\n            else:\n                r = t\n    return r\n"
    ),
    "before the return": "    t = {op}\n    if {fails}:\n        return y\n    return t * y\n",
    "before the branch": "    t = {op}\n    r = y\n    if {test}:\n        r = r + t * t\n    return r\n",
    "before its own test": "    t = {op}\n    if not (t < 1e6) or {fails}:\n        return y\n    return y * t\n",
}


def programs() -> Iterator[tuple[str, str]]:
    """Each program's name and text."""
    for operation in OPERATIONS:
        for operand, u in OPERANDS.items():
            test, op = operation.test.format(u=u), operation.text.format(u=u)
            first = "    u = x - 0.0\n" if operand == "local" else ""
            for branch, body in BRANCHES.items():
                text = body.format(test=test, fails=f"not ({test})", op=op)
                yield (
                    f"{operation.name}, {operand}, {branch}",
                    f"import torch\nimport torch.nn.functional as F\n\n\ndef f(x, y):\n{first}{text}\n\n"
                    "BATCHED = torch.func.vmap(f)\n",
                )


def inputs(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Every operand at which some operation does harm, with several weights."""
    huge = 1e200 if dtype == torch.float64 else 1e30
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 2.0, -2.0, 3.0, float("nan"), 1e3, -1e3, huge, -huge]
    x = torch.tensor(edges * 2, dtype=dtype)
    y = torch.tensor([0.75, -1.25, 0.5, 1.5, -0.5, 0.25, 1.25] * 4, dtype=dtype)
    return x, y


def differences(text: str, dtype: torch.dtype = torch.float64, second_order: bool = True) -> list[str]:
    """What the conversion of a program gets wrong."""
    original = load(text, "guarded_original").f
    args = _where_defined(original, inputs(dtype), second_order)
    result = convert_source(text)
    if result.refusals:
        return [f"refused: {d.code.name} {d.detail}" for d in result.refusals]
    if result.text == text:
        return ["not converted"]
    converted = load(result.text, "guarded_converted").f
    return compare(
        original, converted, args, IN_DIMS, second_order=second_order, forward_mode=second_order, per_sample=True
    )


def _where_defined(fn: object, args: tuple[torch.Tensor, ...], second_order: bool) -> tuple[torch.Tensor, ...]:
    """The samples at which the original itself raises nothing: an operation before its test may."""
    kept = []
    for k in range(len(args[0])):
        one = tuple(a[k : k + 1] for a in args)
        try:
            loop_gradients(fn, one, IN_DIMS, 2 if second_order else 1)  # type: ignore[arg-type]
        except RuntimeError as error:
            if "not positive-definite" not in str(error) and "singular" not in str(error):
                raise
            continue
        kept.append(k)
    return tuple(a[kept] for a in args)


def main() -> None:
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for name, text in programs():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            found = differences(text)
        except Exception as error:
            found = [f"{type(error).__name__}: {str(error)[:200]}"]
        counts["different" if found else "equal"] += 1
        if found:
            print(f"== {name}: {found[0]}")
            if len(sys.argv) > 1:
                print(text, convert_source(text).text, sep="\n")
    print(dict(counts))


if __name__ == "__main__":
    main()
