"""Which sides of its tests a function takes: a copy of it that records what each test came out as."""

from __future__ import annotations

import ast
import copy
import types
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch

from if2where.runtime.sources import SourceUnavailable, compiled, locate

_WATCH = "__if2where_watch__"


@dataclass(frozen=True)
class Test:
    """A test on a tensor in the original: where it is, its text, and how many times it came out either way."""

    line: int
    col: int
    text: str
    true: int
    false: int

    @property
    def missing(self) -> str:
        """The side that no sample took: "true", "false", or "" where both were."""
        return "false" if not self.false else "true" if not self.true else ""


@dataclass
class Recorder:
    """Collects outcomes by place. ``last`` holds those of the call at hand."""

    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    counts: defaultdict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    last: dict[tuple[int, int], bool] = field(default_factory=dict)

    def watch(self, line: int, col: int, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            outcome = bool(value)
            self.counts[line, col][outcome] += 1
            self.last[line, col] = outcome
        return value

    def tests(self) -> tuple[Test, ...]:
        return tuple(Test(*at, self.texts[at], count[1], count[0]) for at, count in sorted(self.counts.items()))


class _Watch(ast.NodeTransformer):
    """Wraps each test, the operands of its ``and``, ``or`` and ``not`` one by one."""

    def __init__(self, recorder: Recorder, source: str) -> None:
        self.recorder = recorder
        self.source = source

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            node.test = self.watched(node.test)
        elif isinstance(node, ast.comprehension):
            node.ifs = [self.watched(test) for test in node.ifs]
        return node

    def watched(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.BoolOp):
            test.values = [self.watched(v) for v in test.values]
            return test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self.watched(test.operand)
            return test
        at = test.lineno, test.col_offset + 1
        self.recorder.texts[at] = " ".join((ast.get_source_segment(self.source, test) or "").split())
        call = ast.Call(ast.Name(_WATCH, ast.Load()), [ast.Constant(at[0]), ast.Constant(at[1]), test], [])
        return ast.copy_location(call, test)


def watched(fn: Any, recorder: Recorder) -> Any:
    """A copy of the function that tells the recorder what its tests come out as; ``fn`` itself where there is no source.

    Functions of its module that it calls are watched too, where it reaches them by a global name.
    """
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return types.MethodType(watched(fn.__func__, recorder), fn.__self__)
    if isinstance(fn, torch.nn.Module):
        return types.MethodType(watched(type(fn).forward, recorder), fn)
    if not isinstance(fn, types.FunctionType):
        return fn
    return _Copies(recorder).copy(fn)


class _Copies:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.made: dict[int, types.FunctionType] = {}

    def copy(self, fn: types.FunctionType) -> types.FunctionType:
        if id(fn) in self.made:
            return self.made[id(fn)]
        try:
            module, span = locate(fn)
        except (SourceUnavailable, TypeError, OSError):
            return fn
        node = _Watch(self.recorder, module.source.text).visit(copy.deepcopy(span.node))
        helpers = {
            name: value
            for name in fn.__code__.co_names
            if isinstance(value := fn.__globals__.get(name), types.FunctionType) and value.__module__ == fn.__module__
        }
        code = compiled(ast.fix_missing_locations(node), fn, span.owner, (_WATCH, *helpers))
        own = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        fresh = {n: types.CellType() for n in (_WATCH, *helpers)}
        cells = tuple(fresh.get(n) or own[n] for n in code.co_freevars)
        made = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, cells)
        made.__kwdefaults__ = fn.__kwdefaults__
        self.made[id(fn)] = made
        fresh[_WATCH].cell_contents = self.recorder.watch
        for name, helper in helpers.items():
            fresh[name].cell_contents = self.copy(helper)
        return made
