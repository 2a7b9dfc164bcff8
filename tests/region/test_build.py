"""One function's text to its tree: every syntax, with the file's positions."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import libcst as cst
import pytest

from if2where.module import Source, SourceError, decode, parse_module
from if2where.region import tree
from if2where.region.build import FunctionUnit, build_function


def build(text: str, which: int = 0) -> FunctionUnit:
    return build_function(text, parse_module(Source("a.py", text)).functions[which])


def body(text: str) -> tree.Block:
    """The body of ``def f`` with these lines."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    root = build(f"async def f():\n{lines}").root
    assert isinstance(root, tree.FunctionDef)
    return root.body


def only(text: str) -> Any:
    (stmt,) = body(text)
    return stmt


def value(text: str) -> Any:
    return only(f"x = {text}").value


def shape(node: Any) -> Any:
    """A node as nested tuples of its class's name and fields: short enough to write in a test."""
    if isinstance(node, tree.Name):
        return node.id
    if isinstance(node, tree.Constant):
        return ("=", node.value)
    if isinstance(node, tree.Node):
        names = [f for f in node.__dataclass_fields__ if f not in ("origin", "at", "carries")]
        return (type(node).__name__, *(shape(getattr(node, f)) for f in names))
    return tuple(map(shape, node)) if isinstance(node, tuple) else node


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a", "a"),
        ("(a)", "a"),
        ("-1", ("Unary", "-", ("=", 1))),
        ("0x_1F", ("=", 31)),
        ("2.5j", ("=", 2.5j)),
        (r"b'\x00'", ("=", b"\0")),
        ("...", ("=", ...)),
        ("None", ("=", None)),
        (
            "a.b[c, 1:, ::2]",
            (
                "Subscript",
                ("Attribute", "a", "b"),
                ("c", ("Slice", ("=", 1), None, None), ("Slice", None, None, ("=", 2))),
                True,
            ),
        ),
        ("a[b]", ("Subscript", "a", ("b",), False)),
        ("a[b,]", ("Subscript", "a", ("b",), True)),
        (
            "a(b, *c, k=d, **e)",
            (
                "Call",
                "a",
                (
                    ("Argument", "b", None, ""),
                    ("Argument", "c", None, "*"),
                    ("Argument", "d", "k", ""),
                    ("Argument", "e", None, "**"),
                ),
            ),
        ),
        ("not a", ("Unary", "not", "a")),
        ("a // b", ("Binary", "//", "a", "b")),
        ("a and b or c", ("BoolOp", "or", ("BoolOp", "and", "a", "b"), "c")),
        ("a < b is not c not in d", ("Compare", "a", ("<", "is not", "not in"), ("b", "c", "d"))),
        ("a if b else c", ("Conditional", "b", "a", "c")),
        ("(a, *b)", ("Tuple", ("a", ("Starred", "b")))),
        ("[a, {b}, ()]", ("List", ("a", ("Set", ("b",)), ("Tuple", ())))),
        ("{a: b, **c}", ("Dict", ("a", None), ("b", "c"))),
        (
            "lambda a, /, b=1, *c, d, **e: a",
            (
                "Lambda",
                (
                    ("Parameter", "a", "positional", None, None),
                    ("Parameter", "b", "normal", ("=", 1), None),
                    ("Parameter", "c", "star", None, None),
                    ("Parameter", "d", "keyword", None, None),
                    ("Parameter", "e", "double star", None, None),
                ),
                "a",
            ),
        ),
        (
            "[a for b in c if d if e async for f, g in h]",
            (
                "Comprehension",
                "list",
                "a",
                (("Clause", "b", "c", ("d", "e"), False), ("Clause", ("Tuple", ("f", "g")), "h", (), True)),
                None,
            ),
        ),
        ("{k: v for k in a}", ("Comprehension", "dict", "v", (("Clause", "k", "a", (), False),), "k")),
        ("(a for a in b)", ("Comprehension", "generator", "a", (("Clause", "a", "b", (), False),), None)),
        ("(a := b)", ("Walrus", "a", "b")),
        ("await a", ("OpaqueExpr", "await", ("a",))),
        ("yield a, b", ("OpaqueExpr", "yield", (("Tuple", ("a", "b")),))),
        ("(yield from a)", ("OpaqueExpr", "yield", ("a",))),
        ('f"{a!r:>{b}} {c=}"', ("OpaqueExpr", "f-string", ("a", "b", "c"))),
        ('"a" f"{b}"', ("OpaqueExpr", "string", (("=", "a"), ("OpaqueExpr", "f-string", ("b",))))),
    ],
)
def test_expressions(text: str, wanted: Any) -> None:
    assert shape(value(text)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a = b, c = d", ("Assign", ("a", ("Tuple", ("b", "c"))), "d")),
        ("a.b: c = d", ("AnnAssign", ("Attribute", "a", "b"), "c", "d")),
        ("a: b", ("AnnAssign", "a", "b", None)),
        ("a **= b", ("AugAssign", "a", "**", "b")),
        ("'doc'", ("ExprStmt", ("=", "doc"))),
        ("return", ("Return", None)),
        ("raise a from b", ("Raise", "a", "b")),
        ("raise", ("Raise", None, None)),
        ("assert a, b", ("Assert", "a", "b")),
        ("del a, b[c]", ("Delete", ("a", ("Subscript", "b", ("c",), False)))),
        ("del (a)", ("Delete", ("a",))),
        ("global a, b", ("Scope", "global", ("a", "b"))),
        ("nonlocal a", ("Scope", "nonlocal", ("a",))),
        ("import a.b, c as d, e.f as g", ("Import", (("a", "a"), ("d", "c"), ("g", "e.f")))),
        ("from a.b import (c, d as e)", ("Import", (("c", "a.b.c"), ("e", "a.b.d")))),
        ("from ..a import b", ("Import", (("b", "..a.b"),))),
        ("from . import b", ("Import", (("b", "..b"),))),
        ("if a: pass\nelif b: break\nelse:\n    continue", ("If", "a", (("Pass",),), (("If", "b", (("Break",),), (("Continue",),)),))),
        ("async for a, b in c: pass\nelse: pass", ("For", ("Tuple", ("a", "b")), "c", (("Pass",),), (("Pass",),), True)),
        ("while a: pass", ("While", "a", (("Pass",),), ())),
        ("with a as b, c: pass", ("With", (("WithItem", "a", "b"), ("WithItem", "c", None)), (("Pass",),), False)),
        ("@a\nasync def g(b: c = d) -> e: pass", ("FunctionDef", "g", (("Parameter", "b", "normal", "d", "c"),), (("Pass",),), ("a",), "e", True)),
        ("class A(b, c=d): e = f", ("OpaqueStmt", "class", ("b", "d"), ((("Assign", ("e",), "f"),),), ("A",))),
        (
            "try: a\nexcept (b, c) as d: e\nexcept f: g\nelse: h\nfinally: i",
            ("OpaqueStmt", "try", (("Tuple", ("b", "c")), "f"), tuple((("ExprStmt", n),) for n in "aeghi"), ("d",)),
        ),
        (
            "match a:\n    case B(c, d=e) | [f, *g] if h: i\n    case {'k': j, **k}: l\n    case m as n: o\n    case p.q | None: r",
            (
                "OpaqueStmt",
                "match",
                ("a", "B", "h", ("=", "k"), ("Attribute", "p", "q"), ("=", None)),
                tuple((("ExprStmt", n),) for n in "ilor"),
                ("c", "e", "f", "g", "k", "j", "n", "m"),
            ),
        ),
    ],
)  # fmt: skip
def test_statements(text: str, wanted: Any) -> None:
    got = shape(only(text))
    if wanted[1] == "match":
        assert (*got[:4], set(got[4])) == (*wanted[:4], set(wanted[4]))
    else:
        assert got == wanted


