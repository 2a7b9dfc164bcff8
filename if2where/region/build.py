"""From one function's text to its region tree: libcst on this side, frozen plain data on the other."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from if2where.module import Function, newline_of
from if2where.region import tree


@dataclass(frozen=True, eq=False)
class FunctionUnit:
    """A function that is rewritten as a whole, and what emit needs to print it back.

    ``module`` is the parsed slice, with ``prefix`` before it: for an indented function an ``if`` line that
    makes its indentation right, for a lambda the parenthesis that lets it go on over lines.
    ``node`` is the function in it, ``newline`` the line end that new lines get.
    """

    root: tree.FunctionDef | tree.Lambda
    text: str
    prefix: str
    module: cst.Module
    node: cst.FunctionDef | cst.Lambda
    newline: str


def build_function(text: str, function: Function) -> FunctionUnit:
    """The region tree of the function, with positions in the whole file."""
    start, end = function.span
    slice_ = text[start:end]
    line_start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    first_line = text.count("\n", 0, start) + text.count("\r", 0, start) - text.count("\r\n", 0, start) + 1
    newline = newline_of(slice_, newline_of(text))
    is_lambda = isinstance(function.node, ast.Lambda)
    before = text[line_start:start]
    # Decorators and defs start their lines; a form feed there counts for nothing, but libcst would take it for indentation.
    indent = before.replace("\f", "")
    prefix = "(" if is_lambda else f"if True:{newline}{indent}" if indent else ""
    module = cst.parse_module(f"({slice_})" if is_lambda else prefix + slice_)
    if not newline_of(slice_, ""):
        # libcst takes its defaults from what it parses: from one line it can take none.
        module = module.with_changes(default_newline=newline, default_indent=_indent_of(text))
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    node: Any = module.body[0]
    if is_lambda:
        node = node.body[0].value
    elif prefix:
        node = node.body.body[0]
    parsed_line = 2 if prefix and not is_lambda else 1
    shift = len(before) - (len(prefix) if is_lambda else len(indent))
    builder = _Builder(positions, first_line - parsed_line, parsed_line, shift)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in the strings of the text
        root = builder.expr(node) if is_lambda else builder.statement(node)
    assert isinstance(root, tree.FunctionDef | tree.Lambda)
    return FunctionUnit(root, slice_, prefix, module, node, newline)


def _indent_of(text: str) -> str:
    """One step of indentation: that of the first indented line."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found.group(1) if found else "    "


@dataclass(frozen=True)
class Parts:
    """What is in concrete syntax that the tree has no class for: the places that its children came from."""

    expressions: list[cst.BaseExpression] = field(default_factory=list)
    suites: list[cst.BaseSuite] = field(default_factory=list)
    binds: list[cst.Name] = field(default_factory=list)


def parts(node: cst.CSTNode) -> Parts:
    """The outermost expressions and suites below a node, and the names that it binds itself, in source order."""
    found = Parts()
    _collect(node, found)
    return found


def _collect(node: cst.CSTNode, found: Parts) -> None:
    bound = tuple(_bound(node))
    found.binds.extend(bound)
    for child in node.children:
        if isinstance(child, cst.BaseSuite):
            found.suites.append(child)
        elif any(child is name for name in (*bound, *_labels(node))):
            continue
        elif isinstance(child, cst.BaseExpression):
            found.expressions.append(child)
        else:
            _collect(child, found)


