"""Unchanged trees print as they were written; changed ones mean what the tree says, and keep all comments."""

from __future__ import annotations

import ast
import importlib.util
import io
import random
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import libcst as cst
import pytest

from if2where.emit import add_import, emit_function
from if2where.module import Function, Source, SourceError, decode, parse_module
from if2where.region import tree
from if2where.region.build import FunctionUnit, build_function

NodeT = TypeVar("NodeT", bound=tree.Node)


# --- helpers --------------------------------------------------------------------------------


def package_files(name: str, most: int) -> list[Path]:
    """An even sample of a package's files; none where it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return []
    found = sorted(Path(spec.origin).parent.rglob("*.py"))
    return found[:: max(1, len(found) // most)]


def functions_of(text: str) -> tuple[Function, ...]:
    return parse_module(Source("a.py", text)).functions


def build(text: str, which: int = 0) -> FunctionUnit:
    return build_function(text, functions_of(text)[which])


def rebuilt(node: NodeT) -> NodeT:
    """Every node made anew, so that each is printed from its parts."""
    return replace(tree.map_children(node, lambda child: rebuilt(child)))


def convert(text: str, change: Callable[[tree.Node], tree.Node]) -> str:
    """The text with its first function's direct and indirect children changed, children first."""
    unit = build(text)

    def visit(node: tree.Node) -> tree.Node:
        return change(tree.map_children(node, visit))

    start, end = functions_of(text)[0].span
    return text[:start] + emit_function(unit, tree.map_children(unit.root, visit)) + text[end:]


def expression(text: str) -> tree.Expr:
    root = build(f"lambda: {text}").root
    assert isinstance(root, tree.Lambda)
    return root.body


def printed(node: tree.Expr) -> str:
    unit = build("lambda: 0")
    assert isinstance(unit.root, tree.Lambda)
    return emit_function(unit, replace(unit.root, body=node)).removeprefix("lambda: ")


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(re.sub("\r\n?", "\n", text)).readline)
    return Counter(t.string for t in tokens if t.type == tokenize.COMMENT)


def dump(text: str) -> str:
    """The syntax tree without what makes no difference: ``u""``, ``(x): int``, ``(a and b) and c``."""
    parsed = ast.parse(text)
    for node in ast.walk(parsed):
        if isinstance(node, ast.Constant):
            node.kind = None
        elif isinstance(node, ast.AnnAssign):
            node.simple = 0
        elif isinstance(node, ast.BoolOp):
            while isinstance(first := node.values[0], ast.BoolOp) and type(first.op) is type(node.op):
                node.values[:1] = first.values
    return ast.dump(parsed)