@pytest.mark.skipif(sys.version_info < (3, 11), reason="syntax of Python 3.11")
def test_syntax_of_3_11() -> None:
    assert shape(only("try: a\nexcept* b as c: d")) == (
        "OpaqueStmt",
        "try",
        ("b",),
        ((("ExprStmt", "a"),), (("ExprStmt", "d"),)),
        ("c",),
    )
    assert shape(value("a[*b, c]")) == ("Subscript", "a", (("Starred", "b"), "c"), True)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_syntax_of_3_12() -> None:
    assert shape(only("type A[T: B] = C[T]")) == (
        "OpaqueStmt",
        "type",
        ("B", ("Subscript", "C", ("T",), False)),
        (),
        ("A",),
    )
    assert shape(only("class A[T: B](C): pass"))[2:] == (("B", "C"), ((("Pass",),),), ("A",))
    assert only("def g[T](x: T): pass").name == "g"
    assert shape(value('f"{a["k"]}"'))[1] == "f-string"


def test_origins_of_small_statements_know_their_line() -> None:
    a, b, branch = body("a = 1; b = 2\nif a: c = 3; d = 4")
    assert a.origin[1] is b.origin[1]
    assert list(a.origin[1].body) == [a.origin[0], b.origin[0]]
    assert isinstance(branch, tree.If)
    c, d = branch.body
    assert isinstance(c.origin[1], cst.SimpleStatementSuite)
    assert c.origin[1] is d.origin[1] is branch.origin.body


