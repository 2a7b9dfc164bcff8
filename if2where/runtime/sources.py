"""From a function object to its place in a text: the module it was read from, and its node there.

The text comes through ``linecache``, so that files, notebook cells, and whatever was registered for
``exec`` are met alike. A text that has changed since the function was compiled is noticed: it compiles to
the function's own code, or there is no source.
"""

from __future__ import annotations

import ast
import io
import linecache
import types
import warnings
from collections.abc import Iterator
from typing import Any

from if2where.module import Function, FunctionNode, Module, Source, SourceError, parse_module

#: The bits of co_flags that ``from __future__ import`` sets.
_FUTURE = 0x1FE0000

_Kept = tuple[str, Module]
_parsed: dict[str, _Kept] = {}


class SourceUnavailable(ValueError):
    """A function object whose source cannot be read, or is no longer what the function was made from."""


def locate(function: types.FunctionType) -> tuple[Module, Function]:
    """The module whose text the function was compiled from, and the function in it; or SourceUnavailable."""
    code = function.__code__
    module = _module(function)
    candidates = [f for f in module.functions if _named(f.node, code) and _first_line(f.node) == code.co_firstlineno]
    if not candidates:
        raise SourceUnavailable(_stale(function))
    # A file is compiled as a whole, a notebook's cell statement by statement, which may give other code.
    for body in (module.tree.body, *([s] for s in module.tree.body if _holds(s, code.co_firstlineno))):
        alike = [c for c in _codes(_compile(body, code)) if c == code]
        if alike:
            found = _at(candidates, function)
            if found is None:
                raise SourceUnavailable(
                    f"{_shown(function)}: several lambdas on line {code.co_firstlineno} of {code.co_filename} cannot be"
                    " told apart; put each on a line of its own"
                )
            return module, found
    if len(candidates) == 1 and any("@py_assert" in n for c in (code, *_codes(code)) for n in c.co_varnames):
        return module, candidates[0]  # pytest has rewritten the asserts of a test's module
    raise SourceUnavailable(_stale(function))


def _holds(stmt: ast.stmt, line: int) -> bool:
    decorators = getattr(stmt, "decorator_list", [])
    first = min([stmt.lineno, *(d.lineno for d in decorators)])
    return bool(first <= line <= (stmt.end_lineno or stmt.lineno))


