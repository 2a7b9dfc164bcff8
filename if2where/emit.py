"""From a changed region tree back to the text of its function, in the original's own layout.

What has not changed is printed as it was written. What is new is laid out in the usual style; the
comments of the statements that went into it stand above it, and no comment is lost or printed twice.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from typing import Any, TypeVar, cast

import libcst as cst

from if2where.module import Positions, newline_of
from if2where.region import tree
from if2where.region.build import FunctionUnit, parts

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
_AUGMENTED: dict[str, type[cst.BaseAugOp]] = {
    "|": cst.BitOrAssign,
    "^": cst.BitXorAssign,
    "&": cst.BitAndAssign,
    "<<": cst.LeftShiftAssign,
    ">>": cst.RightShiftAssign,
    "+": cst.AddAssign,
    "-": cst.SubtractAssign,
    "*": cst.MultiplyAssign,
    "/": cst.DivideAssign,
    "//": cst.FloorDivideAssign,
    "%": cst.ModuloAssign,
    "@": cst.MatrixMultiplyAssign,
    "**": cst.PowerAssign,
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
_BOOLEAN: dict[str, type[cst.BaseBooleanOp]] = {"or": cst.Or, "and": cst.And}

# How tightly an expression binds, and what a place asks for. ANY takes all, LIST all but a yield; neither
# takes a bare ``:=``, which only NAMED does. EXPRESSION and above are grammar levels in the usual order.
ANY, LIST, NAMED, EXPRESSION, CONDITIONAL, OR, AND, NOT, COMPARE = -2, -1, 0, 1, 2, 3, 4, 5, 6
BIT_OR, UNARY, AWAIT, ATOM = 7, 13, 15, 16
_NEVER = -3

_CstT = TypeVar("_CstT", bound=cst.CSTNode)


def emit_function(
    unit: FunctionUnit, root: tree.FunctionDef | tree.Lambda, torch: str = "torch", helper: str = "any_active"
) -> str:
    """The text of the function's slice for the changed tree.

    ``torch`` is the expression under which the module reaches torch, ``helper`` that for ``any_active``.
    """
    if root is unit.root:
        return unit.text
    if isinstance(root, tree.FunctionDef) and not root.body:
        root = replace(root, body=(tree.Pass(),))
    comments = _Comments.of(unit.node)
    node = _Emitter(unit, torch, helper).root(root)
    lost = comments.lost(node)
    if lost and isinstance(root, tree.Lambda):
        node = _above_body(cst.ensure_type(node, cst.Lambda), [c.text for c in lost])
    elif lost and isinstance(root, tree.FunctionDef):
        # Once more, now that it is known which comments no statement brought along.
        node = _Emitter(unit, torch, helper, comments.places(lost, root), comments.index).root(root)
    if isinstance(root, tree.Lambda):
        return _code(node)
    return cast(cst.Module, _swap(unit.module, {id(unit.node): node})).code[len(unit.prefix) :]


# --- expressions: levels, parentheses -------------------------------------------------------


def _level(node: cst.BaseExpression) -> int:
    """How tightly the expression binds."""
    if isinstance(node, cst.GeneratorExp) and not node.lpar:
        return _NEVER
    if node.lpar:
        return ATOM
    if isinstance(node, cst.Yield):
        return ANY
    if isinstance(node, cst.Tuple):
        return LIST
    if isinstance(node, cst.NamedExpr):
        return NAMED
    if isinstance(node, cst.Lambda):
        return EXPRESSION
    if isinstance(node, cst.IfExp):
        return CONDITIONAL
    if isinstance(node, cst.BooleanOperation):
        return OR if isinstance(node.operator, cst.Or) else AND
    if isinstance(node, cst.UnaryOperation):
        return NOT if isinstance(node.operator, cst.Not) else UNARY
    if isinstance(node, cst.Comparison):
        return COMPARE
    if isinstance(node, cst.BinaryOperation):
        return next(level for kind, level in _BINARY.values() if isinstance(node.operator, kind))
    if isinstance(node, cst.Await):
        return AWAIT
    return ATOM


def _fits(node: cst.BaseExpression, level: int) -> bool:
    own = _level(node)
    return level == NAMED if own == NAMED else own >= level


def _bracketed(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Without its own outer parentheses, where they are not needed to go on over lines."""
    if not node.lpar or isinstance(node, cst.GeneratorExp) or _spans_lines(node):
        return node
    if isinstance(node, cst.Tuple):
        if not node.elements or any(_level(e.value) == NAMED for e in node.elements):
            return node
    return node.with_changes(lpar=[], rpar=[])


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _spans_lines(node: cst.CSTNode) -> bool:
    code = _code(node)
    return "\n" in code or "\r" in code


def _on_one_line(node: cst.BaseExpression) -> cst.BaseExpression:
    """With parentheses of its own where it goes on over lines outside any bracket."""
    inner = node.value if isinstance(node, cst.Yield) else node
    if node.lpar or not _spans_lines(node):
        return node
    try:
        ast.parse(_code(inner).strip() if inner is not None else "", mode="eval")
    except SyntaxError:
        return _bracketed(node)
    return node


def _with(origin: _CstT, **changes: Any) -> _CstT:
    """The origin with these children; itself where they are its own.

    Where it left out a space before a bracket, the new child gets a bracket too.
    """
    if all(_is_same(getattr(origin, k), v) for k, v in changes.items()):
        return origin
    try:
        return origin.with_changes(**changes)
    except cst.CSTValidationError:
        pass
    safe = dict(changes)
    for k, v in changes.items():
        if isinstance(v, cst.BaseExpression) and v is not getattr(origin, k) and not v.lpar:
            safe[k] = _bracketed(v)
    try:
        return origin.with_changes(**safe)
    except cst.CSTValidationError:
        for f in fields(cast(Any, origin)):
            space = getattr(origin, f.name)
            if f.name.startswith("whitespace") and isinstance(space, cst.SimpleWhitespace) and not space.value:
                safe[f.name] = cst.SimpleWhitespace(" ")
        return origin.with_changes(**safe)


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(new, list | tuple):
        return (
            isinstance(old, list | tuple)
            and len(old) == len(new)
            and all(a is b for a, b in zip(old, new, strict=True))
        )
    return old is new


