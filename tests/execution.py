"""Runs an original sample by sample and its conversion under vmap, and tells where they differ."""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

Function = Callable[..., Any]


def load(text: str, name: str) -> types.ModuleType:
    """The module that the text defines."""
    module = types.ModuleType(name)
    filename = f"<{name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    sys.modules[name] = module
    exec(compile(text, filename, "exec"), module.__dict__)
    return module


class _Watch(ast.NodeTransformer):
    """Wraps every operand of a test's and / or / not, so that what it came out as is recorded."""

    def visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            node.test = self._watched(node.test)
        elif isinstance(node, ast.comprehension):
            node.ifs = [self._watched(test) for test in node.ifs]
        elif isinstance(node, ast.FunctionDef):
            # Compiled by TorchScript, the function would not know the recorder.
            node.decorator_list = [d for d in node.decorator_list if not ast.unparse(d).endswith("jit.script")]
        return node

    def _watched(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.BoolOp):
            test.values = [self._watched(value) for value in test.values]
            return test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._watched(test.operand)
            return test
        place = ast.Constant(f"{test.lineno}:{test.col_offset + 1}")
        call = ast.Call(ast.Name("watch__", ast.Load()), [place, test], [])
        return ast.copy_location(call, test)


def one_sided_tests(text: str, entry: str, samples: Sequence[Sequence[Any]], in_dims: Sequence[Any]) -> list[str]:
    """The tests on tensors in the text that came out alike in all samples, as ``line:col always True``."""
    seen: defaultdict[str, set[bool]] = defaultdict(set)

    def watch(place: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            seen[place].add(bool(value))
        return value

    module = types.ModuleType("watched")
    sys.modules["watched"] = module
    module.__dict__["watch__"] = watch
    tree = ast.fix_missing_locations(_Watch().visit(ast.parse(text)))
    exec(compile(tree, "<watched>", "exec"), module.__dict__)
    for inputs in samples:
        run_loop(getattr(module, entry), inputs, in_dims)
    places = sorted(seen, key=lambda place: [int(n) for n in place.split(":")])
    return [f"{place} always {min(seen[place])}" for place in places if len(seen[place]) < 2]


def leaves(out: Any) -> list[Any]:
    """The numbers and tensors of a result; NamedTuples and dataclasses by their fields."""
    if hasattr(out, "__dataclass_fields__"):
        out = {name: getattr(out, name) for name in out.__dataclass_fields__}
    found = pytree.tree_leaves(out)
    return [leaf for item in found for leaf in (leaves(item) if hasattr(item, "__dataclass_fields__") else [item])]


def tensors(out: Any) -> tuple[torch.Tensor, ...]:
    """The leaves of a result, a number that is the same for all samples as a tensor: vmap returns nothing else."""
    return tuple(
        v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64 if isinstance(v, float) else None)
        for v in leaves(out)
    )


def run_loop(
    fn: Function, inputs: Sequence[Any], in_dims: Sequence[Any]
) -> tuple[list[torch.Tensor], list[Any], list[Any]]:
    """Stacked leaves, for each the dtype where every sample gave a tensor of it, and the batched arguments after the calls."""
    batch = next(a.shape[0] for a, d in zip(inputs, in_dims, strict=True) if d == 0)
    rows, after = [], []
    for i in range(batch):
        args = [
            a[i].clone() if d == 0 else a.clone() if isinstance(a, torch.Tensor) else a
            for a, d in zip(inputs, in_dims, strict=True)
        ]
        rows.append([v.clone() if isinstance(v, torch.Tensor) else v for v in leaves(fn(*args))])
        after.append([a for a, d in zip(args, in_dims, strict=True) if d == 0])
    stacked, dtypes = [], []
    for column in zip(*rows, strict=True):
        kinds = {v.dtype if isinstance(v, torch.Tensor) else None for v in column}
        dtypes.append(kinds.pop() if len(kinds) == 1 else None)
        stacked.append(
            torch.stack(
                [v.double() if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64) for v in column]
            )
        )
    return stacked, dtypes, [torch.stack(column) for column in zip(*after, strict=True)]


def run_vmap(fn: Function, inputs: Sequence[Any], in_dims: Sequence[Any]) -> tuple[list[torch.Tensor], list[Any]]:
    passed = [a.clone() if isinstance(a, torch.Tensor) else a for a in inputs]
    mapped = torch.func.vmap(lambda *args: tensors(fn(*args)), in_dims=tuple(in_dims))
    out = list(mapped(*passed))
    return out, [a for a, d in zip(passed, in_dims, strict=True) if d == 0]


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {
        torch.float64: {"rtol": 1e-9, "atol": 1e-10},
        torch.float32: {"rtol": 2e-5, "atol": 1e-5},
        torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
        torch.float16: {"rtol": 4e-3, "atol": 4e-3},
    }.get(dtype, {"rtol": 0.0, "atol": 0.0})