class Plain:
    """The tree as text with every expression in parentheses: what emit has to agree with, layout and origins apart."""

    def expr(self, node: tree.Expr) -> str:
        return f"({getattr(self, '_' + type(node).__name__.lower())(node)})"

    def target(self, node: tree.Expr) -> str:
        return self.expr(node)

    def _name(self, n: tree.Name) -> str:
        return n.id

    def _constant(self, n: tree.Constant) -> str:
        infinite = isinstance(n.value, float) and n.value in (float("inf"), -float("inf"))
        return "..." if n.value is ... else repr(n.value).replace("inf", 'float("inf")') if infinite else repr(n.value)

    def _torchname(self, n: tree.TorchName) -> str:
        return f"torch.{n.name}"

    def _helpername(self, n: tree.HelperName) -> str:
        return "any_active"

    def _attribute(self, n: tree.Attribute) -> str:
        return f"{self.expr(n.value)}.{n.attr}"

    def _call(self, n: tree.Call) -> str:
        args = [a.star + (f"{a.keyword}=" if a.keyword else "") + self.expr(a.value) for a in n.args]
        return f"{self.expr(n.func)}({', '.join(args)})"

    def item(self, n: tree.Expr) -> str:
        if isinstance(n, tree.Slice):
            step = ":" + self.expr(n.step) if n.step else ""
            return f"{self.expr(n.lower) if n.lower else ''}:{self.expr(n.upper) if n.upper else ''}{step}"
        return "*" + self.expr(n.value) if isinstance(n, tree.Starred) else self.expr(n)

    def items(self, items: tuple[tree.Expr, ...], closed: bool = False) -> str:
        return ", ".join(map(self.item, items)) + ("," if len(items) == 1 and closed else "")

    def _subscript(self, n: tree.Subscript) -> str:
        return f"{self.expr(n.value)}[{self.items(n.items, n.is_tuple)}]"

    def _unary(self, n: tree.Unary) -> str:
        return f"{n.op} {self.expr(n.operand)}"

    def _binary(self, n: tree.Binary | tree.BoolOp) -> str:
        return f"{self.expr(n.left)} {n.op} {self.expr(n.right)}"

    _boolop = _binary

    def _compare(self, n: tree.Compare) -> str:
        return self.expr(n.left) + "".join(f" {op} {self.expr(r)}" for op, r in zip(n.ops, n.rest, strict=True))

    def _conditional(self, n: tree.Conditional) -> str:
        return f"{self.expr(n.body)} if {self.expr(n.test)} else {self.expr(n.orelse)}"

    def _select(self, n: tree.Select) -> str:
        return f"torch.where({self.expr(n.mask)}, {self.expr(n.chosen)}, {self.expr(n.other)})"

    def _tuple(self, n: tree.Tuple) -> str:
        return self.items(n.items, closed=True)

    def _list(self, n: tree.List) -> str:
        return f"[{self.items(n.items)}]"

    def _set(self, n: tree.Set) -> str:
        return f"{{{self.items(n.items)}}}"

    def _dict(self, n: tree.Dict) -> str:
        pairs = zip(n.keys, n.values, strict=True)
        items = [f"{self.expr(k)}: {self.expr(v)}" if k else f"**{self.expr(v)}" for k, v in pairs]
        return "{" + ", ".join(items) + "}"

    def parameters(self, params: tuple[tree.Parameter, ...]) -> str:
        out: list[str] = []
        for k, p in enumerate(params):
            before = params[k - 1].kind if k else ""
            if before == "positional" and p.kind != "positional":
                out.append("/")
            if p.kind == "keyword" and before not in ("keyword", "star"):
                out.append("*")
            star = {"star": "*", "double star": "**"}.get(p.kind, "")
            note = ": " + self.expr(p.annotation) if p.annotation else ""
            out.append(star + p.name + note + ("=" + self.expr(p.default) if p.default else ""))
        if params and params[-1].kind == "positional":
            out.append("/")
        return ", ".join(out)

    def _walrus(self, n: tree.Walrus) -> str:
        return f"{n.target.id} := {self.expr(n.value)}"

    def _lambda(self, n: tree.Lambda) -> str:
        return f"lambda {self.parameters(n.params)}: {self.expr(n.body)}"

    def _comprehension(self, n: tree.Comprehension) -> str:
        element = (self.expr(n.key) + ": " if n.key else "") + self.expr(n.element)
        for c in n.clauses:
            ifs = "".join(" if " + self.expr(i) for i in c.conditions)
            element += f" {'async ' * c.is_async}for {self.target(c.target)} in {self.expr(c.iter)}{ifs}"
        if n.form == "list":
            return f"[{element}]"
        return f"({element})" if n.form == "generator" else "{" + element + "}"

    def _opaqueexpr(self, n: tree.OpaqueExpr) -> str:
        if n.what == "await":
            return "await " + self.expr(n.children[0])
        if n.what == "yield":
            source = "from " if isinstance(n.origin.value, cst.From) else ""
            return "yield " + source + "".join(map(self.expr, n.children))
        return cst.Module([]).code_for_node(n.origin)

    def block(self, stmts: tree.Block, depth: int) -> str:
        return "".join(self.stmt(s, depth) for s in stmts) or "    " * depth + "pass\n"

    def stmt(self, s: tree.Stmt, depth: int) -> str:
        e, pad = self.expr, "    " * depth

        def suite(header: str, body: tree.Block, orelse: tree.Block = ()) -> str:
            other = f"{pad}else:\n{self.block(orelse, depth + 1)}" if orelse else ""
            return f"{header}:\n{self.block(body, depth + 1)}{other}"

        if isinstance(s, tree.If):
            return suite(f"{pad}if {e(s.test)}", s.body, s.orelse)
        if isinstance(s, tree.While):
            return suite(f"{pad}while {e(s.test)}", s.body, s.orelse)
        if isinstance(s, tree.For):
            return suite(f"{pad}{'async ' * s.is_async}for {self.target(s.target)} in {e(s.iter)}", s.body, s.orelse)
        if isinstance(s, tree.With):
            items = [e(i.context) + (" as " + self.target(i.target) if i.target else "") for i in s.items]
            return suite(f"{pad}{'async ' * s.is_async}with {', '.join(items)}", s.body)
        if isinstance(s, tree.FunctionDef):
            decorators = "".join(f"{pad}@{e(d)}\n" for d in s.decorators)
            returns = " -> " + e(s.returns) if s.returns else ""
            head = f"{pad}{'async ' * s.is_async}def {s.name}({self.parameters(s.params)}){returns}"
            return decorators + suite(head, s.body)
        return f"{pad}{self.small(s)}\n"

    def small(self, s: tree.Stmt) -> str:
        e = self.expr
        if isinstance(s, tree.Assign):
            return " = ".join([*map(self.target, s.targets), e(s.value)])
        if isinstance(s, tree.AnnAssign):
            return f"{self.target(s.target)}: {e(s.annotation)}" + (f" = {e(s.value)}" if s.value else "")
        if isinstance(s, tree.AugAssign):
            return f"{self.target(s.target)} {s.op}= {e(s.value)}"
        if isinstance(s, tree.ExprStmt):
            return e(s.value)
        if isinstance(s, tree.Return):
            return f"return {e(s.value) if s.value else ''}"
        if isinstance(s, tree.Raise):
            return f"raise {e(s.exc) if s.exc else ''}" + (f" from {e(s.cause)}" if s.cause else "")
        if isinstance(s, tree.Assert):
            return f"assert {e(s.test)}" + (f", {e(s.message)}" if s.message else "")
        if isinstance(s, tree.Delete):
            return "del " + ", ".join(map(self.target, s.targets))
        if isinstance(s, tree.Scope):
            return f"{s.what} {', '.join(s.names)}"
        if isinstance(s, tree.Break | tree.Continue | tree.Pass):
            return type(s).__name__.lower()
        assert isinstance(s, tree.Import)
        return cst.Module([]).code_for_node(s.origin[0].with_changes(semicolon=cst.MaybeSentinel.DEFAULT))