def _swap(node: cst.CSTNode, new: Mapping[int, cst.CSTNode]) -> cst.CSTNode:
    """The node with those of the given identities replaced; what holds none of them stays the same object."""
    if id(node) in new:
        return new[id(node)]
    changes: dict[str, Any] = {}
    for f in fields(cast(Any, node)):
        old = getattr(node, f.name)
        if isinstance(old, cst.CSTNode):
            made: Any = _swap(old, new)
            if made is not old:
                changes[f.name] = made
        elif isinstance(old, list | tuple) and old and isinstance(old[0], cst.CSTNode):
            made = [_swap(item, new) for item in old]
            if any(a is not b for a, b in zip(made, old, strict=True)):
                changes[f.name] = made
    return _with(node, **changes) if changes else node


def _dotted(name: str) -> cst.BaseExpression:
    first, *rest = name.split(".")
    node: cst.BaseExpression = cst.Name(first)
    for part in rest:
        node = cst.Attribute(node, cst.Name(part))
    return node


def _comma(k: int, items: Sequence[Any]) -> Any:
    """What follows the k-th of new items."""
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")) if k < len(items) - 1 else cst.MaybeSentinel.DEFAULT


def _asynchronous(node: Any, origin: Any) -> cst.Asynchronous | None:
    if not node.is_async:
        return None
    return getattr(origin, "asynchronous", None) or cst.Asynchronous()


def _key(origin: Any) -> int:
    """The identity of the statement behind an origin: a compound statement, or a small one with its line."""
    return id(origin[0]) if isinstance(origin, tuple) else id(origin)


