"""Unchanged trees print as they were written; changed ones get the parentheses that they need."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from if2where.emit import add_import, emit_function
from if2where.module import Source, parse_module
from if2where.region import tree
from if2where.region.build import build_function


def package_files(name: str, most: int) -> list[Path]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.rglob("*.py"))[:most]


@pytest.mark.parametrize("package", ["click", "libcst", "rich"])
def test_rebuilt_trees_print_the_same(package: str) -> None:
    """Every node is made anew, so that each is printed from its parts."""
    seen = 0
    for path in package_files(package, 60):
        text = path.read_text(encoding="utf-8")
        module = parse_module(Source(str(path), text))
        for function in module.functions:
            if function.parent is not None:
                continue
            unit = build_function(text, function)
            printed = emit_function(unit, rebuilt(unit.root))
            wrap = "({})" if isinstance(function.node, ast.Lambda) else "{}"
            start = text.rfind("\n", 0, function.span[0]) + 1
            indent = text[start : function.span[0]]
            as_module = f"if True:\n{indent}{printed}" if indent.strip() == "" and indent else wrap.format(printed)
            original = text[slice(*function.span)]
            original_module = (
                f"if True:\n{indent}{original}" if indent.strip() == "" and indent else wrap.format(original)
            )
            assert ast.dump(ast.parse(as_module)) == ast.dump(ast.parse(original_module)), (path, function.qualname)
            seen += 1
    assert seen > 100


def rebuilt(node: tree._NodeT) -> tree._NodeT:
    return replace(tree.map_children(node, rebuilt))


def expression(text: str) -> tree.Expr:
    source = f"lambda: {text}"
    unit = build_function(source, parse_module(Source("a.py", source)).functions[0])
    assert isinstance(unit.root, tree.Lambda)
    return unit.root.body


def printed(node: tree.Expr) -> str:
    source = "lambda: 0"
    unit = build_function(source, parse_module(Source("a.py", source)).functions[0])
    assert isinstance(unit.root, tree.Lambda)
    return emit_function(unit, replace(unit.root, body=node)).removeprefix("lambda: ")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (tree.Binary("&", expression("a < b"), expression("b < c")), "(a < b) & (b < c)"),
        (tree.Unary("~", expression("a > b")), "~(a > b)"),
        (tree.Unary("-", expression("a if c else b")), "-(a if c else b)"),
        (tree.Select(expression("(a > 5)"), expression("t * b"), expression("-t")), "torch.where(a > 5, t * b, -t)"),
        (tree.Binary("*", expression("a + b"), expression("c")), "(a + b) * c"),
        (tree.Binary("-", expression("a"), expression("b - c")), "a - (b - c)"),
        (tree.Binary("**", expression("-a"), expression("-b")), "(-a) ** -b"),
        (tree.Binary("**", expression("a ** b"), expression("c")), "(a ** b) ** c"),
        (tree.Attribute(expression("a + b"), "mean"), "(a + b).mean"),
        (tree.Attribute(tree.Constant(1), "real"), "(1).real"),
        (tree.Subscript(expression("a or b"), (expression("(1, 2)"),)), "(a or b)[(1, 2)]"),
        (tree.Compare(expression("a < b"), ("==",), (expression("not c"),)), "(a < b) == (not c)"),
        (tree.BoolOp("and", expression("a or b"), expression("c if d else e")), "(a or b) and (c if d else e)"),
        (tree.Call(expression("lambda: 1")), "(lambda: 1)()"),
        (tree.Constant(-0.5), "-0.5"),
        (tree.Unary("not", expression("a == b")), "not a == b"),
    ],
)
def test_parentheses(node: tree.Expr, text: str) -> None:
    assert printed(node) == text


def test_import_goes_after_docstring_and_future() -> None:
    text = '"""Doc."""\nfrom __future__ import annotations\n\nimport os\n\nx = 1\n'
    assert add_import(text, ast.parse(text), "import torch") == text.replace("import os", "import torch\nimport os")
    bare = "x = 1\n"
    assert add_import(bare, ast.parse(bare), "import torch") == "import torch\n\nx = 1\n"
    only_doc = '"""Doc."""\nx = 1\n'
    assert add_import(only_doc, ast.parse(only_doc), "import torch") == '"""Doc."""\n\nimport torch\nx = 1\n'