def as_module(unit: FunctionUnit, text: str) -> str:
    return f"({text})" if isinstance(unit.root, tree.Lambda) else unit.prefix + text


def meant(unit: FunctionUnit, root: tree.FunctionDef | tree.Lambda) -> str:
    if isinstance(root, tree.Lambda):
        return dump(Plain().expr(root))
    return dump(f"if True:\n{Plain().stmt(root, 1)}" if unit.prefix else Plain().stmt(root, 0))


# --- unchanged ------------------------------------------------------------------------------


@pytest.mark.parametrize(("package", "most"), [("click", 20), ("libcst", 60), ("rich", 60), ("torch", 200)])
def test_rebuilt_trees_print_byte_for_byte(package: str, most: int) -> None:
    paths = package_files(package, most)
    if not paths:
        pytest.skip(f"{package} is not installed")
    seen = 0
    for path in paths:
        try:
            module = parse_module(decode(path.read_bytes(), str(path)))
        except SourceError:
            continue
        outer = [f for f in module.functions if f.parent is None]
        for function in outer[:6]:
            unit = build_function(module.source.text, function)
            assert emit_function(unit, unit.root) == unit.text
            assert emit_function(unit, rebuilt(unit.root)) == unit.text, (path, function.qualname)
            seen += 1
    assert seen > 50


LAYOUTS = {
    "tabs": "def f(x):\n\tif x > 0:\n\t\ty = 1\n\telif x:\n\t\t# why\n\t\ty = 2\n\treturn   y  # odd",
    "two spaces": "class A:\n  def f(self, x):\n    return (x\n      + 1)\n",
    "form feed": "x = 1\n\x0cdef f(x):\n    y = 1\n\x0c\n    return y\n",
    "form feed before an indented def": "class A:\n    a = 1\n\x0c\n    def f(x):\n        return x\n",
    "continuation": "def f(x):\n    y = x + \\\n        1\n    assert x, \\\n  'no'\n    return \\\n      y\n",
    "comment before a block": "def f(x):\n    if x:\n        y = 1\n    elif not x:  # a\n        # b\n        y = 2\n    else:\n # c\n        y = 3\n    return y",
    "one line": "def f(x): return x if x else -x",
    "one-line suites": "def f(x):\n    if x: y = 1; z = 2  # c\n    else: y = 2 ; z=3;\n    while x: break\n    return y",
    "semicolons": "def f(x):\n    a = 1; b = 2 ;c = 3;  # d\n    return a",
    "string over lines": "class A:\n    def f(self):\n        \"\"\"Doc\n  odd\n\ttab\n        \"\"\"\n        return '''a\n b'''\n",
    "unindented comment": "class A:\n    def f(x):\n        a = 1\n# zero\n  # two\n        return a\n",
    "no space": "def f(x):\n    y = not(x)if(x)else(x)or(x)\n    for(k)in(x):del(k)\n    return(y)\n",
    "decorated": "class A:\n    @  a . b\n    # between\n    @c(\n        1)\n    async   def f(x, /, y : int=1, *, z = 2, **k) -> (\n        int): return await x\n",
    "last comment": "def f(x):\n    if x:\n        return 1  # a\n    # b\n",
    "unicode": "def f(ä):\n    é = 'ü'; return lambda ö: ö + é + ä\n",
}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_print_byte_for_byte(layout: str, newline: str) -> None:
    text = LAYOUTS[layout].replace("\n", newline)
    for function in functions_of(text):
        unit = build_function(text, function)
        assert unit.module.code.startswith(unit.prefix + unit.text)
        assert emit_function(unit, rebuilt(unit.root)) == unit.text == text[slice(*function.span)]


def test_mixed_line_ends_stay() -> None:
    text = "def f(x):\r\n    y = 1\n    z = (2,\r\n 3)\r    return y\n"
    assert convert(text, lambda n: tree.Name("w") if isinstance(n, tree.Name) and n.id == "y" else n) == text.replace(
        "y", "w"
    )


# --- parentheses ----------------------------------------------------------------------------