@dataclass
class _Emitter:
    """``above`` says which comments stand above which statement, ``index`` where in the original a comment stood."""

    unit: FunctionUnit
    torch: str
    helper: str
    above: Mapping[tree.Stmt, Sequence[_Comment]] = field(default_factory=dict)
    index: Mapping[int, int] = field(default_factory=dict)
    originals: set[tree.Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.originals = set(tree.walk(self.unit.root))

    def root(self, root: tree.FunctionDef | tree.Lambda) -> cst.CSTNode:
        if isinstance(root, tree.FunctionDef):
            return self.statement(root)
        node = self.expr(root)
        # The parsed slice stood in a parenthesis that is not the function's own.
        return node.with_changes(lpar=node.lpar[1:], rpar=node.rpar[:-1]) if root.origin is self.unit.node else node

    # --- expressions ------------------------------------------------------------------------

    def fit(
        self, node: tree.Expr, level: int, before: cst.CSTNode | None = None, bare: bool = False
    ) -> cst.BaseExpression:
        """The expression for a place that takes what binds at least this tightly; ``before`` stood there.

        ``bare`` drops parentheses that only another place asked for.
        """
        made = self.expr(node)
        if made is before:
            return made
        if bare and made.lpar and (before is None or node.origin is not before):
            without = _bare(made)
            if _fits(without, level):
                made = without
        return made if _fits(made, level) else _bracketed(made)

    def standing(
        self, node: tree.Expr, level: int, before: cst.CSTNode | None = None, bare: bool = True
    ) -> cst.BaseExpression:
        """As ``fit``, for a place outside all brackets."""
        made = self.fit(node, level, before, bare)
        return made if made is before else _on_one_line(made)

    def expr(self, node: tree.Expr) -> cst.BaseExpression:
        origin = node.origin if isinstance(node.origin, cst.BaseExpression) else None
        if origin is not None and node in self.originals:
            return origin
        maker = getattr(self, "_" + type(node).__name__.lower())
        return cast(cst.BaseExpression, maker(node, origin))

    def _name(self, node: tree.Name, origin: Any) -> cst.BaseExpression:
        if not isinstance(origin, cst.Name):
            return cst.Name(node.id)
        return origin if origin.value == node.id else origin.with_changes(value=node.id)

    def _constant(self, node: tree.Constant, origin: Any) -> cst.BaseExpression:
        value = node.value
        if origin is not None and _same_constant(origin, value):
            return cast(cst.BaseExpression, origin)
        if value is Ellipsis:
            return cst.Ellipsis()
        if value is None or isinstance(value, bool):
            return cst.Name(str(value))
        if isinstance(value, int | float) and repr(value)[0] == "-":
            return cst.UnaryOperation(cst.Minus(), self._constant(tree.Constant(-value), None))
        if isinstance(value, int):
            return cst.Integer(str(value))
        if isinstance(value, float) and repr(value) in ("inf", "nan"):
            return cst.Call(cst.Name("float"), [cst.Arg(cst.SimpleString(f'"{value!r}"'))])
        if isinstance(value, float):
            return cst.Float(repr(value))
        if isinstance(value, str) and value.isprintable():
            return cst.SimpleString('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"')
        return cst.parse_expression(repr(value))

    def _torchname(self, node: tree.TorchName, origin: Any) -> cst.BaseExpression:
        return cst.Attribute(_dotted(self.torch), cst.Name(node.name))

    def _helpername(self, node: tree.HelperName, origin: Any) -> cst.BaseExpression:
        return _dotted(self.helper)

    def _attribute(self, node: tree.Attribute, origin: Any) -> cst.BaseExpression:
        before = origin.value if isinstance(origin, cst.Attribute) else None
        value = self.fit(node.value, ATOM, before)
        if value is not before and isinstance(value, cst.Integer) and not value.lpar:
            value = _bracketed(value)
        if not isinstance(origin, cst.Attribute):
            return cst.Attribute(value, cst.Name(node.attr))
        attr = origin.attr if origin.attr.value == node.attr else cst.Name(node.attr)
        return _with(origin, value=value, attr=attr)

    def _call(self, node: tree.Call, origin: Any) -> cst.BaseExpression:
        if not isinstance(origin, cst.Call):
            return cst.Call(self.fit(node.func, ATOM), self.arguments(node.args))
        func = self.fit(node.func, ATOM, origin.func)
        same = len(origin.args) == len(node.args) and all(
            a.origin is b for a, b in zip(node.args, origin.args, strict=True)
        )
        if not same:
            return _with(
                origin, func=func, args=self.arguments(node.args), whitespace_before_args=cst.SimpleWhitespace("")
            )
        return _with(
            origin,
            func=func,
            args=[self.argument(a, b, len(node.args)) for a, b in zip(node.args, origin.args, strict=True)],
        )

    def argument(self, node: tree.Argument, origin: cst.Arg, count: int) -> cst.Arg:
        if node in self.originals:
            return origin
        keyword = origin.keyword.value if origin.keyword is not None else None
        if (node.keyword, node.star) != (keyword, origin.star):
            return self.arguments([node])[0].with_changes(comma=origin.comma)
        value = self.argument_value(node, origin.value, alone=count == 1 and not isinstance(origin.comma, cst.Comma))
        return _with(origin, value=value)

    def argument_value(self, node: tree.Argument, before: cst.CSTNode | None, alone: bool) -> cst.BaseExpression:
        value = node.value
        generator = isinstance(value, tree.Comprehension) and value.form == "generator"
        if alone and generator and node.keyword is None and not node.star:
            made = self.expr(value)
            return made if made is before or _spans_lines(made) else made.with_changes(lpar=[], rpar=[])
        return self.fit(node.value, EXPRESSION if node.keyword or node.star else NAMED, before, bare=True)

    def arguments(self, args: Sequence[tree.Argument]) -> list[cst.Arg]:
        """Arguments laid out anew, on one line."""
        made = []
        tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        for k, a in enumerate(args):
            made.append(
                cst.Arg(
                    self.argument_value(a, None, alone=len(args) == 1),
                    keyword=cst.Name(a.keyword) if a.keyword is not None else None,
                    equal=tight if a.keyword is not None else cst.MaybeSentinel.DEFAULT,
                    star=cast(Any, a.star),
                    comma=_comma(k, args),
                )
            )
        return made

    def _select(self, node: tree.Select, origin: Any) -> cst.BaseExpression:
        arguments = [tree.Argument(a) for a in (node.mask, node.chosen, node.other)]
        return cst.Call(cst.Attribute(_dotted(self.torch), cst.Name("where")), self.arguments(arguments))

    def _subscript(self, node: tree.Subscript, origin: Any) -> cst.BaseExpression:
        origin = origin if isinstance(origin, cst.Subscript) else None
        value = self.fit(node.value, ATOM, origin.value if origin is not None else None)
        old: Sequence[cst.SubscriptElement] | None = None
        if origin is not None and len(origin.slice) == len(node.items):
            was_tuple = len(origin.slice) > 1 or isinstance(origin.slice[-1].comma, cst.Comma)
            old = origin.slice if was_tuple == node.is_tuple else None
        elements = []
        for k, item in enumerate(node.items):
            if old is not None:
                part = self.item(item, old[k].slice)
                elements.append(_with(old[k], slice=part))
                continue
            comma = cst.Comma() if node.is_tuple and len(node.items) == 1 else _comma(k, node.items)
            elements.append(cst.SubscriptElement(self.item(item, None), comma))
        return _with(origin, value=value, slice=elements) if origin is not None else cst.Subscript(value, elements)

    def item(self, item: tree.Expr, before: cst.BaseSlice | None) -> cst.BaseSlice:
        if isinstance(item, tree.Slice):
            old = item.origin if isinstance(item.origin, cst.Slice) else None
            if old is not None and item in self.originals:
                return old
            lower, upper, step = (
                self.fit(p, EXPRESSION, getattr(old, name, None)) if p is not None else None
                for name, p in (("lower", item.lower), ("upper", item.upper), ("step", item.step))
            )
            return _with(old, lower=lower, upper=upper, step=step) if old is not None else cst.Slice(lower, upper, step)
        held = before.value if isinstance(before, cst.Index) else None
        if isinstance(item, tree.Starred):
            starred = isinstance(before, cst.Index) and before.star == "*"
            made = self.fit(item.value, BIT_OR, held if starred else None)
            return before if starred and made is held and before is not None else cst.Index(made, star="*")
        if isinstance(before, cst.Index) and before.star:
            held = before = None
        made = self.fit(item, NAMED, held, bare=True)
        if isinstance(before, cst.Index):
            return _with(before, value=made)
        return cst.Index(made)

    def _unary(self, node: tree.Unary, origin: Any) -> cst.BaseExpression:
        before = origin.expression if isinstance(origin, cst.UnaryOperation) else None
        operand = self.fit(node.operand, NOT if node.op == "not" else UNARY, before)
        if isinstance(origin, cst.UnaryOperation) and isinstance(origin.operator, _UNARY[node.op]):
            return _with(origin, expression=operand)
        return cst.UnaryOperation(_UNARY[node.op](), operand)

    def _binary(self, node: tree.Binary, origin: Any) -> cst.BaseExpression:
        kind, level = _BINARY[node.op]
        origin = origin if isinstance(origin, cst.BinaryOperation) and isinstance(origin.operator, kind) else None
        left, right = (AWAIT, UNARY) if node.op == "**" else (level, level + 1)
        return self.two_sided(node, origin, cst.BinaryOperation, kind, left, right)

    def _boolop(self, node: tree.BoolOp, origin: Any) -> cst.BaseExpression:
        kind = _BOOLEAN[node.op]
        level = OR if node.op == "or" else AND
        origin = origin if isinstance(origin, cst.BooleanOperation) and isinstance(origin.operator, kind) else None
        return self.two_sided(node, origin, cst.BooleanOperation, kind, level, level + 1)

    def two_sided(
        self, node: tree.Binary | tree.BoolOp, origin: Any, form: Any, kind: Any, left: int, right: int
    ) -> cst.BaseExpression:
        parts = (
            self.fit(node.left, left, getattr(origin, "left", None)),
            self.fit(node.right, right, getattr(origin, "right", None)),
        )
        if origin is not None:
            return cast(cst.BaseExpression, _with(origin, left=parts[0], right=parts[1]))
        return cast(cst.BaseExpression, form(parts[0], kind(), parts[1]))

    def _compare(self, node: tree.Compare, origin: Any) -> cst.BaseExpression:
        origin = origin if isinstance(origin, cst.Comparison) and len(origin.comparisons) == len(node.rest) else None
        left = self.fit(node.left, BIT_OR, getattr(origin, "left", None))
        targets: list[cst.ComparisonTarget] = []
        for k, (op, right) in enumerate(zip(node.ops, node.rest, strict=True)):
            old: Any = origin.comparisons[k] if origin is not None else None
            comparator = self.fit(right, BIT_OR, getattr(old, "comparator", None))
            same = old is not None and isinstance(old.operator, _COMPARE[op])
            targets.append(
                _with(old, comparator=comparator) if same else cst.ComparisonTarget(_COMPARE[op](), comparator)
            )
        return _with(origin, left=left, comparisons=targets) if origin is not None else cst.Comparison(left, targets)

    def _conditional(self, node: tree.Conditional, origin: Any) -> cst.BaseExpression:
        old = origin if isinstance(origin, cst.IfExp) else None
        body = self.fit(node.body, OR, getattr(old, "body", None))
        test = self.fit(node.test, OR, getattr(old, "test", None))
        orelse = self.fit(node.orelse, EXPRESSION, getattr(old, "orelse", None))
        return _with(old, body=body, test=test, orelse=orelse) if old is not None else cst.IfExp(test, body, orelse)

    def elements(self, items: Sequence[tree.Expr], origin: Any, level: int) -> list[cst.BaseElement]:
        old = origin.elements if origin is not None and len(origin.elements) == len(items) else None
        made: list[cst.BaseElement] = []
        for k, item in enumerate(items):
            starred = isinstance(item, tree.Starred)
            before = old[k] if old is not None and isinstance(old[k], cst.StarredElement) == starred else None
            inner, asks = (item.value, BIT_OR) if isinstance(item, tree.Starred) else (item, level)
            value = self.fit(inner, asks, getattr(before, "value", None), bare=not starred)
            if before is not None:
                made.append(_with(before, value=value))
                continue
            comma = old[k].comma if old is not None else _comma(k, items)
            made.append(cst.StarredElement(value, comma=comma) if starred else cst.Element(value, comma=comma))
        return made

    def _tuple(self, node: tree.Tuple, origin: Any) -> cst.BaseExpression:
        old = origin if isinstance(origin, cst.Tuple) else None
        elements = self.elements(node.items, old, EXPRESSION)
        return _with(old, elements=elements) if old is not None and (old.lpar or elements) else cst.Tuple(elements)

    def _list(self, node: tree.List, origin: Any) -> cst.BaseExpression:
        origin = origin if isinstance(origin, cst.List) else None
        elements = self.elements(node.items, origin, NAMED)
        return _with(origin, elements=elements) if origin is not None else cst.List(elements)

    def _set(self, node: tree.Set, origin: Any) -> cst.BaseExpression:
        origin = origin if isinstance(origin, cst.Set) else None
        elements = self.elements(node.items, origin, NAMED)
        return _with(origin, elements=elements) if origin is not None else cst.Set(elements)

    def _dict(self, node: tree.Dict, origin: Any) -> cst.BaseExpression:
        old = origin.elements if isinstance(origin, cst.Dict) and len(origin.elements) == len(node.values) else None
        made: list[cst.BaseDictElement] = []
        for k, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            form: Any = cst.StarredDictElement if key is None else cst.DictElement
            before: Any = old[k] if old is not None and isinstance(old[k], form) else None
            changes = {"value": self.fit(value, BIT_OR if key is None else EXPRESSION, getattr(before, "value", None))}
            if key is not None:
                changes["key"] = self.fit(key, EXPRESSION, getattr(before, "key", None))
            made.append(
                _with(before, **changes) if before is not None else form(comma=_comma(k, node.values), **changes)
            )
        return _with(origin, elements=made) if isinstance(origin, cst.Dict) else cst.Dict(made)

    def _walrus(self, node: tree.Walrus, origin: Any) -> cst.BaseExpression:
        old = origin if isinstance(origin, cst.NamedExpr) else None
        value = self.fit(node.value, EXPRESSION, getattr(old, "value", None))
        target = cast(cst.Name, self.expr(node.target))
        return _with(old, target=target, value=value) if old is not None else cst.NamedExpr(target, value)

    def _lambda(self, node: tree.Lambda, origin: Any) -> cst.BaseExpression:
        old = origin if isinstance(origin, cst.Lambda) else None
        body = self.fit(node.body, EXPRESSION, getattr(old, "body", None), bare=True)
        if old is not None and body is not old.body and node.origin is self.unit.node:
            body = _on_one_line(body)
        params = self.parameters(node.params, old.params if old is not None else None)
        return _with(old, body=body, params=params) if old is not None else cst.Lambda(params, body)

    def _comprehension(self, node: tree.Comprehension, origin: Any) -> cst.BaseExpression:
        forms: dict[str, Any] = {
            "list": cst.ListComp,
            "set": cst.SetComp,
            "generator": cst.GeneratorExp,
            "dict": cst.DictComp,
        }
        form = forms[node.form]
        old = origin if isinstance(origin, form) else None
        changes: dict[str, Any] = {"for_in": self.clauses(node.clauses, getattr(old, "for_in", None))}
        if node.key is not None:
            changes["key"] = self.fit(node.key, EXPRESSION, getattr(old, "key", None))
            changes["value"] = self.fit(node.element, EXPRESSION, getattr(old, "value", None))
        else:
            changes["elt"] = self.fit(node.element, NAMED, getattr(old, "elt", None))
        return cast(cst.BaseExpression, _with(old, **changes) if old is not None else form(**changes))

    def clauses(self, clauses: tuple[tree.Clause, ...], before: Any) -> cst.CompFor:
        first, rest = clauses[0], clauses[1:]
        old = first.origin if isinstance(first.origin, cst.CompFor) else None
        if first in self.originals and old is not None and old is before:
            inner = self.clauses(rest, old.inner_for_in) if rest else None
            return _with(old, inner_for_in=inner)
        tests = list(first.conditions)
        olds: Sequence[Any] = old.ifs if old is not None and len(old.ifs) == len(tests) else [None] * len(tests)
        ifs = []
        for test, old_if in zip(tests, olds, strict=True):
            made = self.fit(test, OR, getattr(old_if, "test", None))
            ifs.append(_with(old_if, test=made) if old_if is not None else cst.CompIf(made))
        changes: dict[str, Any] = {
            "target": self.fit(first.target, LIST, getattr(old, "target", None), bare=old is None),
            "iter": self.fit(first.iter, OR, getattr(old, "iter", None)),
            "ifs": ifs,
            "inner_for_in": self.clauses(rest, getattr(old, "inner_for_in", None)) if rest else None,
            "asynchronous": _asynchronous(first, old),
        }
        return _with(old, **changes) if old is not None else cst.CompFor(**changes)

    def _opaqueexpr(self, node: tree.OpaqueExpr, origin: Any) -> cst.BaseExpression:
        assert origin is not None
        levels: dict[Any, int] = {cst.Await: ATOM, cst.Yield: LIST, cst.FormattedString: CONDITIONAL}
        level = levels.get(type(origin), EXPRESSION)
        if isinstance(origin, cst.Yield) and isinstance(origin.value, cst.From):
            level = EXPRESSION
        return cast(cst.BaseExpression, _swap(origin, self.replaced(parts(origin).expressions, node.children, level)))

    def replaced(
        self, old: Sequence[cst.BaseExpression], new: Sequence[tree.Expr], level: int
    ) -> dict[int, cst.CSTNode]:
        """By identity, what becomes of the expressions inside syntax that the tree has no class for."""
        found: dict[int, cst.CSTNode] = {}
        for before, node in zip(old, new, strict=True):
            made = self.fit(node, level, before, bare=True)
            if made is before:
                continue
            # In an f-string, a brace that opens a display would be read as a literal one.
            found[id(before)] = _bracketed(made) if level == CONDITIONAL and _code(made).startswith("{") else made
        return found

    def parameters(self, params: tuple[tree.Parameter, ...], origin: cst.Parameters | None) -> cst.Parameters:
        if origin is not None:
            star = [origin.star_arg] if isinstance(origin.star_arg, cst.Param) else []
            kwargs = [origin.star_kwarg] if origin.star_kwarg is not None else []
            old = [*origin.posonly_params, *origin.params, *star, *origin.kwonly_params, *kwargs]
            if len(old) == len(params) and all(p.origin is o for p, o in zip(params, old, strict=True)):
                changed = {
                    id(o): self.parameter(p) for p, o in zip(params, old, strict=True) if p not in self.originals
                }
                return cast(cst.Parameters, _swap(origin, changed))
        made: dict[str, list[cst.Param]] = defaultdict(list)
        for p in params:
            made[p.kind].append(self.parameter(p).with_changes(comma=cst.MaybeSentinel.DEFAULT))
        return cst.Parameters(
            params=made["normal"],
            posonly_params=made["positional"],
            star_arg=made["star"][0] if made["star"] else cst.MaybeSentinel.DEFAULT,
            kwonly_params=made["keyword"],
            star_kwarg=made["double star"][0] if made["double star"] else None,
        )

    def parameter(self, node: tree.Parameter) -> cst.Param:
        old = node.origin if isinstance(node.origin, cst.Param) else None
        default = (
            self.fit(node.default, EXPRESSION, getattr(old, "default", None)) if node.default is not None else None
        )
        annotation = self.annotation(node.annotation, getattr(old, "annotation", None), self.fit)
        equal: Any = getattr(old, "equal", cst.MaybeSentinel.DEFAULT)
        if default is None:
            equal = cst.MaybeSentinel.DEFAULT
        elif not isinstance(equal, cst.AssignEqual) and annotation is None:
            equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        if old is not None:
            name = old.name if old.name.value == node.name else cst.Name(node.name)
            return _with(old, name=name, default=default, annotation=annotation, equal=equal)
        star = {"star": "*", "double star": "**"}.get(node.kind, "")
        return cst.Param(cst.Name(node.name), annotation, equal=equal, default=default, star=star)

    def annotation(self, node: tree.Expr | None, before: cst.Annotation | None, place: Any) -> cst.Annotation | None:
        """``place`` fits the expression in: ``standing`` or, inside brackets, ``fit``."""
        if node is None:
            return None
        made = place(node, EXPRESSION, before.annotation if before is not None else None)
        if before is None:
            return cst.Annotation(made)
        return _with(before, annotation=made)

    # --- statements -------------------------------------------------------------------------

    def block(self, stmts: tree.Block, origin: cst.BaseSuite | None) -> cst.BaseSuite:
        if isinstance(origin, cst.SimpleStatementSuite) and len(stmts) == len(origin.body):
            same = all(
                isinstance(s.origin, tuple) and s.origin[0] is b for s, b in zip(stmts, origin.body, strict=True)
            )
            if same and not any(s.carries or s in self.above for s in stmts):
                return _with(origin, body=[self.small(s) for s in stmts])
        lines = self.lines(stmts)
        if isinstance(origin, cst.SimpleStatementSuite):
            small = [s for line in lines if isinstance(line, cst.SimpleStatementLine) for s in line.body]
            quiet = all(isinstance(line, cst.SimpleStatementLine) and not line.leading_lines for line in lines)
            if quiet and len(small) == len(origin.body):
                return _with(origin, body=small)
            return cst.IndentedBlock(lines, indent=self.indent)
        if isinstance(origin, cst.IndentedBlock):
            return _with(origin, body=lines)
        return cst.IndentedBlock(lines, indent=self.indent)

    @property
    def indent(self) -> str | None:
        """One step of indentation; None is the module's own."""
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
        if not isinstance(origin, tuple) or not isinstance(origin[1], cst.SimpleStatementLine):
            return None
        line = origin[1]
        group = stmts[k : k + len(line.body)]
        if len(line.body) < 2 or len(group) < len(line.body):
            return None
        for stmt, small in zip(group, line.body, strict=True):
            if not isinstance(stmt.origin, tuple) or stmt.origin[0] is not small or stmt.carries or stmt in self.above:
                return None
            if not self.small(stmt).deep_equals(small):
                return None
        return line

    def statement(self, stmt: tree.Stmt) -> cst.BaseStatement:
        compound = isinstance(stmt.origin, cst.BaseStatement)
        if compound and stmt in self.originals and not stmt.carries and stmt not in self.above:
            return cast(cst.BaseStatement, stmt.origin)
        is_block = isinstance(stmt, tree.If | tree.For | tree.While | tree.With | tree.FunctionDef)
        if is_block or (isinstance(stmt, tree.OpaqueStmt) and compound):
            return self.with_comments(self.compound(stmt), stmt)
        return self.with_comments(self.line(stmt), stmt)

    def line(self, stmt: tree.Stmt) -> cst.SimpleStatementLine:
        small = self.small(stmt)
        if not isinstance(stmt.origin, tuple):
            return cst.SimpleStatementLine([small])
        before, line = stmt.origin
        if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
            return _with(line, body=[small])
        whole = isinstance(line, cst.SimpleStatementLine)
        leading = line.leading_lines if whole and line.body[0] is before else ()
        trailing = line.trailing_whitespace if line.body[-1] is before else cst.TrailingWhitespace()
        if isinstance(small.semicolon, cst.Semicolon):
            small = small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return cst.SimpleStatementLine([small], leading_lines=list(leading), trailing_whitespace=trailing)

    def with_comments(self, made: cst.BaseStatement, stmt: tree.Stmt) -> cst.BaseStatement:
        """Puts above the statement the comments that belong there now, and the space that was before the first."""
        if not stmt.carries and stmt not in self.above:
            return made
        own: list[cst.EmptyLine] = list(getattr(made, "leading_lines", ()))
        first = min((self.index.get(id(line.comment), 0) for line in own if line.comment is not None), default=-1)
        early: list[cst.EmptyLine] = []
        late: list[cst.EmptyLine] = []
        for comment in self.above.get(stmt, ()):
            (early if comment.at < first else late).append(cst.EmptyLine(comment=cst.Comment(comment.text)))
        lines = [*early, *own, *late]
        if stmt.carries and not (lines and lines[0].comment is None):
            lines = [*_blanks_before(stmt.carries[0]), *lines]
        return made.with_changes(leading_lines=lines) if lines else made

    def small(self, stmt: tree.Stmt) -> cst.BaseSmallStatement:
        origin: Any = stmt.origin[0] if isinstance(stmt.origin, tuple) else None
        if origin is not None and stmt in self.originals:
            return cast(cst.BaseSmallStatement, origin)
        maker = getattr(self, "_" + type(stmt).__name__.lower())
        return cast(cst.BaseSmallStatement, maker(stmt, origin))

    def _assign(self, stmt: tree.Assign, origin: Any) -> cst.BaseSmallStatement:
        if isinstance(origin, cst.Assign) and len(origin.targets) == len(stmt.targets):
            value = self.standing(stmt.value, ANY, origin.value)
            targets = []
            for old, e in zip(origin.targets, stmt.targets, strict=True):
                target = self.standing(e, LIST, old.target)
                targets.append(_with(old, target=target))
            return _with(origin, targets=targets, value=value)
        before = origin.value if isinstance(origin, cst.Assign | cst.AnnAssign | cst.AugAssign) else None
        value = self.standing(stmt.value, ANY, before)
        return cst.Assign([cst.AssignTarget(cast(Any, self.standing(t, LIST))) for t in stmt.targets], value)

    def _annassign(self, stmt: tree.AnnAssign, origin: Any) -> cst.BaseSmallStatement:
        old = origin if isinstance(origin, cst.AnnAssign) else None
        target = cast(Any, self.standing(stmt.target, ATOM, getattr(old, "target", None)))
        annotation = self.annotation(stmt.annotation, getattr(old, "annotation", None), self.standing)
        assert annotation is not None
        value = self.standing(stmt.value, ANY, getattr(old, "value", None)) if stmt.value is not None else None
        if old is None:
            return cst.AnnAssign(target, annotation, value)
        equal = old.equal if value is not None else cst.MaybeSentinel.DEFAULT
        return _with(old, target=target, annotation=annotation, value=value, equal=equal)

    def _augassign(self, stmt: tree.AugAssign, origin: Any) -> cst.BaseSmallStatement:
        kind = _AUGMENTED[stmt.op]
        old = origin if isinstance(origin, cst.AugAssign) else None
        target = cast(Any, self.standing(stmt.target, ATOM, getattr(old, "target", None)))
        value = self.standing(stmt.value, ANY, getattr(old, "value", None))
        if old is None:
            return cst.AugAssign(target, kind(), value)
        return _with(
            old, target=target, value=value, operator=old.operator if isinstance(old.operator, kind) else kind()
        )

    def _exprstmt(self, stmt: tree.ExprStmt, origin: Any) -> cst.BaseSmallStatement:
        old = origin if isinstance(origin, cst.Expr) else None
        value = self.standing(stmt.value, ANY, getattr(old, "value", None))
        return _with(old, value=value) if old is not None else cst.Expr(value)

    def _return(self, stmt: tree.Return, origin: Any) -> cst.BaseSmallStatement:
        if stmt.value is None:
            return cst.Return(None)
        if isinstance(origin, cst.Return) and origin.value is not None:
            return _with(origin, value=self.standing(stmt.value, LIST, origin.value))
        return cst.Return(self.standing(stmt.value, LIST))

    def _break(self, stmt: tree.Break, origin: Any) -> cst.BaseSmallStatement:
        return origin if isinstance(origin, cst.Break) else cst.Break()

    def _continue(self, stmt: tree.Continue, origin: Any) -> cst.BaseSmallStatement:
        return origin if isinstance(origin, cst.Continue) else cst.Continue()

    def _pass(self, stmt: tree.Pass, origin: Any) -> cst.BaseSmallStatement:
        return origin if isinstance(origin, cst.Pass) else cst.Pass()

    def _raise(self, stmt: tree.Raise, origin: Any) -> cst.BaseSmallStatement:
        old = origin if isinstance(origin, cst.Raise) else None
        exc = self.standing(stmt.exc, EXPRESSION, getattr(old, "exc", None)) if stmt.exc is not None else None
        source: cst.From | None = None
        if stmt.cause is not None:
            before = getattr(old, "cause", None)
            item = self.standing(stmt.cause, EXPRESSION, getattr(before, "item", None))
            source = cst.From(item) if before is None else _with(before, item=item)
        if old is not None and old.exc is not None:
            return _with(old, exc=exc, cause=source)
        return cst.Raise(exc, source)

    def _assert(self, stmt: tree.Assert, origin: Any) -> cst.BaseSmallStatement:
        old = origin if isinstance(origin, cst.Assert) else None
        test = self.standing(stmt.test, EXPRESSION, getattr(old, "test", None))
        message = (
            self.standing(stmt.message, EXPRESSION, getattr(old, "msg", None)) if stmt.message is not None else None
        )
        if old is None:
            return cst.Assert(test, message)
        comma = old.comma if message is not None else cst.MaybeSentinel.DEFAULT
        return _with(old, test=test, msg=message, comma=comma)

    def _delete(self, stmt: tree.Delete, origin: Any) -> cst.BaseSmallStatement:
        if isinstance(origin, cst.Del):
            if isinstance(origin.target, cst.Tuple):
                elements = self.elements(stmt.targets, origin.target, EXPRESSION)
                return _with(origin, target=_with(origin.target, elements=elements))
            if len(stmt.targets) == 1:
                return _with(origin, target=self.standing(stmt.targets[0], EXPRESSION, origin.target))
        if len(stmt.targets) == 1:
            return cst.Del(cast(Any, self.standing(stmt.targets[0], EXPRESSION)))
        return cst.Del(cst.Tuple(self.elements(stmt.targets, None, EXPRESSION), lpar=[], rpar=[]))

    def _scope(self, stmt: tree.Scope, origin: Any) -> cst.BaseSmallStatement:
        form = cst.Global if stmt.what == "global" else cst.Nonlocal
        if isinstance(origin, form) and tuple(n.name.value for n in origin.names) == stmt.names:
            return origin
        return form([cst.NameItem(cst.Name(n), comma=_comma(k, stmt.names)) for k, n in enumerate(stmt.names)])

    def _import(self, stmt: tree.Import, origin: Any) -> cst.BaseSmallStatement:
        assert origin is not None
        return cast(cst.BaseSmallStatement, origin)

    def _opaquestmt(self, stmt: tree.OpaqueStmt, origin: Any) -> cst.CSTNode:
        assert origin is not None
        old = parts(origin)
        changed = self.replaced(old.expressions, stmt.expressions, EXPRESSION)
        for suite, block in zip(old.suites, stmt.blocks, strict=True):
            changed[id(suite)] = self.block(block, suite)
        for name, bound in zip(old.binds, stmt.binds, strict=True):
            if name.value != bound:
                changed[id(name)] = name.with_changes(value=bound)
        return _swap(origin, changed)

    def compound(self, stmt: tree.Stmt) -> cst.BaseStatement:
        origin: Any = stmt.origin if isinstance(stmt.origin, cst.BaseStatement) else None
        if isinstance(stmt, tree.If):
            return self.if_(stmt, origin if isinstance(origin, cst.If) else None)
        if isinstance(stmt, tree.For):
            return self.for_(stmt, origin if isinstance(origin, cst.For) else None)
        if isinstance(stmt, tree.While):
            old = origin if isinstance(origin, cst.While) else None
            test = self.standing(stmt.test, NAMED, getattr(old, "test", None))
            body, orelse = self.block(stmt.body, getattr(old, "body", None)), self.orelse(stmt.orelse, old)
            return _with(old, test=test, body=body, orelse=orelse) if old is not None else cst.While(test, body, orelse)
        if isinstance(stmt, tree.With):
            return self.with_(stmt, origin if isinstance(origin, cst.With) else None)
        if isinstance(stmt, tree.FunctionDef):
            return self.function(stmt, origin if isinstance(origin, cst.FunctionDef) else None)
        assert isinstance(stmt, tree.OpaqueStmt)
        return cast(cst.BaseStatement, self._opaquestmt(stmt, origin))

    def if_(self, stmt: tree.If, old: cst.If | None) -> cst.If:
        test = self.standing(stmt.test, NAMED, getattr(old, "test", None))
        body = self.block(stmt.body, getattr(old, "body", None))
        orelse: cst.If | cst.Else | None
        # An ``if`` alone under ``else`` is an ``elif``, unless the original had it under an ``else`` of its own.
        if (
            len(stmt.orelse) == 1
            and isinstance(stmt.orelse[0], tree.If)
            and not isinstance(getattr(old, "orelse", None), cst.Else)
        ):
            orelse = cst.ensure_type(self.statement(stmt.orelse[0]), cst.If)
        else:
            orelse = self.orelse(stmt.orelse, old)
        return _with(old, test=test, body=body, orelse=orelse) if old is not None else cst.If(test, body, orelse)

    def for_(self, stmt: tree.For, old: cst.For | None) -> cst.For:
        changes: dict[str, Any] = {
            "target": self.standing(stmt.target, LIST, getattr(old, "target", None)),
            "iter": self.standing(stmt.iter, LIST, getattr(old, "iter", None)),
            "body": self.block(stmt.body, getattr(old, "body", None)),
            "orelse": self.orelse(stmt.orelse, old),
            "asynchronous": _asynchronous(stmt, old),
        }
        return _with(old, **changes) if old is not None else cst.For(**changes)

    def with_(self, stmt: tree.With, old: cst.With | None) -> cst.With:
        body = self.block(stmt.body, getattr(old, "body", None))
        same = old is not None and len(old.items) == len(stmt.items)
        inside = same and old is not None and isinstance(old.lpar, cst.LeftParen)
        items = []
        for k, i in enumerate(stmt.items):
            before = old.items[k] if same and old is not None else None
            place = self.fit if inside else self.standing
            item = place(i.context, EXPRESSION, getattr(before, "item", None))
            asname = getattr(before, "asname", None)
            if i.target is None:
                asname = None
            elif asname is None:
                spaces = cst.SimpleWhitespace(" ")
                asname = cst.AsName(cast(Any, self.fit(i.target, ATOM)), spaces, spaces)
            else:
                name = self.fit(i.target, ATOM, asname.name)
                asname = _with(asname, name=name)
            items.append(
                _with(before, item=item, asname=asname)
                if before is not None
                else cst.WithItem(item, asname, _comma(k, stmt.items))
            )
        asynchronous = _asynchronous(stmt, old)
        if old is None:
            return cst.With(items, body, asynchronous)
        return _with(old, items=items, body=body, asynchronous=asynchronous)

    def function(self, stmt: tree.FunctionDef, old: cst.FunctionDef | None) -> cst.FunctionDef:
        olds: Sequence[Any] = old.decorators if old is not None and len(old.decorators) == len(stmt.decorators) else ()
        decorators = []
        for k, d in enumerate(stmt.decorators):
            before = olds[k] if olds else None
            made = self.standing(d, NAMED, getattr(before, "decorator", None))
            decorators.append(cst.Decorator(made) if before is None else _with(before, decorator=made))
        changes: dict[str, Any] = {
            "name": old.name if old is not None and old.name.value == stmt.name else cst.Name(stmt.name),
            "params": self.parameters(stmt.params, getattr(old, "params", None)),
            "body": self.block(stmt.body, getattr(old, "body", None)),
            "decorators": decorators,
            "returns": self.annotation(stmt.returns, getattr(old, "returns", None), self.standing),
            "asynchronous": _asynchronous(stmt, old),
        }
        return _with(old, **changes) if old is not None else cst.FunctionDef(**changes)

    def orelse(self, block: tree.Block, origin: Any) -> cst.Else | None:
        if not block:
            return None
        old = getattr(origin, "orelse", None)
        return (
            _with(old, body=self.block(block, old.body))
            if isinstance(old, cst.Else)
            else cst.Else(self.block(block, None))
        )


def _same_constant(origin: cst.BaseExpression, value: Any) -> bool:
    """Whether the literal still stands for the value (True and 1 are not the same, nor are 0.0 and -0.0)."""
    try:
        old = ast.literal_eval(_code(_bare(origin)).strip())
    except (ValueError, SyntaxError):
        return False
    return type(old) is type(value) and repr(old) == repr(value)


def _above_body(node: cst.Lambda, comments: Sequence[str]) -> cst.Lambda:
    """A lambda's comments at the head of a parenthesis around its body: it has no line of its own for them."""
    first, *rest = comments
    space = cst.ParenthesizedWhitespace(
        first_line=cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment(first)),
        empty_lines=[
            cst.EmptyLine(indent=False, whitespace=cst.SimpleWhitespace("    "), comment=cst.Comment(c)) for c in rest
        ],
        indent=False,
        last_line=cst.SimpleWhitespace("    "),
    )
    body = node.body.with_changes(
        lpar=[cst.LeftParen(whitespace_after=space), *node.body.lpar], rpar=[*node.body.rpar, cst.RightParen()]
    )
    return node.with_changes(body=body)