def compare(
    original: Function,
    converted: Function,
    inputs: Sequence[Any],
    in_dims: Sequence[Any],
    *,
    gradients: bool = True,
    second_order: bool = False,
    forward_mode: bool = False,
    per_sample: bool = False,
    anomaly: bool = True,
) -> list[str]:
    """Differences between the original's loop and the converted function under vmap; empty where there is none.

    Values, shapes, dtypes and the arguments after the call always; with ``gradients`` the first derivatives by
    every floating input under a random cotangent (None counts as zeros), with ``second_order`` the second ones,
    with ``forward_mode`` the jvp along a random tangent, with ``per_sample`` the derivatives by ``vmap(grad(f))``.
    With ``anomaly``, a NaN on the way back is a difference too where the loop's derivatives are all finite.
    """
    found: list[str] = []
    want, dtypes, want_after = run_loop(original, inputs, in_dims)
    got, got_after = run_vmap(converted, inputs, in_dims)
    if len(want) != len(got):
        return [f"{len(got)} outputs for {len(want)}"]
    for k, (a, b, dtype) in enumerate(zip(want, got, dtypes, strict=True)):
        if a.shape != b.shape:
            found.append(f"output {k}: shape {tuple(b.shape)} for {tuple(a.shape)}")
            continue
        if dtype is not None and b.dtype != dtype:
            found.append(f"output {k}: {b.dtype} for {dtype}")
        if not torch.allclose(a, b.double(), equal_nan=True, **tolerance(b.dtype)):
            rows = (
                (~torch.isclose(a, b.double(), equal_nan=True, **tolerance(b.dtype)))
                .reshape(len(a), -1)
                .any(1)
                .nonzero()[:, 0]
                .tolist()
            )
            found.append(f"output {k}: samples {rows[:6]}: {b[rows[0]].tolist()} for {a[rows[0]].tolist()}")
    for k, (a, b) in enumerate(zip(want_after, got_after, strict=True)):
        if a.shape != b.shape or not torch.allclose(a.double(), b.double(), equal_nan=True, **tolerance(b.dtype)):
            found.append(f"batched argument {k} is not left as the original leaves it")
        if a.dtype != b.dtype:
            found.append(f"batched argument {k}: {b.dtype} for {a.dtype}")
    if gradients and not found:
        found += _compare_gradients(original, converted, inputs, in_dims, second_order, anomaly)
        if per_sample and not found:
            found += _compare_per_sample(original, converted, inputs, in_dims)
        if forward_mode and not found:
            found += _compare_forward(original, converted, inputs, in_dims)
    return found


def _weights(outs: list[torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.rand(o.shape, generator=generator, dtype=torch.float64) + 0.5 for o in outs]


def _grads(
    call: Callable[[list[Any]], list[torch.Tensor]], inputs: Sequence[Any], which: list[int], order: int
) -> list[torch.Tensor] | None:
    live = [a.detach().clone().requires_grad_() if k in which else a for k, a in enumerate(inputs)]
    outs = call([a * 1 if k in which else a for k, a in enumerate(live)])
    terms = [
        (torch.where(torch.isfinite(o.detach()), o, torch.zeros_like(o)) * w).sum()
        for o, w in zip(outs, _weights(outs), strict=True)
        if o.requires_grad
    ]
    targets = [live[k] for k in which]
    if not terms:
        return None
    loss = torch.stack(terms).sum()
    for _ in range(order - 1):
        first = torch.autograd.grad(loss, targets, create_graph=True, allow_unused=True)
        parts = [
            (
                torch.where(torch.isfinite(g.detach()), g, torch.zeros_like(g))
                * (1 + 0.25 * torch.arange(g.numel()).reshape(g.shape) % 3)
            ).sum()
            for g in first
            if g is not None and g.requires_grad
        ]
        if not parts:
            return None
        loss = torch.stack(parts).sum()
    grads = torch.autograd.grad(loss, targets, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, targets, strict=True)]


def loop_gradients(fn: Function, inputs: Sequence[Any], in_dims: Sequence[Any], order: int) -> None:
    """Runs the loop and its derivatives; raises what they raise."""
    which = _floating(inputs)
    run_loop(fn, inputs, in_dims)
    _grads(lambda p: run_loop(fn, p, in_dims)[0], inputs, which, order)


def _floating(inputs: Sequence[Any]) -> list[int]:
    return [k for k, a in enumerate(inputs) if isinstance(a, torch.Tensor) and a.is_floating_point()]


def _finite_samples(fn: Function, inputs: Sequence[Any], in_dims: Sequence[Any]) -> torch.Tensor:
    """Where every output of the original is finite: elsewhere its derivatives say nothing."""
    outs = run_loop(fn, inputs, in_dims)[0]
    return torch.stack([torch.isfinite(o).reshape(len(o), -1).all(1) for o in outs]).all(0)


def _derivative_difference(label: str, want: torch.Tensor, got: torch.Tensor, dtype: torch.dtype) -> list[str]:
    """At most one line; ``dtype`` is the one that was computed in. Both have the samples first, or no samples."""
    # An infinite derivative of the loop's own may come out as NaN: it is not finite either way.
    got = torch.where(torch.isfinite(want) | torch.isfinite(got), got, want)
    tol = {key: 100 * value for key, value in tolerance(dtype).items()}
    if torch.allclose(want, got, equal_nan=True, **tol):
        return []
    bad = ~torch.isclose(want, got, equal_nan=True, **tol)
    rows = bad.reshape(len(want), -1).any(1).nonzero()[:, 0].tolist() if want.dim() else [0]
    show = (got[rows[0]].tolist(), want[rows[0]].tolist()) if want.dim() else (got.item(), want.item())
    return [f"{label}: samples {rows[:6]}: {show[0]} for {show[1]}"]