N = tree.Name


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (tree.Binary("&", expression("a < b"), expression("b < c")), "(a < b) & (b < c)"),
        (tree.Binary("&", tree.Unary("~", expression("a > b")), expression("c > d")), "~(a > b) & (c > d)"),
        (tree.Unary("-", expression("a if c else b")), "-(a if c else b)"),
        (tree.Unary("-", expression("a ** b")), "-a ** b"),
        (tree.Select(expression("(a > 5)"), expression("t * b"), expression("-t")), "torch.where(a > 5, t * b, -t)"),
        (
            tree.Select(N("m"), expression("(a, b)"), expression("(c if d else e)")),
            "torch.where(m, (a, b), c if d else e)",
        ),
        (tree.Select(N("m"), expression("lambda: 1"), expression("(y := 1)")), "torch.where(m, lambda: 1, y := 1)"),
        (tree.Select(N("m"), tree.Tuple((N("a"), N("b"))), tree.Tuple(())), "torch.where(m, (a, b), ())"),
        (tree.Binary("*", expression("a + b"), expression("c")), "(a + b) * c"),
        (tree.Binary("-", expression("a"), expression("b - c")), "a - (b - c)"),
        (tree.Binary("-", expression("a - b"), expression("c")), "a - b - c"),
        (tree.Binary("**", expression("-a"), expression("-b")), "(-a) ** -b"),
        (tree.Binary("**", tree.Constant(-2), tree.Constant(-2.0)), "(-2) ** -2.0"),
        (tree.Binary("**", expression("a ** b"), expression("c")), "(a ** b) ** c"),
        (tree.Binary("**", expression("a"), expression("b ** c")), "a ** b ** c"),
        (tree.Attribute(expression("a + b"), "mean"), "(a + b).mean"),
        (tree.Attribute(tree.Constant(1), "real"), "(1).real"),
        (tree.Attribute(tree.Constant(-1.5), "real"), "(-1.5).real"),
        (tree.Subscript(expression("a or b"), (expression("(1, 2)"),)), "(a or b)[(1, 2)]"),
        (tree.Subscript(N("a"), (expression("(b > 1)"),)), "a[b > 1]"),
        (tree.Subscript(N("a"), (tree.Slice(None, expression("(b or c)"), None), N("d")), True), "a[:(b or c), d]"),
        (tree.Compare(expression("a < b"), ("==",), (expression("not c"),)), "(a < b) == (not c)"),
        (tree.BoolOp("and", expression("a or b"), expression("c if d else e")), "(a or b) and (c if d else e)"),
        (tree.BoolOp("or", expression("a and b"), expression("not c")), "a and b or not c"),
        (
            tree.Conditional(expression("a if b else c"), N("N"), expression("e if f else g")),
            "N if (a if b else c) else e if f else g",
        ),
        (tree.Call(expression("lambda: 1")), "(lambda: 1)()"),
        (tree.Call(N("f"), (tree.Argument(expression("sum(k for k in x)")),)), "f(sum(k for k in x))"),
        (tree.Call(N("f"), (tree.Argument(expression("(k for k in x)")),)), "f(k for k in x)"),
        (
            tree.Call(N("f"), (tree.Argument(expression("(k for k in x)")), tree.Argument(N("y")))),
            "f((k for k in x), y)",
        ),
        (tree.Call(N("f"), (tree.Argument(expression("(y := 1)"), "k"),)), "f(k=(y := 1))"),
        (tree.Call(N("f"), (tree.Argument(expression("(a or b)"), star="*"),)), "f(*a or b)"),
        (tree.Tuple((expression("a"), expression("(b if c else d)"))), "(a, b if c else d)"),
        (tree.List((tree.Starred(expression("a or b")), expression("(y := 1)"))), "[*(a or b), y := 1]"),
        (tree.Dict((None, N("k")), (expression("a or b"), expression("(y := 1)"))), "{**(a or b), k: (y := 1)}"),
        (tree.Lambda((tree.Parameter("a"),), expression("(a, b)")), "lambda a: (a, b)"),
        (tree.Constant(-0.5), "-0.5"),
        (tree.Constant(float("-inf")), '-float("inf")'),
        (tree.Constant('a"b\\'), '"a\\"b\\\\"'),
        (tree.Unary("not", expression("a == b")), "not a == b"),
        (tree.Unary("~", tree.Unary("-", N("a"))), "~-a"),
    ],
)
def test_parentheses(node: tree.Expr, text: str) -> None:
    got = printed(node)
    assert dump(f"({got})") == dump(Plain().expr(node))
    assert got == text


def test_nesting_is_printed_once_a_level() -> None:
    """Sixty levels take no time, unless each prints what is inside it twice."""
    node: tree.Expr = N("x")
    for _ in range(60):
        node = tree.Select(N("m"), tree.Subscript(tree.Tuple((node,)), (tree.Constant(0),)), N("y"))
    assert printed(node).count("torch.where(m, (") == 60


def test_torch_and_helper_are_printed_as_the_module_calls_them() -> None:
    unit = build("def f(x):\n    return x\n")
    assert isinstance(unit.root, tree.FunctionDef)
    made = tree.Call(tree.HelperName("any_active"), (tree.Argument(tree.Select(N("m"), tree.TorchName("pi"), N("x"))),))
    root = replace(unit.root, body=(tree.Return(made),))
    assert emit_function(unit, root, "th.t", "helpers.any_active") == (
        "def f(x):\n    return helpers.any_active(th.t.where(m, th.t.pi, x))"
    )