# --- comments -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comment:
    """A comment of the original: ``owner`` is the statement that it belongs to, ``at`` its place in source order."""

    node: cst.Comment
    owner: int
    at: int

    @property
    def text(self) -> str:
        return self.node.value


@dataclass(frozen=True)
class _Comments:
    """The comments and statements of the original, in source order; ``statements`` has each one's place."""

    found: tuple[_Comment, ...]
    statements: Mapping[int, int]

    @property
    def index(self) -> dict[int, int]:
        return {id(c.node): c.at for c in self.found}

    @classmethod
    def of(cls, node: cst.CSTNode) -> _Comments:
        found: list[_Comment] = []
        statements: dict[int, int] = {}
        at = 0
        stack: list[tuple[cst.CSTNode, int]] = [(node, id(node))]
        while stack:
            top, owner = stack.pop()
            at += 1
            if isinstance(top, cst.Comment):
                found.append(_Comment(top, owner, at))
            elif isinstance(top, cst.BaseCompoundStatement | cst.BaseSmallStatement):
                owner = id(top)
                statements[owner] = at
            below = [(child, owner) for child in top.children]
            if isinstance(top, cst.SimpleStatementLine | cst.SimpleStatementSuite):
                # What stands above a line belongs to its first statement, what stands behind it to its last.
                below = [(c, id(top.body[-1] if c is top.trailing_whitespace else top.body[0])) for c, _ in below]
            stack.extend(reversed(below))
        return cls(tuple(found), statements)

    def lost(self, node: cst.CSTNode) -> list[_Comment]:
        """Those that the new syntax does not hold."""
        kept = {id(n) for n in _below(node) if isinstance(n, cst.Comment)}
        return [c for c in self.found if id(c.node) not in kept]

    def places(self, lost: Iterable[_Comment], root: tree.FunctionDef) -> dict[tree.Stmt, list[_Comment]]:
        """Above which new statement each goes: what its own became, or else the first behind it that stands."""
        became: dict[int, tree.Stmt] = {}
        for node in tree.walk(root):
            if not isinstance(node, tree.Stmt):
                continue
            for origin in (node.origin, *node.carries):
                if origin is not None:
                    became.setdefault(_key(origin), node)
        placed: dict[tree.Stmt, list[_Comment]] = defaultdict(list)
        for comment in lost:
            stmt = became.get(comment.owner)
            if stmt is None or stmt is root:
                behind = (key for key, at in self.statements.items() if at > comment.at and key in became)
                stmt = became.get(next(behind, 0), root.body[-1])
            placed[stmt].append(comment)
        return dict(placed)


