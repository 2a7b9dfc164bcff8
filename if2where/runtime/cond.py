"""The same function with ``torch.cond`` in the place of its branches, for comparison, where that can be written."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from if2where.runtime.sources import execute


class NoCond(Exception):
    """A function that cannot be written with ``torch.cond`` by putting it in the place of each ``if``."""


def with_cond(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with each ``if`` as a call of ``torch.cond``, which takes both branches as functions.

    For functions of assignments, ``if``s and returns; every test is taken to be one on the data. Raises NoCond for
    others.
    """
    if not isinstance(fn, types.FunctionType) or fn.__closure__:
        raise NoCond("only plain functions are")
    try:
        root = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    except (OSError, SyntaxError, IndexError) as error:
        raise NoCond(f"no source: {error}") from None
    if not isinstance(root, ast.FunctionDef):
        raise NoCond("only plain functions are")
    root.decorator_list, root.returns = [], None
    parameters = root.args
    if parameters.vararg or parameters.kwarg or parameters.kwonlyargs:
        raise NoCond("only functions with plain parameters are")
    for a in (*parameters.posonlyargs, *parameters.args):
        a.annotation = None
    root.body = _Rewriter().block(root.body, {a.arg for a in (*parameters.posonlyargs, *parameters.args)})
    root.body.insert(0, ast.parse("import torch as _torch").body[0])
    text = ast.unparse(ast.fix_missing_locations(ast.Module([root], [])))
    name = f"<torch.cond of {fn.__qualname__}>"
    namespace = dict(fn.__globals__)
    execute(text, name, namespace)
    made = namespace[root.name]
    made.__defaults__ = fn.__defaults__
    result: Callable[..., Any] = made
    return result


class _Rewriter:
    """Statements in, statements out; ``bound`` are the local variables that have a value."""

    def __init__(self) -> None:
        self.count = 0

    def block(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for k, stmt in enumerate(body):
            if isinstance(stmt, ast.If):
                rest = list(body[k + 1 :])
                if any(isinstance(n, ast.Return) for n in ast.walk(stmt)):
                    # Whatever comes after belongs to the branch that goes on.
                    return [*made, *self.returning(stmt, rest, bound)]
                made += self.assigning(stmt, bound)
            elif isinstance(stmt, ast.Assign | ast.AugAssign | ast.Return | ast.Expr | ast.Pass):
                if any(isinstance(n, ast.IfExp | ast.BoolOp | ast.Lambda | ast.ListComp) for n in ast.walk(stmt)):
                    raise NoCond(f"line {stmt.lineno}: a test within an expression")
                made.append(stmt)
            else:
                raise NoCond(f"line {stmt.lineno}: a {type(stmt).__name__.lower()} statement")
            bound |= _bound(stmt)
        return made

    def returning(self, stmt: ast.If, rest: list[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        sides = [side if _returns(side) else [*side, *rest] for side in (stmt.body, stmt.orelse)]
        if not all(any(isinstance(s, ast.Return | ast.If) for s in side[-1:]) for side in sides):
            raise NoCond(f"line {stmt.lineno}: a branch that does not end in a return")
        call, functions = self.call(stmt, [self.block(side, set(bound)) for side in sides], bound)
        return [*functions, ast.Return(call)]

    def assigning(self, stmt: ast.If, bound: set[str]) -> list[ast.stmt]:
        names = sorted(_bound(stmt))
        lacking = [n for n in names if n not in bound and not (_sets(stmt.body, n) and _sets(stmt.orelse, n))]
        names = [n for n in names if n not in lacking]
        if not names:
            raise NoCond(f"line {stmt.lineno}: a branch that sets nothing for what follows")
        result = ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load())
        sides = [[*self.block(side, set(bound)), ast.Return(result)] for side in (stmt.body, stmt.orelse)]
        call, functions = self.call(stmt, sides, bound)
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        bound |= set(names)
        return [*functions, ast.Assign([target], call)]

    def call(self, stmt: ast.If, sides: list[list[ast.stmt]], bound: set[str]) -> tuple[ast.expr, list[ast.stmt]]:
        if any(isinstance(n, ast.BoolOp) for n in ast.walk(stmt.test)):
            raise NoCond(f"line {stmt.lineno}: `and` or `or` in a test")
        reads = sorted({n.id for side in sides for s in side for n in ast.walk(s) if isinstance(n, ast.Name)} & bound)
        self.count += 1
        names = [f"_then_{self.count}", f"_else_{self.count}"]
        functions: list[ast.stmt] = [ast.parse(f"def {name}({', '.join(reads)}):\n    pass").body[0] for name in names]
        for function, side in zip(functions, sides, strict=True):
            assert isinstance(function, ast.FunctionDef)
            # cond takes no function that hands on one of its arguments, and nothing but tensors.
            function.body = [_Fresh().visit(s) for s in side]
        call = ast.parse(f"_torch.cond(_test, {', '.join(names)}, ({''.join(f'{r}, ' for r in reads)}))", mode="eval")
        assert isinstance(call.body, ast.Call)
        call.body.args[0] = stmt.test
        return call.body, functions


class _Fresh(ast.NodeTransformer):
    def visit_Return(self, node: ast.Return) -> ast.Return:
        if isinstance(node.value, ast.Tuple):
            node.value = ast.Tuple([self.fresh(v) for v in node.value.elts], ast.Load())
        elif isinstance(node.value, ast.Name | ast.Constant):
            node.value = self.fresh(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    @staticmethod
    def fresh(value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Constant):
            raise NoCond("a branch that gives a number where torch.cond wants a tensor")
        return ast.Call(ast.Attribute(value, "clone", ast.Load()), [], [])


def _returns(body: Sequence[ast.stmt]) -> bool:
    if not body:
        return False
    last = body[-1]
    return isinstance(last, ast.Return) or (isinstance(last, ast.If) and _returns(last.body) and _returns(last.orelse))


def _bound(stmt: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _sets(body: Sequence[ast.stmt], name: str) -> bool:
    return any(name in names for names in _always_set(body))


def _always_set(body: Sequence[ast.stmt]) -> Iterator[set[str]]:
    for stmt in body:
        if isinstance(stmt, ast.If):
            yield {n for n in _bound(stmt) if _sets(stmt.body, n) and _sets(stmt.orelse, n)}
        else:
            yield _bound(stmt)