def _compare_gradients(
    original: Function, converted: Function, inputs: Sequence[Any], in_dims: Sequence[Any], second: bool, anomaly: bool
) -> list[str]:
    which = _floating(inputs)
    if not which:
        return []
    found = []

    def loop(p: list[Any]) -> list[torch.Tensor]:
        return run_loop(original, p, in_dims)[0]

    def mapped(p: list[Any]) -> list[torch.Tensor]:
        return [
            o.double() for o in torch.func.vmap(lambda *args: tensors(converted(*args)), in_dims=tuple(in_dims))(*p)
        ]

    finite = _finite_samples(original, inputs, in_dims)
    for order in (1, 2) if second else (1,):
        want, got = _grads(loop, inputs, which, order), _grads(mapped, inputs, which, order)
        if want is None and got is None:
            break
        for k, index in enumerate(which):
            zeros = torch.zeros_like(inputs[index])
            a = want[k] if want is not None else zeros
            b = got[k] if got is not None else zeros
            if in_dims[index] == 0:
                a, b = a[finite], b[finite]
            found += _derivative_difference(f"derivative {order} by argument {index}", a, b, a.dtype)
        if found:
            return found
        if anomaly and want is not None and all(bool(torch.isfinite(w).all()) for w in want):
            try:
                with torch.autograd.set_detect_anomaly(True, check_nan=True):
                    _grads(mapped, inputs, which, order)
            except RuntimeError as error:
                if "nan values" in str(error):
                    found.append(f"derivative {order}: NaN on the way: {str(error)[:80]}")
                else:
                    raise
    return found


def _compare_per_sample(
    original: Function, converted: Function, inputs: Sequence[Any], in_dims: Sequence[Any]
) -> list[str]:
    """The loop's derivatives against ``vmap(grad(f))``: the transforms the other way round than vmap, then backward."""
    which = _floating(inputs)
    outs = run_loop(original, inputs, in_dims)[0]
    want = _grads(lambda p: run_loop(original, p, in_dims)[0], inputs, which, 1)
    if want is None:
        return []

    def loss(weights: tuple[torch.Tensor, ...], *args: Any) -> torch.Tensor:
        passed = [a * 1 if k in which else a.clone() if isinstance(a, torch.Tensor) else a for k, a in enumerate(args)]
        terms = [
            (torch.where(torch.isfinite(o.detach()), o, torch.zeros_like(o)).double() * w).sum()
            for o, w in zip(tensors(converted(*passed)), weights, strict=True)
        ]
        return torch.stack(terms).sum()

    slopes = torch.func.grad(loss, argnums=tuple(k + 1 for k in which))
    got = torch.func.vmap(slopes, in_dims=(0, *in_dims))(tuple(_weights(outs)), *inputs)
    finite = _finite_samples(original, inputs, in_dims)
    found = []
    for k, index in enumerate(which):
        a, b = want[k], got[k]
        # An argument that all samples share collects the derivatives of all of them.
        a, b = (a[finite], b[finite]) if in_dims[index] == 0 else (a, b.sum(0))
        found += _derivative_difference(f"vmap(grad) by argument {index}", a, b, a.dtype)
    return found


def _compare_forward(
    original: Function, converted: Function, inputs: Sequence[Any], in_dims: Sequence[Any]
) -> list[str]:
    """The jvp of the loop and of the converted function under vmap, along one random tangent."""
    which = _floating(inputs)
    if not which:
        return []
    generator = torch.Generator().manual_seed(11)
    primals = tuple(inputs[k] for k in which)
    tangents = tuple((torch.rand(p.shape, generator=generator, dtype=torch.float64) - 0.5).to(p.dtype) for p in primals)

    def whole(live: tuple[torch.Tensor, ...]) -> list[Any]:
        passed: list[Any] = [a.clone() if isinstance(a, torch.Tensor) else a for a in inputs]
        for k, a in zip(which, live, strict=True):
            passed[k] = a * 1
        return passed

    def loop(*live: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(run_loop(original, whole(live), in_dims)[0])

    def mapped(*live: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.func.vmap(lambda *args: tensors(converted(*args)), in_dims=tuple(in_dims))(*whole(live))
        return tuple(o.double() for o in out)

    want, got = (torch.func.jvp(f, primals, tangents)[1] for f in (loop, mapped))
    finite = _finite_samples(original, inputs, in_dims)
    coarsest = max((p.dtype for p in primals), key=lambda d: torch.finfo(d).eps)
    return [
        line
        for k, (a, b) in enumerate(zip(want, got, strict=True))
        for line in _derivative_difference(f"jvp of output {k}", a[finite], b[finite], coarsest)
    ]
