"""From a changed region tree back to the text of its function, in the original's own layout.

What has not changed is printed as it was written. What is new is laid out in the usual style;
the comments of the statements that went into it stand above it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import libcst as cst

from if2where.region import tree
from if2where.region.build import FunctionUnit

_BINARY: dict[str, tuple[type[cst.BaseBinaryOp], int]] = {
    "|": (cst.BitOr, 7),
    "^": (cst.BitXor, 8),
    "&": (cst.BitAnd, 9),
    "<<": (cst.LeftShift, 10),
    ">>": (cst.RightShift, 10),
    "+": (cst.Add, 11),
    "-": (cst.Subtract, 11),
    "*": (cst.Multiply, 12),
    "/": (cst.Divide, 12),
    "//": (cst.FloorDivide, 12),
    "%": (cst.Modulo, 12),
    "@": (cst.MatrixMultiply, 12),
    "**": (cst.Power, 14),
}
_COMPARE: dict[str, type[cst.BaseCompOp]] = {
    "<": cst.LessThan,
    "<=": cst.LessThanEqual,
    ">": cst.GreaterThan,
    ">=": cst.GreaterThanEqual,
    "==": cst.Equal,
    "!=": cst.NotEqual,
    "in": cst.In,
    "not in": cst.NotIn,
    "is": cst.Is,
    "is not": cst.IsNot,
}
_UNARY: dict[str, type[cst.BaseUnaryOp]] = {"-": cst.Minus, "+": cst.Plus, "~": cst.BitInvert, "not": cst.Not}
ATOM, UNARY_LEVEL, COMPARE_LEVEL, CONDITIONAL_LEVEL = 16, 13, 6, 2


def emit_function(
    unit: FunctionUnit, root: tree.FunctionDef | tree.Lambda, torch: str = "torch", helper: str = "any_active"
) -> str:
    """The text of the function's slice for the changed tree.

    ``torch`` is the expression under which the module reaches torch, ``helper`` that for ``any_active``.
    """
    if root is unit.root:
        return unit.text
    emitter = _Emitter(unit, torch, helper)
    if isinstance(root, tree.Lambda):
        return cst.Module([]).code_for_node(_bare(emitter.expr(root)))
    node = emitter.statement(root)
    code = cast(cst.Module, unit.module.deep_replace(unit.node, node)).code
    return code[len(unit.prefix) :]


def _level(node: cst.BaseExpression) -> int:
    """How tightly the expression binds, 16 for atoms."""
    if node.lpar:
        return ATOM
    if isinstance(node, cst.Tuple | cst.Yield):
        return -1
    if isinstance(node, cst.NamedExpr):
        return 0
    if isinstance(node, cst.Lambda):
        return 1
    if isinstance(node, cst.IfExp):
        return CONDITIONAL_LEVEL
    if isinstance(node, cst.BooleanOperation):
        return 3 if isinstance(node.operator, cst.Or) else 4
    if isinstance(node, cst.UnaryOperation):
        return 5 if isinstance(node.operator, cst.Not) else UNARY_LEVEL
    if isinstance(node, cst.Comparison):
        return COMPARE_LEVEL
    if isinstance(node, cst.BinaryOperation):
        return next(level for kind, level in _BINARY.values() if isinstance(node.operator, kind))
    if isinstance(node, cst.Await):
        return 15
    return ATOM


def _bracketed(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Without its own outer parentheses, where they are not needed to go on over lines."""
    if not node.lpar or isinstance(node, cst.GeneratorExp) or _spans_lines(node):
        return node
    if isinstance(node, cst.Tuple) and not node.elements:
        return node
    return node.with_changes(lpar=[], rpar=[])


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _spans_lines(node: cst.CSTNode) -> bool:
    code = _code(node)
    return "\n" in code or "\r" in code


def _on_one_line(node: cst.BaseExpression) -> cst.BaseExpression:
    """With parentheses of its own where it goes on over lines outside any bracket."""
    if node.lpar or not _spans_lines(node):
        return node
    try:
        ast.parse(_code(node).strip(), mode="eval")
    except SyntaxError:
        return _bracketed(node)
    return node