# --- positions ------------------------------------------------------------------------------

FILE = (
    "\x0cé = 'ä'; g = [(lambda é: é +\n   é)]\n"
    "class A:\n"
    "\t@deco\n"
    "\tdef f(self, x):  # ö\n"
    "\t\ts = 'é'; y = x\n"
    "\x0c\n"
    "\t\treturn (lambda: x), '''\n"
    "ü''', y\n"
    "def h(x): return '𝔘', x\n"
)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_positions_are_those_of_the_file(newline: str) -> None:
    text = FILE.replace("\n", newline)
    module = parse_module(Source("a.py", text))
    lines = text.split(newline)
    seen = 0
    for function in module.functions:
        unit = build_function(text, function)
        names = sorted(
            (n.lineno, len(lines[n.lineno - 1].encode()[: n.col_offset].decode()) + 1, n.id)
            for n in ast.walk(function.node)
            if isinstance(n, ast.Name)
        )
        got = sorted((*(n.at or (0, 0)), n.id) for n in tree.walk(unit.root) if isinstance(n, tree.Name))
        assert got == names
        seen += len(got)
    assert seen == 10


def packages() -> list[Path]:
    found: list[Path] = []
    for name in ("click", "rich", "libcst"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            files = sorted(Path(spec.origin).parent.rglob("*.py"))
            found += files[:: max(1, len(files) // 15)]
    return found


def test_positions_of_calls_and_statements_in_real_code() -> None:
    seen = 0
    for path in packages():
        try:
            module = parse_module(decode(path.read_bytes(), str(path)))
        except SourceError:
            continue
        lines = module.source.text.split("\n")
        for function in [f for f in module.functions if f.parent is None][:10]:
            unit = build_function(module.source.text, function)
            wanted = {
                (n.lineno, len(lines[n.lineno - 1].encode()[: n.col_offset].decode()) + 1)
                for n in ast.walk(function.node)
                if isinstance(n, ast.Attribute | ast.Assign | ast.Return)
            }
            found = [n for n in tree.walk(unit.root) if isinstance(n, tree.Attribute | tree.Assign | tree.Return)]
            assert all(n.at in wanted for n in found), (path, function.qualname)
            assert all(n.at is not None for n in tree.walk(unit.root))
            seen += len(found)
    assert seen > 1000