MOVES = [
    # what stands in brackets of its old place only
    ("y = f(a\n      + b)", "y = (a\n      + b)"),
    ("y = f((a  # c\n      + b))", "y = (a  # c\n      + b)"),
    ("y = f((a + b))", "y = a + b"),
    ("y = f((a, b))", "y = a, b"),
    ("y = f(g(\n  a))", "y = g(\n  a)"),
    ("y = f(a + \\\n  b)", "y = a + \\\n  b"),
    ("y = f((k for k in a))", "y = (k for k in a)"),
    ("y = f(k for k in a)", "y = (k for k in a)"),
    ("y = f((b := a))", "y = (b := a)"),
    ("y = f(b := a)", "y = (b := a)"),
    ("y = f(('a'\n       'b'))", "y = ('a'\n       'b')"),
    ("y = f((yield a))", "y = yield a"),
    ("return f((yield a))", "return (yield a)"),
    ("return(f(a))", "return(a)"),
    ("return f((a, *b))", "return a, *b"),
    ("y += f((yield))", "y += yield"),
    ("f((a, b))", "a, b"),
    ("f(b := a)", "(b := a)"),
    ("assert f((a, b))", "assert (a, b)"),
    ("if f((b := a)): pass", "if b := a: pass"),
    ("while f(a\n  or b): pass", "while (a\n  or b): pass"),
    ("for k in f((a, b)): pass", "for k in a, b: pass"),
    ("y[f((a, b))] = 1", "y[a, b] = 1"),
    ("y[f((b := a))] = 1", "y[b := a] = 1"),
    ("y = [k for k in f((a if b else c)) if f((lambda: a))]", "y = [k for k in (a if b else c) if (lambda: a)]"),
    ("y = not(f(a))", "y = not(a)"),
    ("y = a if(f(a))else b", "y = a if(a)else b"),
    ("y = (f(a))and b", "y = (a)and b"),
    ("y = await f((a + b))", "y = await (a + b)"),
    ("with(f(a))as b: pass", "with(a)as b: pass"),
    ('y = f"{f((a + b))!r:>{f(w)}} {f({1})}"', 'y = f"{a + b!r:>{w}} {({1})}"'),
    ("del y[f((a))]", "del y[a]"),
]


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_an_argument_moves_into_the_place_of_its_call(before: str, after: str) -> None:
    def unwrap(node: tree.Node) -> tree.Node:
        is_call = isinstance(node, tree.Call) and isinstance(node.func, tree.Name) and node.func.id == "f"
        return node.args[0].value if is_call and isinstance(node, tree.Call) else node

    head = "async def g(x):\n    "
    text = convert(head + before + "\n", unwrap)
    wanted = after.replace("y[a, b]", "y[(a, b)]") if "y[a, b]" in after else after
    assert text == head + wanted + "\n"
    ast.parse(text)


# --- anything for anything ------------------------------------------------------------------

SYNTAX = '''
class A:
    @deco(1, k = 2)  # decorator
    async def f(self, a, /, b: int=1, *c, d=(1, 2), **e) -> "A[int]":
        """Doc."""
        x = y = (a + b) * -c[0, 1:b, ::2]  # first

        # above
        x += a if b else not(c)  ; z: int = {1: a, **b}  # pair
        if a < b <= c and not d or (w := e):  # test
            return [k for k in a if k if b], {k: v async for k, v in c}
        # before elif
        elif (a  # inside
              or b):
            # alone
            return sum(k for k in a), {1, *b}, (yield a)
        else:  # other
            for k, (v, *r) in zip(a, b): del k, v
            else:
                while x: x -= 1; continue
        with open(a) as g, (b) as h[0]:
            raise E(a) from b
        assert (a
                != b), "m" "n"
        def inner(u=lambda q, *, r=1: (q, r)):
            nonlocal x
            import os.path as p, sys
            x = await u(f"{a!r:>{b}}", *c, **d)
            return
        return (a.b(c)(d)[...],
                a is not b,  # last
                a @ b // c ** -d)
'''


@cache
def sources() -> tuple[tuple[str, Function], ...]:
    """The syntax above in three layouts, and whole functions of real code."""
    return tuple(_sources())


def _sources() -> Iterator[tuple[str, Function]]:
    for text in (SYNTAX, SYNTAX.replace("\n", "\r\n"), SYNTAX.replace("    ", "\t")):
        yield text, functions_of(text)[0]
    for package in ("click", "rich"):
        for path in package_files(package, 12):
            text = decode(path.read_bytes(), str(path)).text
            for function in functions_of(text):
                unit = build_function(text, function) if function.parent is None else None
                if unit is not None and not any(isinstance(n, tree.OpaqueStmt) for n in tree.walk(unit.root)):
                    yield text, function


TARGETS = {"targets", "target"}


def places(node: tree.Node) -> Iterator[tree.Expr]:
    """The expressions that any other may stand for."""
    for f in fields(node):
        if f.name in TARGETS or (isinstance(node, tree.OpaqueExpr) and node.what not in ("await", "yield")):
            continue
        value = getattr(node, f.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, tree.Expr) and not isinstance(child, tree.Starred | tree.Slice):
                yield child
            if isinstance(child, tree.Node):
                yield from places(child)


def moved(node: tree.Expr) -> bool:
    """Whether an expression of the original may be used elsewhere."""
    return not any(isinstance(n, tree.OpaqueExpr) and n.what in ("await", "yield") for n in tree.walk(node))


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]