def _dotted(name: str) -> cst.BaseExpression:
    first, *rest = name.split(".")
    node: cst.BaseExpression = cst.Name(first)
    for part in rest:
        node = cst.Attribute(node, cst.Name(part))
    return node


def _comments(node: cst.CSTNode) -> list[str]:
    found: list[str] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, cst.Comment):
            found.append(top.value)
        stack.extend(reversed(top.children))
    return found


@dataclass
class _Emitter:
    unit: FunctionUnit
    torch: str
    helper: str
    originals: set[tree.Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.originals = set(tree.walk(self.unit.root))

    # --- expressions ------------------------------------------------------------------------

    def fit(self, node: tree.Expr, level: int, bare: bool = False) -> cst.BaseExpression:
        """The expression for a slot that takes what binds at least this tightly.

        ``bare`` drops parentheses that only the old place asked for.
        """
        made = self.expr(node)
        if bare and made.lpar:
            without = _bare(made)
            if _level(without) >= max(level, 0):
                made = without
        if _level(made) < level:
            return _bracketed(made)
        return made

    def expr(self, node: tree.Expr) -> cst.BaseExpression:
        origin = node.origin
        if node in self.originals and origin is not None and isinstance(origin, cst.BaseExpression):
            return origin
        maker = getattr(self, "_" + type(node).__name__.lower())
        return cast(cst.BaseExpression, maker(node, origin if isinstance(origin, cst.BaseExpression) else None))

    def _name(self, node: tree.Name, origin: cst.Name | None) -> cst.BaseExpression:
        if isinstance(origin, cst.Name):
            return origin if origin.value == node.id else origin.with_changes(value=node.id)
        return cst.Name(node.id)

    def _constant(self, node: tree.Constant, origin: Any) -> cst.BaseExpression:
        if origin is not None:
            return cast(cst.BaseExpression, origin)
        value = node.value
        if value is Ellipsis:
            return cst.Ellipsis()
        if value is None or isinstance(value, bool):
            return cst.Name(str(value))
        if isinstance(value, int | float) and (value < 0 or (isinstance(value, float) and str(value)[0] == "-")):
            return cst.UnaryOperation(cst.Minus(), self._constant(tree.Constant(-value), None))
        if isinstance(value, int):
            return cst.Integer(str(value))
        if isinstance(value, float):
            return cst.Float(repr(value))
        if isinstance(value, str):
            return cst.SimpleString(
                '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if value.isprintable() else repr(value)
            )
        return cst.parse_expression(repr(value))

    def _torchname(self, node: tree.TorchName, origin: Any) -> cst.BaseExpression:
        return cst.Attribute(_dotted(self.torch), cst.Name(node.name))

    def _helpername(self, node: tree.HelperName, origin: Any) -> cst.BaseExpression:
        return _dotted(self.helper)

    def _attribute(self, node: tree.Attribute, origin: cst.Attribute | None) -> cst.BaseExpression:
        value = self.fit(node.value, ATOM)
        if isinstance(value, cst.Integer | cst.Float) and not value.lpar:
            value = _bracketed(value)
        if origin is not None:
            return origin.with_changes(value=value)
        return cst.Attribute(value, cst.Name(node.attr))

    def _call(self, node: tree.Call, origin: cst.Call | None) -> cst.BaseExpression:
        func = self.fit(node.func, ATOM)
        same = (
            origin is not None
            and len(origin.args) == len(node.args)
            and all(a.origin is b for a, b in zip(node.args, origin.args, strict=True))
        )
        if same:
            assert origin is not None
            return origin.with_changes(
                func=func, args=[self.argument(a, b) for a, b in zip(node.args, origin.args, strict=True)]
            )
        return cst.Call(func, self.fresh_args(node.args))

    def argument(self, node: tree.Argument, origin: cst.Arg) -> cst.Arg:
        if node in self.originals:
            return origin
        value = self.fit(node.value, 0)
        return origin if value is origin.value else origin.with_changes(value=value)

    def fresh_args(self, args: Sequence[tree.Argument]) -> list[cst.Arg]:
        made = []
        alone = len(args) == 1 and args[0].keyword is None and not args[0].star
        for k, a in enumerate(args):
            value = self.fit(a.value, 0, bare=True)
            if isinstance(value, cst.GeneratorExp) and not value.lpar and not alone:
                value = _bracketed(value)
            comma = (
                cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                if k < len(args) - 1
                else cst.MaybeSentinel.DEFAULT
            )
            made.append(
                cst.Arg(
                    value,
                    keyword=cst.Name(a.keyword) if a.keyword is not None else None,
                    equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
                    if a.keyword
                    else cst.MaybeSentinel.DEFAULT,
                    star=cast(Any, a.star),
                    comma=comma,
                )
            )
        return made

    def _select(self, node: tree.Select, origin: Any) -> cst.BaseExpression:
        arguments = [tree.Argument(a) for a in (node.mask, node.chosen, node.other)]
        return cst.Call(cst.Attribute(_dotted(self.torch), cst.Name("where")), self.fresh_args(arguments))

    def _subscript(self, node: tree.Subscript, origin: cst.Subscript | None) -> cst.BaseExpression:
        value = self.fit(node.value, ATOM)
        old = origin.slice if origin is not None and len(origin.slice) == len(node.items) else None
        elements = []
        for k, item in enumerate(node.items):
            before = old[k] if old is not None else None
            last = k == len(node.items) - 1
            comma: Any = cst.MaybeSentinel.DEFAULT
            if not last:
                comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            elif node.is_tuple and len(node.items) == 1:
                comma = cst.Comma()
            part = self.index(item, before)
            elements.append(
                before.with_changes(slice=part) if before is not None else cst.SubscriptElement(part, comma)
            )
        if origin is not None:
            return origin.with_changes(value=value, slice=elements)
        return cst.Subscript(value, elements)

    def index(self, item: tree.Expr, before: cst.SubscriptElement | None) -> cst.BaseSlice:
        if item in self.originals and before is not None:
            return before.slice
        if isinstance(item, tree.Slice):
            parts = [
                self.fit(p, CONDITIONAL_LEVEL) if p is not None else None for p in (item.lower, item.upper, item.step)
            ]
            if isinstance(item.origin, cst.Slice):
                return item.origin.with_changes(lower=parts[0], upper=parts[1], step=parts[2])
            return cst.Slice(parts[0], parts[1], parts[2])
        if isinstance(item, tree.Starred):
            return cst.Index(self.fit(item.value, 7), star="*")
        made = self.fit(item, -1 if before is None else 0, bare=True)
        return cst.Index(made)

    def _unary(self, node: tree.Unary, origin: cst.UnaryOperation | None) -> cst.BaseExpression:
        operand = self.fit(node.operand, 5 if node.op == "not" else UNARY_LEVEL)
        if origin is not None:
            return origin.with_changes(expression=operand)
        return cst.UnaryOperation(_UNARY[node.op](), operand)

    def _binary(self, node: tree.Binary, origin: Any) -> cst.BaseExpression:
        kind, level = _BINARY[node.op]
        right_binds = node.op == "**"
        left = self.fit(node.left, level + right_binds)
        right = self.fit(node.right, UNARY_LEVEL if right_binds else level + 1)
        if isinstance(origin, cst.BinaryOperation):
            return origin.with_changes(left=left, right=right)
        return cst.BinaryOperation(left, kind(), right)

    def _boolop(self, node: tree.BoolOp, origin: Any) -> cst.BaseExpression:
        level = 3 if node.op == "or" else 4
        left, right = self.fit(node.left, level), self.fit(node.right, level + 1)
        if isinstance(origin, cst.BooleanOperation):
            return origin.with_changes(left=left, right=right)
        return cst.BooleanOperation(left, cst.Or() if node.op == "or" else cst.And(), right)

    def _compare(self, node: tree.Compare, origin: Any) -> cst.BaseExpression:
        left = self.fit(node.left, COMPARE_LEVEL + 1)
        rest = [self.fit(r, COMPARE_LEVEL + 1) for r in node.rest]
        if isinstance(origin, cst.Comparison) and len(origin.comparisons) == len(rest):
            targets = [c.with_changes(comparator=r) for c, r in zip(origin.comparisons, rest, strict=True)]
            return origin.with_changes(left=left, comparisons=targets)
        return cst.Comparison(
            left, [cst.ComparisonTarget(_COMPARE[op](), r) for op, r in zip(node.ops, rest, strict=True)]
        )

    def _conditional(self, node: tree.Conditional, origin: Any) -> cst.BaseExpression:
        body, test, orelse = self.fit(node.body, 3), self.fit(node.test, 3), self.fit(node.orelse, CONDITIONAL_LEVEL)
        if isinstance(origin, cst.IfExp):
            return origin.with_changes(body=body, test=test, orelse=orelse)
        return cst.IfExp(test, body, orelse)

    def _elements(self, items: Sequence[tree.Expr], origin: Any) -> list[cst.BaseElement]:
        old = origin.elements if origin is not None and len(origin.elements) == len(items) else None
        made: list[cst.BaseElement] = []
        for k, item in enumerate(items):
            starred = isinstance(item, tree.Starred)
            value = self.fit(item.value, 7) if isinstance(item, tree.Starred) else self.fit(item, 0, bare=old is None)
            if old is not None and isinstance(old[k], cst.StarredElement) == starred:
                made.append(old[k].with_changes(value=value))
            else:
                comma: Any = (
                    cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                    if k < len(items) - 1
                    else cst.MaybeSentinel.DEFAULT
                )
                made.append(cst.StarredElement(value, comma=comma) if starred else cst.Element(value, comma=comma))
        return made

    def _tuple(self, node: tree.Tuple, origin: Any) -> cst.BaseExpression:
        elements = self._elements(node.items, origin)
        if isinstance(origin, cst.Tuple):
            return origin.with_changes(elements=elements)
        return cst.Tuple(elements)

    def _list(self, node: tree.List, origin: Any) -> cst.BaseExpression:
        elements = self._elements(node.items, origin)
        return origin.with_changes(elements=elements) if isinstance(origin, cst.List) else cst.List(elements)

    def _set(self, node: tree.Set, origin: Any) -> cst.BaseExpression:
        elements = self._elements(node.items, origin)
        return origin.with_changes(elements=elements) if isinstance(origin, cst.Set) else cst.Set(elements)

    def _dict(self, node: tree.Dict, origin: Any) -> cst.BaseExpression:
        old = origin.elements if isinstance(origin, cst.Dict) and len(origin.elements) == len(node.values) else None
        made: list[cst.BaseDictElement] = []
        for k, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            comma: Any = (
                cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                if k < len(node.values) - 1
                else cst.MaybeSentinel.DEFAULT
            )
            if key is None:
                part = self.fit(value, 7)
                made.append(
                    old[k].with_changes(value=part) if old is not None else cst.StarredDictElement(part, comma=comma)
                )
            else:
                parts = self.fit(key, CONDITIONAL_LEVEL), self.fit(value, 1)
                made.append(
                    old[k].with_changes(key=parts[0], value=parts[1])
                    if old is not None
                    else cst.DictElement(*parts, comma=comma)
                )
        return origin.with_changes(elements=made) if old is not None else cst.Dict(made)

    def _starred(self, node: tree.Starred, origin: Any) -> cst.BaseExpression:
        return self.fit(node.value, 7)

    def _walrus(self, node: tree.Walrus, origin: Any) -> cst.BaseExpression:
        value = self.fit(node.value, 1)
        target = self.expr(node.target)
        if isinstance(origin, cst.NamedExpr):
            return origin.with_changes(target=target, value=value)
        return _bracketed(cst.NamedExpr(cast(cst.Name, target), value))

    def _lambda(self, node: tree.Lambda, origin: cst.Lambda | None) -> cst.BaseExpression:
        assert origin is not None
        return origin.with_changes(body=self.fit(node.body, 1), params=self.parameters(node.params, origin.params))

    def _comprehension(self, node: tree.Comprehension, origin: Any) -> cst.BaseExpression:
        if origin is not None and not isinstance(origin, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
            origin = None
        clauses = self.clauses(node.clauses)
        element = self.fit(node.element, 1)
        if isinstance(origin, cst.DictComp):
            assert node.key is not None
            return origin.with_changes(key=self.fit(node.key, 1), value=element, for_in=clauses)
        made = {"list": cst.ListComp, "set": cst.SetComp, "generator": cst.GeneratorExp}[node.form]
        if isinstance(origin, made):
            return origin.with_changes(elt=element, for_in=clauses)
        return cast(cst.BaseExpression, made(element, clauses))

    def clauses(self, clauses: tuple[tree.Clause, ...]) -> cst.CompFor:
        first, rest = clauses[0], clauses[1:]
        origin = first.origin
        assert isinstance(origin, cst.CompFor)
        ifs = [i.with_changes(test=self.fit(c, 3)) for i, c in zip(origin.ifs, first.conditions, strict=True)]
        return origin.with_changes(
            target=origin.target if first.target in self.originals else self.expr(first.target),
            iter=self.fit(first.iter, 3),
            ifs=ifs,
            inner_for_in=self.clauses(rest) if rest else None,
        )

    def _opaqueexpr(self, node: tree.OpaqueExpr, origin: cst.BaseExpression | None) -> cst.BaseExpression:
        assert origin is not None
        old: list[cst.BaseExpression] = []

        def visit(part: cst.CSTNode) -> None:
            for child in part.children:
                if isinstance(child, cst.BaseExpression):
                    old.append(child)
                else:
                    visit(child)

        visit(origin)
        made: Any = origin
        for before, child in zip(old, node.children, strict=True):
            after = self.expr(child)
            if after is not before:
                made = made.deep_replace(before, after)
        return cast(cst.BaseExpression, made)

    def parameters(self, params: tuple[tree.Parameter, ...], origin: cst.Parameters) -> cst.Parameters:
        made: Any = origin
        for p in params:
            if p in self.originals or p.default is None or not isinstance(p.origin, cst.Param):
                continue
            default = self.fit(p.default, 1)
            if default is not p.origin.default:
                made = made.deep_replace(p.origin, p.origin.with_changes(default=default))
        return cast(cst.Parameters, made)

    # --- statements -------------------------------------------------------------------------

    def block(self, stmts: tree.Block, origin: cst.BaseSuite | None) -> cst.BaseSuite:
        lines = self.lines(stmts)
        if isinstance(origin, cst.SimpleStatementSuite):
            small = [s for line in lines if isinstance(line, cst.SimpleStatementLine) for s in line.body]
            quiet = all(isinstance(line, cst.SimpleStatementLine) and not line.leading_lines for line in lines)
            if quiet and len(small) == len(origin.body) == len(lines):
                return origin.with_changes(body=small)
            return cst.IndentedBlock(lines, indent=self.indent)
        if isinstance(origin, cst.IndentedBlock):
            return origin.with_changes(body=lines)
        return cst.IndentedBlock(lines, indent=self.indent)

    @property
    def indent(self) -> str | None:
        body = self.unit.node.body
        return body.indent if isinstance(body, cst.IndentedBlock) else None

    def lines(self, stmts: Sequence[tree.Stmt]) -> list[cst.BaseStatement]:
        """The statements as lines; small ones that shared a line and are unchanged together still do."""
        made: list[cst.BaseStatement] = []
        k = 0
        while k < len(stmts):
            shared = self.shared_line(stmts, k)
            if shared is not None:
                made.append(shared)
                k += len(shared.body)
                continue
            made.append(self.statement(stmts[k]))
            k += 1
        return made or [cst.SimpleStatementLine([cst.Pass()])]

    def shared_line(self, stmts: Sequence[tree.Stmt], k: int) -> cst.SimpleStatementLine | None:
        origin = stmts[k].origin
        if not isinstance(origin, tuple):
            return None
        _, line = origin
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) < 2:
            return None
        group = stmts[k : k + len(line.body)]
        if len(group) < len(line.body) or any(
            not isinstance(s.origin, tuple) or s.origin[0] is not b or s.carries
            for s, b in zip(group, line.body, strict=True)
        ):
            return None
        small = [self.small(s) for s in group]
        return line if all(a.deep_equals(b) for a, b in zip(small, line.body, strict=True)) else None

    def statement(self, stmt: tree.Stmt) -> cst.BaseStatement:
        if (
            stmt in self.originals
            and not stmt.carries
            and not isinstance(stmt.origin, tuple)
            and stmt.origin is not None
        ):
            return cast(cst.BaseStatement, stmt.origin)
        made: cst.BaseStatement
        if isinstance(stmt, tree.If | tree.For | tree.While | tree.With | tree.FunctionDef):
            made = self.compound(stmt)
        elif isinstance(stmt, tree.OpaqueStmt) and not isinstance(stmt.origin, tuple):
            made = cast(cst.BaseStatement, stmt.origin)
        else:
            made = self.line(stmt)
        return self.with_comments(made, stmt)

    def line(self, stmt: tree.Stmt) -> cst.BaseStatement:
        small = self.small(stmt)
        if isinstance(stmt.origin, tuple):
            before, line = stmt.origin
            if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                return line if small is before else line.with_changes(body=[self.valid(small)])
            leading: Iterable[cst.EmptyLine] = ()
            if isinstance(line, cst.SimpleStatementLine) and line.body[0] is before:
                leading = line.leading_lines
            trailing = line.trailing_whitespace if line.body[-1] is before else cst.TrailingWhitespace()
            bare = small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            return cst.SimpleStatementLine(
                [self.valid(bare)], leading_lines=list(leading), trailing_whitespace=trailing
            )
        return cst.SimpleStatementLine([self.valid(small)])

    def valid(self, small: cst.BaseSmallStatement) -> cst.BaseSmallStatement:
        """A value that went on over lines inside brackets of its old place gets its own."""
        code = _code(small)
        if "\n" not in code and "\r" not in code:
            return small
        try:
            ast.parse(
                code.replace("await ", "").replace("yield ", "") if "return" not in code else f"def f():\n {code}"
            )
            return small
        except SyntaxError:
            pass
        value = getattr(small, "value", None)
        if isinstance(value, cst.BaseExpression):
            return small.with_changes(value=_bracketed(value))
        return small

    def with_comments(self, made: cst.BaseStatement, stmt: tree.Stmt) -> cst.BaseStatement:
        """Puts above the statement the comments of those that went into it."""
        if not stmt.carries:
            return made
        have = _comments(made)
        lines: list[cst.EmptyLine] = []
        for source in stmt.carries:
            for comment in _own_comments(source):
                if comment in have:
                    have.remove(comment)
                else:
                    lines.append(cst.EmptyLine(comment=cst.Comment(comment)))
        old = list(getattr(made, "leading_lines", ()))
        first = _leading(stmt.carries[0])
        blank = (
            [cst.EmptyLine(indent=False)]
            if first and first[0].comment is None and not (old and old[0].comment is None)
            else []
        )
        return made.with_changes(leading_lines=[*blank, *lines, *old])

    def small(self, stmt: tree.Stmt) -> cst.BaseSmallStatement:
        origin = stmt.origin[0] if isinstance(stmt.origin, tuple) else None
        if stmt in self.originals and origin is not None:
            return cast(cst.BaseSmallStatement, origin)
        if isinstance(stmt, tree.Assign):
            return self.assign(stmt, origin)
        if isinstance(stmt, tree.AnnAssign):
            value = self.fit(stmt.value, -1) if stmt.value is not None else None
            return cast(cst.BaseSmallStatement, origin.with_changes(target=self.expr(stmt.target), value=value))  # type: ignore[union-attr]
        if isinstance(stmt, tree.AugAssign):
            parts = {"target": self.expr(stmt.target), "value": self.fit(stmt.value, 0)}
            assert origin is not None
            return cast(cst.BaseSmallStatement, origin.with_changes(**parts))
        if isinstance(stmt, tree.ExprStmt):
            value = self.fit(stmt.value, 0)
            return cast(
                cst.BaseSmallStatement, origin.with_changes(value=value) if origin is not None else cst.Expr(value)
            )
        if isinstance(stmt, tree.Return):
            if stmt.value is None:
                return cst.Return(None)
            if isinstance(origin, cst.Return) and origin.value is not None:
                value = self.fit(stmt.value, -1)
                return origin if value is origin.value else origin.with_changes(value=value)
            return cst.Return(self.fit(stmt.value, -1, bare=True))
        if isinstance(stmt, tree.Break | tree.Continue | tree.Pass):
            plain: dict[type[tree.Stmt], cst.BaseSmallStatement] = {
                tree.Break: cst.Break(),
                tree.Continue: cst.Continue(),
                tree.Pass: cst.Pass(),
            }
            return plain[type(stmt)]
        if isinstance(stmt, tree.Assert):
            assert isinstance(origin, cst.Assert)
            message = self.fit(stmt.message, 0) if stmt.message is not None else None
            return origin.with_changes(test=self.fit(stmt.test, 0), msg=message)
        if isinstance(stmt, tree.Raise):
            assert isinstance(origin, cst.Raise)
            return origin.with_changes(exc=self.fit(stmt.exc, 0) if stmt.exc is not None else None)
        assert origin is not None
        return cast(cst.BaseSmallStatement, origin)

    def assign(self, stmt: tree.Assign, origin: Any) -> cst.BaseSmallStatement:
        if isinstance(origin, cst.Assign) and len(origin.targets) == len(stmt.targets):
            value = self.fit(stmt.value, -1)
            if value is not origin.value:
                value = self.fit(stmt.value, -1)
            targets = [t.with_changes(target=self.expr(e)) for t, e in zip(origin.targets, stmt.targets, strict=True)]
            same = value is origin.value and all(
                a.target is b.target for a, b in zip(targets, origin.targets, strict=True)
            )
            return origin if same else origin.with_changes(targets=targets, value=value)
        value = self.fit(stmt.value, -1, bare=True)
        return cst.Assign([cst.AssignTarget(cast(Any, self.expr(t))) for t in stmt.targets], value)

    def compound(self, stmt: tree.Stmt) -> cst.BaseStatement:
        origin: Any = stmt.origin if isinstance(stmt.origin, cst.BaseStatement) else None
        if isinstance(stmt, tree.If):
            test = _on_one_line(self.fit(stmt.test, 0, bare=origin is None))
            body = self.block(stmt.body, origin.body if origin is not None else None)
            orelse = self.orelse_of_if(stmt, origin)
            if isinstance(origin, cst.If):
                return origin.with_changes(test=test, body=body, orelse=orelse)
            return cst.If(test, body, orelse)
        if isinstance(stmt, tree.For):
            orelse_block = self.orelse(stmt.orelse, origin)
            if isinstance(origin, cst.For):
                body = self.block(stmt.body, origin.body)
                return origin.with_changes(
                    target=self.expr(stmt.target),
                    iter=_on_one_line(self.fit(stmt.iter, -1)),
                    body=body,
                    orelse=orelse_block,
                )
            return cst.For(
                cast(Any, self.expr(stmt.target)), self.fit(stmt.iter, 0), self.block(stmt.body, None), orelse_block
            )
        if isinstance(stmt, tree.While):
            body = self.block(stmt.body, origin.body if isinstance(origin, cst.While) else None)
            test = _on_one_line(self.fit(stmt.test, 0))
            orelse_block = self.orelse(stmt.orelse, origin)
            if isinstance(origin, cst.While):
                return origin.with_changes(test=test, body=body, orelse=orelse_block)
            return cst.While(test, body, orelse_block)
        if isinstance(stmt, tree.With):
            assert isinstance(origin, cst.With)
            items = [o.with_changes(item=self.fit(i.context, 0)) for o, i in zip(origin.items, stmt.items, strict=True)]
            return origin.with_changes(items=items, body=self.block(stmt.body, origin.body))
        assert isinstance(stmt, tree.FunctionDef)
        assert isinstance(origin, cst.FunctionDef)
        params = self.parameters(stmt.params, origin.params)
        return origin.with_changes(body=self.block(stmt.body, origin.body), params=params)

    def orelse(self, block: tree.Block, origin: Any) -> cst.Else | None:
        if not block:
            return None
        old = getattr(origin, "orelse", None)
        if isinstance(old, cst.Else):
            return old.with_changes(body=self.block(block, old.body))
        return cst.Else(self.block(block, None))

    def orelse_of_if(self, stmt: tree.If, origin: Any) -> cst.If | cst.Else | None:
        old = getattr(origin, "orelse", None)
        if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], tree.If) and isinstance(old, cst.If):
            inner = stmt.orelse[0]
            if inner.origin is old:
                return cast(cst.If, self.statement(replace(inner, carries=inner.carries)))
        return self.orelse(stmt.orelse, origin if isinstance(old, cst.Else) else None)