def _compile(body: list[ast.stmt], code: types.CodeType) -> types.CodeType:
    tree = ast.Module(body, [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: types.CodeType = compile(tree, code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    return made


def _at(candidates: list[Function], function: types.FunctionType) -> Function | None:
    """Which of several functions that begin on one line is that of the code: by columns, where Python keeps them."""
    if len(candidates) == 1:
        return candidates[0]
    code = function.__code__
    places = [p for p in getattr(code, "co_positions", tuple)() if p[0] is not None and p[2] is not None]
    if not places:  # Python 3.10
        return _by_code(candidates, function)
    inside = [f for f in candidates if isinstance(f.node, ast.Lambda) and _around(f.node.body, places)]
    return min(inside, key=lambda f: f.span[1] - f.span[0], default=None)


def _by_code(candidates: list[Function], function: types.FunctionType) -> Function | None:
    """The one candidate that compiles to the function's code, or of several that read alike."""
    code = function.__code__
    wanted = code.co_code, code.co_names, code.co_varnames, code.co_freevars, repr(code.co_consts)
    alike = []
    for f in candidates:
        c = compiled(f.node, function, None)
        if (c.co_code, c.co_names, c.co_varnames, c.co_freevars, repr(c.co_consts)) == wanted:
            alike.append(f)
    return alike[0] if len({ast.dump(f.node) for f in alike}) == 1 else None


def _around(body: ast.expr, places: list[Any]) -> bool:
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    # The first instruction (RESUME) is at the whole lambda's first line, column 0.
    inner = [p for p in places if p[3] > p[2] or p[1] > p[0]]
    return bool(inner) and all(start <= (p[0], p[2]) and (p[1], p[3]) <= end for p in inner)


def _module(function: types.FunctionType) -> Module:
    filename = function.__code__.co_filename
    linecache.checkcache(filename)
    text = "".join(linecache.getlines(filename, function.__globals__))
    if not text:
        raise SourceUnavailable(
            f"{_shown(function)}: no source for {filename!r}. Define it in a file or a notebook cell;"
            " for code made with exec(), register its text in linecache.cache under the file name it is compiled with"
        )
    try:
        return _parse(filename, text)
    except SourceError as error:
        raise SourceUnavailable(f"{_shown(function)}: its source cannot be parsed: {error}") from None


def _parse(filename: str, text: str) -> Module:
    kept = _parsed.get(filename)
    if kept is None or kept[0] != text:
        kept = _parsed[filename] = text, parse_module(Source(filename, text))
    return kept[1]


def module_of(filename: str, phrase: str) -> Module | None:
    """A file's module, where its text has the phrase."""
    text = "".join(linecache.getlines(filename))
    try:
        return _parse(filename, text) if phrase in text else None
    except SourceError:
        return None


def _shown(function: types.FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _stale(function: types.FunctionType) -> str:
    code = function.__code__
    return (
        f"{_shown(function)}: what stands at {code.co_filename}:{code.co_firstlineno} is not the function's source"
        " (the file has changed since it was imported, or the function was made in another way); import it again"
    )


def _named(node: FunctionNode, code: types.CodeType) -> bool:
    return code.co_name == ("<lambda>" if isinstance(node, ast.Lambda) else node.name)


def _first_line(node: FunctionNode) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])


# --- compiling one function on its own ----------------------------------------------------------


def compiled(
    node: FunctionNode,
    function: types.FunctionType,
    owner: str | None,
    free: tuple[str, ...] = (),
    filename: str | None = None,
) -> types.CodeType:
    """The code of the function at the node, its defaults, annotations and decorators left out.

    It is compiled inside a function whose parameters are its free variables (those of the original, and
    ``free``), which is what makes the compiler reach them through cells; and inside a class of its owner's
    name, so that ``__private`` names are mangled and ``super()`` finds its ``__class__``.
    """
    code = function.__code__
    names = tuple(dict.fromkeys([*code.co_freevars, *free]))
    # __class__ is no parameter: the class around the function makes the cell.
    around = [n for n in names if n != "__class__"]
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        bare: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef = ast.Lambda(_bare(node.args), node.body)
        inner = ast.Return(ast.copy_location(bare, node))  # type: ignore[arg-type]
    else:
        fields = dict(ast.iter_fields(node)) | {"args": _bare(node.args), "decorator_list": [], "returns": None}
        inner = type(node)(**(fields | ({"type_params": []} if "type_params" in fields else {})))
    ast.copy_location(inner, node)
    wrapped = owner is not None or "__class__" in names
    if wrapped:
        if isinstance(inner, ast.Return):
            assert inner.value is not None
            inner = ast.copy_location(ast.Expr(inner.value), inner)
        inner = _like("class C: pass", inner, owner or "C")
    outer = _like(f"def outer({', '.join(around)}): pass", inner, "outer")
    tree = ast.fix_missing_locations(ast.Module([outer], []))
    whole = compile(tree, filename or code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    found: types.CodeType = whole
    for _ in range(3 if wrapped else 2):
        found = next(c for c in found.co_consts if isinstance(c, types.CodeType))
    return found


def _like(template: str, body: ast.stmt, name: str) -> ast.stmt:
    made = ast.parse(template).body[0]
    assert isinstance(made, ast.ClassDef | ast.FunctionDef)
    made.name, made.body = name, [body]
    for part in ast.walk(made):
        if part is body:
            break
        ast.copy_location(part, body)
    return made


def _bare(args: ast.arguments) -> ast.arguments:
    """The same parameters, without annotations and without what the defaults compute."""

    def plain(a: ast.arg | None) -> ast.arg | None:
        return None if a is None else ast.copy_location(ast.arg(a.arg), a)

    def all_plain(group: list[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(a.arg), a) for a in group]

    return ast.arguments(
        posonlyargs=all_plain(args.posonlyargs),
        args=all_plain(args.args),
        vararg=plain(args.vararg),
        kwonlyargs=all_plain(args.kwonlyargs),
        kw_defaults=[None for _ in args.kw_defaults],
        kwarg=plain(args.kwarg),
        defaults=[],
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from _codes(const)


def register(text: str, filename: str) -> None:
    """Makes the text what tracebacks, inspect.getsource and the conversion find under the file name.

    Without a time of change, which ``linecache.checkcache`` keeps. Lines end where Python's do, not at form feeds.
    """
    linecache.cache[filename] = (len(text), None, io.StringIO(text).readlines(), filename)


def execute(text: str, filename: str, namespace: dict[str, Any]) -> None:
    """Runs the text in the namespace, as if it stood in a file of that name."""
    register(text, filename)
    exec(compile(text, filename, "exec"), namespace)