def _below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.children)


def _blanks_before(origin: Any) -> list[cst.EmptyLine]:
    """The blank lines above the statement behind an origin."""
    leading: Sequence[cst.EmptyLine] = ()
    if isinstance(origin, tuple):
        small, line = origin
        if isinstance(line, cst.SimpleStatementLine) and line.body[0] is small:
            leading = line.leading_lines
    else:
        leading = getattr(origin, "leading_lines", ())
    return list(takewhile(lambda line: line.comment is None, leading))


# --- imports --------------------------------------------------------------------------------


def add_import(text: str, module: ast.Module, line: str) -> str:
    """The text with an import after the docstring and ``__future__`` imports, next to the first block of others.

    ``import x`` goes before that block, ``from x import y`` behind it; the file's own line ends are kept.
    """
    newline = newline_of(text)
    starts = Positions(text).starts
    after = 0  # the line that the docstring and the imports from __future__ end on
    block: list[ast.stmt] = []
    for k, stmt in enumerate(module.body):
        docstring = (
            k == 0
            and isinstance(stmt, ast.Expr)
            and isinstance(stmt.value, ast.Constant)
            and isinstance(stmt.value.value, str)
        )
        if docstring or (isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"):
            after = stmt.end_lineno or after
        elif isinstance(stmt, ast.Import | ast.ImportFrom):
            block.append(stmt)
        else:
            break

    def insert(number: int, new: str) -> str:
        """Puts it before the line of this number, counted from 0."""
        at = starts[number] if number < len(starts) else len(text)
        gap = newline if number >= len(starts) and text else ""
        return text[:at] + gap + new + text[at:]

    if block and line.startswith("from"):
        return insert(block[-1].end_lineno or after, line + newline)
    if block and block[0].lineno > after:
        return insert(block[0].lineno - 1, line + newline)
    if after:
        return insert(after, line + newline if block else newline + line + newline)
    lines = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    header = len(list(takewhile(lambda written: written.startswith("#"), lines)))
    return insert(header, line + newline + newline)