def _leading(source: Any) -> Sequence[cst.EmptyLine]:
    if isinstance(source, tuple):
        small, line = source
        return line.leading_lines if isinstance(line, cst.SimpleStatementLine) and line.body[0] is small else ()
    return cast(Sequence[cst.EmptyLine], getattr(source, "leading_lines", ()))


def _own_comments(source: Any) -> list[str]:
    """The comments of a statement itself, in source order: not those of the statements inside it."""
    found = [line.comment.value for line in _leading(source) if line.comment is not None]
    if isinstance(source, tuple):
        small, line = source
        found += _comments(small)
        if line.body[-1] is small:
            found += _comments(line.trailing_whitespace)
        return found
    for child in source.children:
        if isinstance(child, cst.EmptyLine):
            continue
        if isinstance(child, cst.IndentedBlock):
            found += _comments(child.header)
            found += [line.comment.value for line in child.footer if line.comment is not None]
        elif isinstance(child, cst.If):
            continue
        elif isinstance(child, cst.Else):
            found += [line.comment.value for line in child.leading_lines if line.comment is not None]
            if isinstance(child.body, cst.IndentedBlock):
                found += _comments(child.body.header)
                found += [line.comment.value for line in child.body.footer if line.comment is not None]
        elif not isinstance(child, cst.SimpleStatementSuite):
            found += _comments(child)
    return found