class Random:
    def __init__(self, seed: int, old: list[tree.Expr]) -> None:
        self.rng, self.old = random.Random(seed), old

    def expr(self, depth: int = 3) -> tree.Expr:
        r = self.rng
        if depth == 0 or r.random() < 0.2:
            leaves: list[tree.Expr] = [N("n"), tree.Constant(r.choice([1, -2, 0.5, "s", None])), tree.TorchName("pi")]
            return r.choice([*leaves, r.choice(self.old)])
        e: Callable[[], tree.Expr] = lambda: self.expr(depth - 1)  # noqa: E731
        clause = tree.Clause(N("k"), N("x"), ())
        forms: list[Callable[[], tree.Expr]] = [
            lambda: r.choice(self.old),
            lambda: tree.Attribute(e(), "at"),
            lambda: tree.Call(e(), (tree.Argument(e()), tree.Argument(e(), "k"))),
            lambda: tree.Call(e(), (tree.Argument(e()),)),
            lambda: tree.Call(e(), (tree.Argument(e(), star="*"), tree.Argument(e(), star="**"))),
            lambda: tree.Subscript(e(), (tree.Slice(e(), e(), None), e()), True),
            lambda: tree.Subscript(e(), (e(),)),
            lambda: tree.Unary(r.choice(["-", "+", "~", "not"]), e()),
            lambda: tree.Binary(r.choice(OPERATORS), e(), e()),
            lambda: tree.BoolOp(r.choice(["and", "or"]), e(), e()),
            lambda: tree.Compare(e(), ("<", "not in"), (e(), e())),
            lambda: tree.Conditional(e(), e(), e()),
            lambda: tree.Select(e(), e(), e()),
            lambda: tree.Tuple(tuple(e() for _ in range(r.randrange(3)))),
            lambda: tree.List((e(), tree.Starred(e()))),
            lambda: tree.Dict((None, e()), (e(), e())),
            lambda: tree.Lambda((tree.Parameter("a"), tree.Parameter("b", default=e())), e()),
            lambda: tree.Walrus(N("w"), e()),
            lambda: tree.Comprehension(r.choice(["list", "set", "generator"]), e(), (clause,)),
            lambda: tree.Comprehension("dict", e(), (replace(clause, iter=e(), conditions=(e(),)),), e()),
        ]
        return r.choice(forms)()

    def changed(self, node: tree.Expr) -> tree.Expr:
        """Another expression, or the same with another operator, name or child."""
        r = self.rng
        if isinstance(node, tree.Binary) and r.random() < 0.5:
            return replace(node, op=r.choice(["+", "**", "&", ">>"]))
        if isinstance(node, tree.Unary) and r.random() < 0.5:
            return replace(node, op=r.choice(["-", "not"]))
        if isinstance(node, tree.Compare) and r.random() < 0.5:
            return replace(node, ops=tuple("is not" for _ in node.ops))
        if isinstance(node, tree.Constant) and r.random() < 0.5:
            return replace(node, value=-7)
        if isinstance(node, tree.Attribute) and r.random() < 0.5:
            return replace(node, attr="other")
        if isinstance(node, tree.Name) and r.random() < 0.5:
            return replace(node, id="renamed")
        return self.expr()


@pytest.mark.parametrize("seed", range(12))
def test_any_expression_in_any_place_means_the_same(seed: int) -> None:
    rng = random.Random(seed)
    chosen = rng.sample(sources()[3:], 8) if seed % 3 else sources()[:3] * 8
    for text, function in chosen:
        unit = build_function(text, function)
        spots = list(places(unit.root))
        old = [p for p in spots if moved(p)]
        if not old:
            continue
        make = Random(rng.randrange(10**6), old)
        new = {spot: make.changed(spot) for spot in rng.sample(spots, min(len(spots), rng.choice([1, 2, 5])))}

        def change(node: tree.Node, new: dict[tree.Expr, tree.Expr] = new) -> tree.Node:
            return new[node] if node in new else tree.map_children(node, change)

        root: Any = change(unit.root)
        out = emit_function(unit, root)
        assert dump(as_module(unit, out)) == meant(unit, root), out
        assert not comments(as_module(unit, unit.text)) - comments(as_module(unit, out)), out


def flattened(block: tree.Block, rng: random.Random) -> tree.Block:
    """Branches made into their statements, statements dropped, made anew or folded into the next: as passes do."""
    out: list[tree.Stmt] = []
    carried: tuple[Any, ...] = ()
    for stmt in block:
        dice = rng.random()
        if isinstance(stmt, tree.If) and dice < 0.6:
            new = tree.Assign((N("mask"),), stmt.test, carries=(*carried, stmt.origin))
            out += [new, *flattened(stmt.body, rng), *flattened(stmt.orelse, rng)]
            carried = ()
        elif isinstance(stmt, tree.Assign | tree.AugAssign | tree.Return) and dice < 0.2:
            carried = (*carried, stmt.origin)
        elif isinstance(stmt, tree.Assign) and dice < 0.5:
            value = tree.Select(N("mask"), stmt.value, N("old"))
            kept = rng.random() < 0.5
            if kept:
                out.append(replace(stmt, value=value))
            else:
                out.append(tree.Assign(stmt.targets, value, carries=(*carried, stmt.origin)))
                carried = ()
        elif isinstance(stmt, tree.For | tree.While):
            out.append(replace(stmt, body=flattened(stmt.body, rng), orelse=flattened(stmt.orelse, rng)))
        elif dice < 0.9:
            out.append(stmt)
    return tuple(out)


@pytest.mark.parametrize("seed", range(12))
def test_statements_come_and_go_and_comments_stay(seed: int) -> None:
    rng = random.Random(seed)
    for text, function in [*sources()[:3], *rng.sample(sources()[3:], 12)]:
        unit = build_function(text, function)
        if isinstance(unit.root, tree.Lambda):
            continue
        root = replace(unit.root, body=flattened(unit.root.body, rng))
        out = emit_function(unit, root)
        assert dump(as_module(unit, out)) == meant(unit, root), out
        before, after = comments(as_module(unit, unit.text)), comments(as_module(unit, out))
        assert before == after, out
        if "\r\n" in text:
            assert not re.search("(?<!\r)\n", out)
        if "\n\t" in text:
            assert not re.search(r"^\t* +\S", re.sub(r"\(.*?\)|\[.*?\]", "", out, flags=re.DOTALL), re.MULTILINE)


# --- statements, comments, blank lines ------------------------------------------------------


def body_of(text: str) -> tuple[FunctionUnit, tree.FunctionDef]:
    unit = build(text)
    assert isinstance(unit.root, tree.FunctionDef)
    return unit, unit.root