def _bound(node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that a node binds beside what the suites below it bind."""
    name: cst.CSTNode | None = None
    if isinstance(node, cst.AsName | cst.MatchAs | cst.MatchStar | cst.ClassDef | cst.TypeAlias):
        name = node.name
    elif isinstance(node, cst.MatchMapping):
        name = node.rest
    if isinstance(name, cst.Name):
        yield name


def _labels(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Names that are no variables: of keyword arguments, of attributes in patterns, of type parameters."""
    if isinstance(node, cst.Arg) and node.keyword is not None:
        yield node.keyword
    elif isinstance(node, cst.MatchKeywordElement):
        yield node.key
    elif isinstance(node, cst.TypeVar | cst.TypeVarTuple | cst.ParamSpec):
        yield node.name


_BINARY: dict[type[cst.BaseBinaryOp], str] = {
    cst.Add: "+",
    cst.Subtract: "-",
    cst.Multiply: "*",
    cst.Divide: "/",
    cst.FloorDivide: "//",
    cst.Modulo: "%",
    cst.Power: "**",
    cst.MatrixMultiply: "@",
    cst.BitAnd: "&",
    cst.BitOr: "|",
    cst.BitXor: "^",
    cst.LeftShift: "<<",
    cst.RightShift: ">>",
}
_AUGMENTED: dict[type[cst.BaseAugOp], str] = {
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
    cst.FloorDivideAssign: "//",
    cst.ModuloAssign: "%",
    cst.PowerAssign: "**",
    cst.MatrixMultiplyAssign: "@",
    cst.BitAndAssign: "&",
    cst.BitOrAssign: "|",
    cst.BitXorAssign: "^",
    cst.LeftShiftAssign: "<<",
    cst.RightShiftAssign: ">>",
}
_UNARY: dict[type[cst.BaseUnaryOp], str] = {cst.Minus: "-", cst.Plus: "+", cst.BitInvert: "~", cst.Not: "not"}
_COMPARE: dict[type[cst.BaseCompOp], str] = {
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.In: "in",
    cst.NotIn: "not in",
    cst.Is: "is",
    cst.IsNot: "is not",
}


class _Builder:
    """``column_shift`` is for what stands on the slice's first line, ``first_line`` of what was parsed."""

    def __init__(self, positions: Any, line_shift: int, first_line: int, column_shift: int) -> None:
        self.positions = positions
        self.line_shift = line_shift
        self.first_line = first_line
        self.column_shift = column_shift

    def at(self, node: cst.CSTNode) -> tuple[int, int] | None:
        found = self.positions.get(node)
        if found is None:
            return None
        line, column = found.start.line, found.start.column
        shift = self.column_shift if line == self.first_line else 0
        return (line + self.line_shift, column + shift + 1)

    # --- expressions ------------------------------------------------------------------------

    def expr(self, node: cst.BaseExpression) -> tree.Expr:
        at = self.at(node)
        if isinstance(node, cst.Name):
            if node.value in ("True", "False", "None"):
                return tree.Constant({"True": True, "False": False, "None": None}[node.value], origin=node, at=at)
            return tree.Name(node.value, origin=node, at=at)
        if isinstance(node, cst.Integer | cst.Float | cst.Imaginary):
            return tree.Constant(ast.literal_eval(node.value), origin=node, at=at)
        if isinstance(node, cst.SimpleString):
            return tree.Constant(ast.literal_eval(node.value), origin=node, at=at)
        if isinstance(node, cst.Ellipsis):
            return tree.Constant(Ellipsis, origin=node, at=at)
        if isinstance(node, cst.Attribute):
            return tree.Attribute(self.expr(node.value), node.attr.value, origin=node, at=at)
        if isinstance(node, cst.Call):
            return tree.Call(self.expr(node.func), tuple(self.argument(a) for a in node.args), origin=node, at=at)
        if isinstance(node, cst.Subscript):
            return self.subscript(node)
        if isinstance(node, cst.UnaryOperation):
            return tree.Unary(_UNARY[type(node.operator)], self.expr(node.expression), origin=node, at=at)
        if isinstance(node, cst.BinaryOperation):
            return tree.Binary(
                _BINARY[type(node.operator)], self.expr(node.left), self.expr(node.right), origin=node, at=at
            )
        if isinstance(node, cst.BooleanOperation):
            op = "and" if isinstance(node.operator, cst.And) else "or"
            return tree.BoolOp(op, self.expr(node.left), self.expr(node.right), origin=node, at=at)
        if isinstance(node, cst.Comparison):
            ops = tuple(_COMPARE[type(c.operator)] for c in node.comparisons)
            rest = tuple(self.expr(c.comparator) for c in node.comparisons)
            return tree.Compare(self.expr(node.left), ops, rest, origin=node, at=at)
        if isinstance(node, cst.IfExp):
            return tree.Conditional(
                self.expr(node.test), self.expr(node.body), self.expr(node.orelse), origin=node, at=at
            )
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            made = {cst.Tuple: tree.Tuple, cst.List: tree.List, cst.Set: tree.Set}[type(node)]
            return made(tuple(self.element(e) for e in node.elements), origin=node, at=at)
        if isinstance(node, cst.Dict):
            return self.dict_display(node)
        if isinstance(node, cst.Lambda):
            return tree.Lambda(self.parameters(node.params), self.expr(node.body), origin=node, at=at)
        if isinstance(node, cst.NamedExpr):
            target = self.expr(node.target)
            assert isinstance(target, tree.Name)
            return tree.Walrus(target, self.expr(node.value), origin=node, at=at)
        if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp):
            form = {cst.ListComp: "list", cst.SetComp: "set", cst.GeneratorExp: "generator"}[type(node)]
            return tree.Comprehension(form, self.expr(node.elt), self.clauses(node.for_in), origin=node, at=at)
        if isinstance(node, cst.DictComp):
            clauses = self.clauses(node.for_in)
            return tree.Comprehension("dict", self.expr(node.value), clauses, self.expr(node.key), origin=node, at=at)
        what = {
            cst.Await: "await",
            cst.Yield: "yield",
            cst.ConcatenatedString: "string",
            cst.FormattedString: "f-string",
        }
        return tree.OpaqueExpr(what.get(type(node), type(node).__name__.lower()), self.inside(node), origin=node, at=at)

    def inside(self, node: cst.CSTNode) -> tuple[tree.Expr, ...]:
        return tuple(self.expr(e) for e in parts(node).expressions)

    def argument(self, node: cst.Arg) -> tree.Argument:
        keyword = node.keyword.value if node.keyword is not None else None
        return tree.Argument(self.expr(node.value), keyword, str(node.star), origin=node, at=self.at(node))

    def subscript(self, node: cst.Subscript) -> tree.Expr:
        items: list[tree.Expr] = []
        for element in node.slice:
            part = element.slice
            if isinstance(part, cst.Index):
                inner = self.expr(part.value)
                items.append(tree.Starred(inner, origin=part, at=self.at(part)) if part.star else inner)
            else:
                assert isinstance(part, cst.Slice)
                bounds = [self.expr(b) if b is not None else None for b in (part.lower, part.upper, part.step)]
                items.append(tree.Slice(*bounds, origin=part, at=self.at(part)))
        last = node.slice[-1]
        is_tuple = len(items) > 1 or isinstance(last.comma, cst.Comma)
        return tree.Subscript(self.expr(node.value), tuple(items), is_tuple, origin=node, at=self.at(node))

    def element(self, node: cst.BaseElement) -> tree.Expr:
        inner = self.expr(node.value)
        return tree.Starred(inner, origin=node, at=self.at(node)) if isinstance(node, cst.StarredElement) else inner

    def dict_display(self, node: cst.Dict) -> tree.Expr:
        keys: list[tree.Expr | None] = []
        values: list[tree.Expr] = []
        for element in node.elements:
            keys.append(self.expr(element.key) if isinstance(element, cst.DictElement) else None)
            values.append(self.expr(element.value))
        return tree.Dict(tuple(keys), tuple(values), origin=node, at=self.at(node))

    def clauses(self, node: cst.CompFor) -> tuple[tree.Clause, ...]:
        clause = tree.Clause(
            self.expr(node.target),
            self.expr(node.iter),
            tuple(self.expr(i.test) for i in node.ifs),
            node.asynchronous is not None,
            origin=node,
            at=self.at(node),
        )
        return (clause, *(self.clauses(node.inner_for_in) if node.inner_for_in is not None else ()))

    def parameters(self, node: cst.Parameters) -> tuple[tree.Parameter, ...]:
        found: list[tree.Parameter] = []

        def add(param: cst.Param, kind: str) -> None:
            found.append(
                tree.Parameter(
                    param.name.value,
                    kind,
                    self.expr(param.default) if param.default is not None else None,
                    self.expr(param.annotation.annotation) if param.annotation is not None else None,
                    origin=param,
                    at=self.at(param),
                )
            )

        for p in node.posonly_params:
            add(p, "positional")
        for p in node.params:
            add(p, "normal")
        if isinstance(node.star_arg, cst.Param):
            add(node.star_arg, "star")
        for p in node.kwonly_params:
            add(p, "keyword")
        if node.star_kwarg is not None:
            add(node.star_kwarg, "double star")
        return tuple(found)

    # --- statements -------------------------------------------------------------------------

    def block(self, node: cst.BaseSuite) -> tree.Block:
        found: list[tree.Stmt] = []
        if isinstance(node, cst.SimpleStatementSuite):
            return tuple(self.small(s, node) for s in node.body)
        assert isinstance(node, cst.IndentedBlock)
        for stmt in node.body:
            found.extend(self.statements(stmt))
        return tuple(found)

    def statements(self, node: cst.BaseStatement) -> Sequence[tree.Stmt]:
        if isinstance(node, cst.SimpleStatementLine):
            return [self.small(s, node) for s in node.body]
        return [self.statement(node)]

    def statement(self, node: cst.BaseStatement) -> tree.Stmt:
        at = self.at(node)
        if isinstance(node, cst.If):
            orelse: tree.Block = ()
            if isinstance(node.orelse, cst.If):
                orelse = (self.statement(node.orelse),)
            elif isinstance(node.orelse, cst.Else):
                orelse = self.block(node.orelse.body)
            return tree.If(self.expr(node.test), self.block(node.body), orelse, origin=node, at=at)
        if isinstance(node, cst.For):
            orelse = self.block(node.orelse.body) if node.orelse is not None else ()
            target, iterated = self.expr(node.target), self.expr(node.iter)
            return tree.For(
                target, iterated, self.block(node.body), orelse, node.asynchronous is not None, origin=node, at=at
            )
        if isinstance(node, cst.While):
            orelse = self.block(node.orelse.body) if node.orelse is not None else ()
            return tree.While(self.expr(node.test), self.block(node.body), orelse, origin=node, at=at)
        if isinstance(node, cst.With):
            items = tuple(
                tree.WithItem(
                    self.expr(i.item),
                    self.expr(i.asname.name) if i.asname is not None else None,
                    origin=i,
                    at=self.at(i),
                )
                for i in node.items
            )
            return tree.With(items, self.block(node.body), node.asynchronous is not None, origin=node, at=at)
        if isinstance(node, cst.FunctionDef):
            return tree.FunctionDef(
                node.name.value,
                self.parameters(node.params),
                self.block(node.body),
                tuple(self.expr(d.decorator) for d in node.decorators),
                self.expr(node.returns.annotation) if node.returns is not None else None,
                node.asynchronous is not None,
                origin=node,
                at=at,
            )
        return self.opaque(node)

    def opaque(self, node: cst.CSTNode, origin: Any = None) -> tree.OpaqueStmt:
        what = {cst.TryStar: "try", cst.ClassDef: "class", cst.TypeAlias: "type"}.get(
            type(node), type(node).__name__.lower()
        )
        found = parts(node)
        return tree.OpaqueStmt(
            what,
            tuple(self.expr(e) for e in found.expressions),
            tuple(self.block(s) for s in found.suites),
            tuple(n.value for n in found.binds),
            origin=origin or node,
            at=self.at(node),
        )

    def small(self, node: cst.BaseSmallStatement, line: cst.CSTNode) -> tree.Stmt:
        """A small statement; its origin is the pair of itself and the line that it stands on."""
        origin, at = (node, line), self.at(node)
        if isinstance(node, cst.Assign):
            targets = tuple(self.expr(t.target) for t in node.targets)
            return tree.Assign(targets, self.expr(node.value), origin=origin, at=at)
        if isinstance(node, cst.AnnAssign):
            value = self.expr(node.value) if node.value is not None else None
            return tree.AnnAssign(
                self.expr(node.target), self.expr(node.annotation.annotation), value, origin=origin, at=at
            )
        if isinstance(node, cst.AugAssign):
            return tree.AugAssign(
                self.expr(node.target), _AUGMENTED[type(node.operator)], self.expr(node.value), origin=origin, at=at
            )
        if isinstance(node, cst.Expr):
            return tree.ExprStmt(self.expr(node.value), origin=origin, at=at)
        if isinstance(node, cst.Return):
            return tree.Return(self.expr(node.value) if node.value is not None else None, origin=origin, at=at)
        if isinstance(node, cst.Break):
            return tree.Break(origin=origin, at=at)
        if isinstance(node, cst.Continue):
            return tree.Continue(origin=origin, at=at)
        if isinstance(node, cst.Pass):
            return tree.Pass(origin=origin, at=at)
        if isinstance(node, cst.Raise):
            exc = self.expr(node.exc) if node.exc is not None else None
            cause = self.expr(node.cause.item) if node.cause is not None else None
            return tree.Raise(exc, cause, origin=origin, at=at)
        if isinstance(node, cst.Assert):
            message = self.expr(node.msg) if node.msg is not None else None
            return tree.Assert(self.expr(node.test), message, origin=origin, at=at)
        if isinstance(node, cst.Del):
            target = self.expr(node.target)
            return tree.Delete(target.items if isinstance(target, tree.Tuple) else (target,), origin=origin, at=at)
        if isinstance(node, cst.Global | cst.Nonlocal):
            what = "global" if isinstance(node, cst.Global) else "nonlocal"
            return tree.Scope(what, tuple(n.name.value for n in node.names), origin=origin, at=at)
        if isinstance(node, cst.Import | cst.ImportFrom):
            return tree.Import(_imported(node), origin=origin, at=at)
        return self.opaque(node, origin)


def _imported(node: cst.Import | cst.ImportFrom) -> tuple[tuple[str, str], ...]:
    """The names that an import binds, each with the dotted name of what it stands for."""
    if isinstance(node.names, cst.ImportStar):
        return (("*", f"{_base(node)}.*"),) if isinstance(node, cst.ImportFrom) else ()
    found: list[tuple[str, str]] = []
    for alias in node.names:
        name = _dotted(alias.name)
        if isinstance(node, cst.ImportFrom):
            base = _base(node)
            found.append((alias.evaluated_alias or name, f"{base}.{name}" if base else name))
        elif alias.evaluated_alias:
            found.append((alias.evaluated_alias, name))
        else:
            found.append((name.split(".")[0], name.split(".")[0]))
    return tuple(found)


def _base(node: cst.ImportFrom) -> str:
    return "." * len(node.relative) + (_dotted(node.module) if node.module is not None else "")


def _dotted(node: cst.BaseExpression) -> str:
    return (
        f"{_dotted(node.value)}.{node.attr.value}"
        if isinstance(node, cst.Attribute)
        else cst.ensure_type(node, cst.Name).value
    )