def add_import(text: str, module: ast.Module, line: str) -> str:
    """The text with an import after the docstring and ``__future__`` imports, before the first other import."""
    newline = "\r\n" if "\r\n" in text else "\n"
    after = 0
    before: int | None = None
    for stmt in module.body:
        docstring = (
            isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
        )
        future = isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
        if docstring or future:
            after = stmt.end_lineno or after
            continue
        if isinstance(stmt, ast.Import | ast.ImportFrom):
            before = stmt.lineno
        break
    lines = (
        text.splitlines(keepends=True) if newline == "\n" or "\r" not in text.replace("\r\n", "") else text.split("\n")
    )
    if before is not None:
        last = before
        for stmt in module.body:
            if isinstance(stmt, ast.Import | ast.ImportFrom) and stmt.lineno >= before:
                last = stmt.end_lineno or last
            elif stmt.lineno > before:
                break
        if line.startswith("from"):
            lines.insert(last, line + newline)
        else:
            lines.insert(before - 1, line + newline)
        return "".join(lines)
    comments = after
    if after == 0:
        while comments < len(lines) and lines[comments].startswith("#"):
            comments += 1
    gap = [] if after == 0 else [newline]
    lines[comments:comments] = [*gap, line + newline, *([newline] if after == 0 else [])]
    return "".join(lines)