def test_comments_of_a_branch_stand_above_what_it_became() -> None:
    text = (
        "def f(x):\n"
        "    a = 1  # one\n"
        "\n"
        "    # why\n"
        "    if x > 0:  # positive\n"
        "        # in\n"
        "        a = 2  # two\n"
        "    else:  # otherwise\n"
        "        a = 3\n"
        "        # end of else\n"
        "\n"
        "    return a\n"
    )
    unit, root = body_of(text)
    one, branch, last = root.body
    assert isinstance(branch, tree.If)
    two, three = branch.body[0], branch.orelse[0]
    assert isinstance(two, tree.Assign)
    assert isinstance(three, tree.Assign)
    merged = tree.Assign(
        two.targets,
        tree.Select(branch.test, two.value, three.value),
        carries=(branch.origin, two.origin, three.origin),
    )
    assert emit_function(unit, replace(root, body=(one, merged, last))) == (
        "def f(x):\n"
        "    a = 1  # one\n"
        "\n"
        "    # why\n"
        "    # positive\n"
        "    # in\n"
        "    # two\n"
        "    # otherwise\n"
        "    # end of else\n"
        "    a = torch.where(x > 0, 2, 3)\n"
        "\n"
        "    return a"
    )


def test_a_comment_that_nothing_carries_goes_above_the_next_statement() -> None:
    text = "def f(x):\n    if x:  # gone\n        y = 1  # too\n    z = 2  # stays\n    w = 3\n"
    unit, root = body_of(text)
    out = emit_function(unit, replace(root, body=root.body[1:]))
    assert out == "def f(x):\n    # gone\n    # too\n    z = 2  # stays\n    w = 3"
    out = emit_function(unit, replace(root, body=root.body[2:]))
    assert out == "def f(x):\n    # gone\n    # too\n    # stays\n    w = 3"
    out = emit_function(unit, replace(root, body=()))
    assert out == "def f(x):\n    # gone\n    # too\n    # stays\n    pass"


def test_a_comment_is_printed_once_though_two_statements_carry_it() -> None:
    text = "def f(x):\n    y = g(x)  # note\n    return y\n"
    unit, root = body_of(text)
    first = root.body[0]
    made = [tree.Assign((N(n),), N("x"), carries=(first.origin,)) for n in ("a", "b")]
    out = emit_function(unit, replace(root, body=(*made, *root.body)))
    assert out == "def f(x):\n    a = x\n    b = x\n    y = g(x)  # note\n    return y"
    out = emit_function(unit, replace(root, body=(*made, *root.body[1:])))
    assert out == "def f(x):\n    # note\n    a = x\n    b = x\n    return y"


def test_own_comments_keep_their_order_among_carried_ones() -> None:
    text = "def f(x):\n    a = 1  # a\n    # above b\n    b = 2\n    c = 3  # c\n    return b\n"
    unit, root = body_of(text)
    a, b, c, last = root.body
    out = emit_function(unit, replace(root, body=(replace(b, carries=(a.origin, c.origin)), last)))
    assert out == "def f(x):\n    # a\n    # above b\n    # c\n    b = 2\n    return b"


def test_comments_of_a_lambda_stay_valid() -> None:
    text = "g = [(lambda x: f(x,  # one\n    # two\n    1))]\n"
    out = convert(text, lambda n: replace(n, args=()) if isinstance(n, tree.Call) else n)
    assert ast.dump(ast.parse(out)) == ast.dump(ast.parse("g = [(lambda x: f())]"))
    assert comments(out) == comments(text)


def test_a_one_line_suite_opens_where_it_must() -> None:
    text = "def f(x):\n\tif x: y = 1  # c\n\treturn y\n"
    unit, root = body_of(text)
    branch = root.body[0]
    assert isinstance(branch, tree.If)
    more = replace(branch, body=(*branch.body, tree.Assign((N("z"),), N("x"))))
    out = emit_function(unit, replace(root, body=(more, root.body[1])))
    assert out == "def f(x):\n\tif x:\n\t\ty = 1  # c\n\t\tz = x\n\treturn y"
    first = branch.body[0]
    assert isinstance(first, tree.Assign)
    other = replace(branch, body=(replace(first, value=N("q")),))
    assert emit_function(unit, replace(root, body=(other, root.body[1]))) == text.rstrip("\n").replace("= 1", "= q")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_one_line_function_opens_in_the_style_of_its_file(newline: str) -> None:
    text = "class A:\n  def f(x): return x\n".replace("\n", newline)
    unit, root = body_of(text)
    out = emit_function(unit, replace(root, body=(tree.Assign((N("y"),), N("x")), *root.body)))
    assert out == "def f(x):\n    y = x\n    return x".replace("\n", newline)


def test_a_shared_line_breaks_up_only_where_it_changes() -> None:
    text = "def f(x):\n    # h\n    a = 1; b = 2  # t\n    return a\n"
    unit, root = body_of(text)
    a, b, last = root.body
    assert isinstance(b, tree.Assign)
    out = emit_function(unit, replace(root, body=(a, b, tree.Return(None))))
    assert out == "def f(x):\n    # h\n    a = 1; b = 2  # t\n    return"
    out = emit_function(unit, replace(root, body=(a, replace(b, value=N("c")), last)))
    assert out == "def f(x):\n    # h\n    a = 1\n    b = c  # t\n    return a"


def test_elif_stays_elif_and_a_nested_if_stays_nested() -> None:
    text = "def f(x):\n    if a:\n        p()\n    elif b:\n        q()\n    else:\n        if c:\n            r()\n    return x\n"
    out = convert(text, lambda n: tree.Name("z") if isinstance(n, tree.Name) and n.id in "abc" else n)
    assert out == re.sub(r"\b[abc]\b", "z", text)


def test_opaque_statements_print_what_changed_inside() -> None:
    text = (
        "def f(x):\n"
        "    try:  # t\n"
        "        y = x\n"
        "    except E as err: y = err; z = x\n"
        "    class C(x, k=x):\n"
        "        x = x\n"
        "    match x:\n"
        "        case C(x=1, y=q) if q > x: return x\n"
        "        case [1, *r] | {'k': r}: return r\n"
        "    return y\n"
    )
    out = convert(text, lambda n: tree.Name("w") if isinstance(n, tree.Name) and n.id == "x" else n)
    wanted = re.sub(r"\bx\b", "w", text).replace("def f(w)", "def f(x)").replace("C(w=1", "C(x=1")
    assert out == wanted


def test_parameters_change_one_by_one() -> None:
    text = "def f(a, b: int = 1,  # c\n      *, k = 2):\n    return a\n"
    out = convert(text, lambda n: replace(n, value=5) if isinstance(n, tree.Constant) and n.value == 1 else n)
    assert out == text.replace("= 1", "= 5")
    unit, root = body_of(text)
    more = (*root.params[:2], tree.Parameter("rest", "star"), root.params[2], tree.Parameter("kw", "double star"))
    out = emit_function(unit, replace(root, params=more))
    assert out == "def f(a, b: int = 1, *rest, k = 2, **kw):\n    # c\n    return a"


def test_new_statements_of_every_kind() -> None:
    unit, root = body_of("def f(x):\n  return x\n")
    x, y, put = N("x"), N("y"), tree.Assign((N("y"),), N("x"))
    body: tree.Block = (
        tree.AnnAssign(y, N("int"), None),
        tree.AnnAssign(y, N("int"), tree.Tuple((x, x))),
        tree.AugAssign(y, "**", x),
        tree.Assign((tree.Tuple((x, y)),), tree.Tuple((y, x))),
        tree.If(tree.Unary("~", x), (put,), (tree.If(y, (put,), (put,)),)),
        tree.For(tree.Tuple((x, y)), y, (tree.Continue(),), (tree.Break(),)),
        tree.While(x, (), (put,)),
        tree.With((tree.WithItem(x, y), tree.WithItem(y)), (put,)),
        tree.FunctionDef(
            "g", (tree.Parameter("a", default=x),), (tree.Scope("nonlocal", ("x", "y")), tree.Pass()), (x,), y
        ),
        tree.Raise(x, y),
        tree.Assert(x, y),
        tree.Delete((x, y)),
        tree.ExprStmt(tree.Call(x)),
    )
    new = replace(root, body=body)
    out = emit_function(unit, new)
    assert dump(out) == meant(unit, new)
    assert "\n  elif y:\n    y = x\n  else:\n" in out
    assert "\n  x, y = y, x\n" in out
    assert "\n  while x:\n    pass\n" in out
    assert "\n  @x\n  def g(a=x) -> y:\n" in out


# --- imports --------------------------------------------------------------------------------

IMPORTS = [
    ("x = 1\n", "import torch\n\nx = 1\n"),
    ("", "import torch\n\n"),
    ('"""Doc."""', '"""Doc."""\n\nimport torch\n'),
    ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport torch\nx = 1\n'),
    ('"""Doc."""; import os\nx = 1\n', '"""Doc."""; import os\nimport torch\nx = 1\n'),
    (
        '"""Doc."""\nfrom __future__ import annotations\n\nimport os\n\nx = 1\n',
        '"""Doc."""\nfrom __future__ import annotations\n\nimport torch\nimport os\n\nx = 1\n',
    ),
    ("from __future__ import annotations\n", "from __future__ import annotations\n\nimport torch\n"),
    ("#!/bin/x\n# coding: utf-8\n\nx = 1\n", "#!/bin/x\n# coding: utf-8\nimport torch\n\n\nx = 1\n"),
    ("# c\r\nimport os\r\nx = 1\r\n", "# c\r\nimport torch\r\nimport os\r\nx = 1\r\n"),
    ("import os\rx = 1\r", "import torch\rimport os\rx = 1\r"),
    ('"""a\x0cb\u2028c"""\n\x0c\nimport os\n', '"""a\x0cb\u2028c"""\n\x0c\nimport torch\nimport os\n'),
]


@pytest.mark.parametrize(("before", "after"), IMPORTS)
def test_import_goes_after_docstring_and_future(before: str, after: str) -> None:
    out = add_import(before, ast.parse(before), "import torch")
    assert out == after
    ast.parse(out)
    assert ast.get_docstring(ast.parse(out)) == ast.get_docstring(ast.parse(before))


def test_from_import_goes_behind_the_first_block() -> None:
    text = '"""Doc."""\n\nimport os\nfrom a import (\n    b,\n)\n\nx = 1\nimport sys\n'
    out = add_import(text, ast.parse(text), "from if2where import any_active")
    assert out == text.replace(")\n", ")\nfrom if2where import any_active\n")
