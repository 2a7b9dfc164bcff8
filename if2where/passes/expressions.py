"""Expressions: tests into boolean tensors, data-dependent choices into merges, Python idioms into torch.

Expressions are rebuilt from the leaves up, with every variable read under its current version.
``hoist`` tells whether a part may be evaluated in a statement of its own before the one it
stands in: not under a short circuit, in a lambda or in a comprehension.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from if2where.kinds.lattice import (
    MISSING,
    Bottom,
    Kind,
    Mapping,
    Number,
    Sequence,
    Static,
    Tensor,
    Unknown,
    depends,
    element,
    is_floating,
    taint,
)
from if2where.passes import hints, numbers
from if2where.passes.context import Context, is_bool, method_call, torch_call
from if2where.passes.merging import Side, merge
from if2where.passes.twins import redirected
from if2where.region import facts as region_facts
from if2where.region import tree


class Scope(Protocol):
    """What the statement level offers to expressions."""

    names: dict[str, tree.Name]
    masked: bool
    place: tuple[tree.Expr, ...]

    def emit(self, stmt: tree.Stmt) -> None: ...

    def bind(self, name: str, kind: Kind) -> tree.Name: ...

    def kinds_in_scope(self) -> dict[str, Kind]: ...


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class Expressions:
    """Converts the expressions of one function."""

    def __init__(self, ctx: Context, scope: Scope, met: numbers.Meetings) -> None:
        self.ctx = ctx
        self.scope = scope
        self.met = met
        #: Variables bound by lambdas and comprehensions around the expression at hand.
        self.bound: list[frozenset[str]] = []

    # --- values -----------------------------------------------------------------------------

    def value(self, node: tree.Expr, hoist: bool = True) -> tree.Expr:
        """The expression with the same value for each sample, free of data-dependent choices."""
        new = self._value(node, hoist)
        if isinstance(node, tree.Call) and isinstance(new, tree.Call):
            new = self.of_twin(node, new)
        if new is not node and new not in self.ctx.made_kinds and not (isinstance(new, tree.Name) and new.version):
            self.ctx.made_kinds[new] = self.ctx.facts.kind(node)
        if isinstance(node, tree.Call) and isinstance(new, tree.Call) and node in self.ctx.facts.callees:
            self.ctx.facts.callees[new] = self.ctx.facts.callees[node]
        return new

    def of_twin(self, node: tree.Call, new: tree.Call) -> tree.Call:
        """The call, of the converted version of a helper that others call with plain numbers."""
        callees = self.ctx.facts.callees.get(node, frozenset())
        twins = [self.ctx.twins.plain[c] for c in callees if c in self.ctx.twins.plain]
        return redirected(new, twins[0]) if len(twins) == 1 == len(callees) else new

    def _value(self, node: tree.Expr, hoist: bool) -> tree.Expr:
        if isinstance(node, tree.Name):
            return self.name(node)
        if isinstance(node, tree.Conditional):
            return self.conditional(node, hoist)
        if isinstance(node, tree.BoolOp):
            return self.bool_value(node, hoist)
        if isinstance(node, tree.Unary) and node.op == "not" and self.ctx.depends(node.operand):
            return self.mask(node, hoist)
        if isinstance(node, tree.Compare) and self.ctx.depends(node):
            if len(node.ops) > 1 or node.ops[0] in ("in", "not in"):
                return self.mask(node, hoist)
        if isinstance(node, tree.Lambda):
            return self.function_like(node, frozenset(p.name for p in node.params), hoist=False)
        if isinstance(node, tree.Comprehension):
            return self.comprehension(node)
        if isinstance(node, tree.Walrus):
            value = self.value(node.value, hoist)
            kind = self.ctx.facts.kind(node)
            if hoist and not self.bound:
                target = self.scope.bind(node.target.id, kind)
                self.scope.emit(tree.Assign((target,), value))
                return target
            if depends(kind) and self.scope.masked:
                self.ctx.refuse("unsupported", node, "an assignment expression under a condition of its own")
            return replace(node, value=value)
        if isinstance(node, tree.Call):
            return self.call(node, hoist)
        if isinstance(node, tree.Binary):
            return self.binary(node, hoist)
        return self.children(node, hoist)

    def children(self, node: tree.Expr, hoist: bool) -> tree.Expr:
        return tree.map_children(node, lambda c: self._part(c, hoist))

    def _part(self, node: tree.Node, hoist: bool) -> tree.Node:
        if isinstance(node, tree.Expr):
            return self.value(node, hoist)
        return tree.map_children(node, lambda c: self._part(c, hoist))

    def name(self, node: tree.Name) -> tree.Expr:
        if any(node.id in b for b in self.bound):
            return node
        current = self.scope.names.get(node.id)
        if current is None or current.version == node.version:
            return node
        return replace(node, version=current.version, id=current.id)

    def function_like(self, node: tree.Lambda, bound: frozenset[str], hoist: bool) -> tree.Expr:
        self.bound.append(bound)
        body = self.value(node.body, False)
        self.bound.pop()
        params = tuple(
            replace(p, default=self.value(p.default, hoist)) if p.default is not None else p for p in node.params
        )
        params = node.params if all(a is b for a, b in zip(params, node.params, strict=True)) else params
        return node if body is node.body and params is node.params else replace(node, body=body, params=params)

    def comprehension(self, node: tree.Comprehension) -> tree.Expr:
        for clause in node.clauses:
            for c in clause.conditions:
                if self.ctx.depends(c):
                    self.ctx.refuse("dynamic-shape", c, "a comprehension keeps some elements by value")
        names = frozenset(n.id for c in node.clauses for n in region_facts.target_names(c.target))
        self.bound.append(names)
        result = self.children(node, False)
        self.bound.pop()
        return result

    def conditional(self, node: tree.Conditional, hoist: bool) -> tree.Expr:
        if not self.ctx.depends(node.test):
            return replace(
                node,
                test=self.value(node.test, hoist),
                body=self.value(node.body, False),
                orelse=self.value(node.orelse, False),
            )
        mask = self.named_mask(node.test, hoist)
        a, b = self.value(node.body, hoist), self.value(node.orelse, hoist)
        return self.merged(mask, a, self.kind_of(a, node.body), b, self.kind_of(b, node.orelse), node, node)

    def kind_of(self, new: tree.Expr, old: tree.Expr) -> Kind:
        kind = self.ctx.kind(new)
        return self.ctx.facts.kind(old) if isinstance(kind, Bottom) else kind

    def merged(
        self,
        mask: tree.Expr,
        a: tree.Expr,
        ka: Kind,
        b: tree.Expr,
        kb: Kind,
        node: tree.Node,
        root: numbers.Root | None,
    ) -> tree.Expr:
        return merge(self.ctx, mask, Side(a, ka), Side(b, kb), node, lambda: self.float_dtype(root))

    def float_dtype(self, root: numbers.Root | None) -> tree.Expr:
        return numbers.float_dtype(self.met, root, self.scope.names, self.scope.kinds_in_scope())

    def bool_value(self, node: tree.BoolOp, hoist: bool) -> tree.Expr:
        left, _right = self.ctx.facts.kind(node.left), self.ctx.facts.kind(node.right)
        if not depends(left):
            return replace(node, left=self.value(node.left, hoist), right=self.value(node.right, False))
        if self.boolean(node.left) and self.boolean(node.right):
            return self.mask(node, hoist)
        a = self.value(node.left, hoist)
        if hoist and not isinstance(a, tree.Name | tree.Constant):
            made = self.ctx.temporary(hints.hint(node.left, "left"), left)
            self.scope.emit(tree.Assign((made,), a))
            a = made
        test = a if is_bool(left) else self.nonzero(a)
        b = self.value(node.right, hoist)
        kb = self.kind_of(b, node.right)
        if node.op == "or":
            return self.merged(test, a, self.kind_of(a, node.left), b, kb, node, node)
        return self.merged(test, b, kb, a, self.kind_of(a, node.left), node, node)

    def boolean(self, node: tree.Expr) -> bool:
        """Whether the value is a bool for certain."""
        if isinstance(node, tree.BoolOp):
            return self.boolean(node.left) and self.boolean(node.right)
        if isinstance(node, tree.Unary) and node.op == "not":
            return True
        return is_bool(self.ctx.facts.kind(node))

    def binary(self, node: tree.Binary, hoist: bool) -> tree.Expr:
        left, right = self.value(node.left, hoist), self.value(node.right, hoist)
        kinds = self.ctx.facts.kind(node.left), self.ctx.facts.kind(node.right)
        result = self.ctx.facts.kind(node)
        if isinstance(result, Tensor):
            left = self.as_met(left, kinds[0], right, kinds[1], node.left)
            right = self.as_met(right, kinds[1], left, kinds[0], node.right)
        if isinstance(result, Number) and result.what == "float":
            left = self.as_float(left, kinds[0], node)
            right = self.as_float(right, kinds[1], node)
        elif isinstance(result, Number) and result.what == "int":
            left, right = self.as_int(left, kinds[0]), self.as_int(right, kinds[1])
        if left is node.left and right is node.right:
            return node
        return replace(node, left=left, right=right)

    def as_met(self, number: tree.Expr, kind: Kind, tensor: tree.Expr, other: Kind, root: tree.Expr) -> tree.Expr:
        """A number that meets tensors of several dtypes is held in the widest, and takes on that of each at its use."""
        if not (
            isinstance(kind, Number)
            and kind.what == "float"
            and isinstance(other, Tensor)
            and isinstance(root, tree.Name)
        ):
            return number
        if any(root.id == p.name for p in self.ctx.callee.params) or not isinstance(tensor, tree.Name):
            return number
        if numbers.held_dtype(self.met, root.id) == other.dtype and other.dtype is not None:
            return number
        dtype = tree.Attribute(tensor, "dtype") if is_floating(other.dtype) else numbers.floating_dtype(tensor)
        return tree.Call(tree.Attribute(number, "to"), (tree.Argument(dtype),))

    def as_float(self, expr: tree.Expr, kind: Kind, root: tree.Expr) -> tree.Expr:
        """Python turns an int into a double; torch would turn an int tensor into its default float."""
        if isinstance(kind, Number) and kind.what in ("int", "bool"):
            return tree.Call(tree.Attribute(expr, "to"), (tree.Argument(self.float_dtype(root)),))
        return expr

    def as_int(self, expr: tree.Expr, kind: Kind) -> tree.Expr:
        """Python's bools are ints in arithmetic; torch's add and multiply to bools again."""
        if isinstance(kind, Number) and kind.what == "bool":
            return method_call(expr, "long")
        return expr

    # --- calls ------------------------------------------------------------------------------

    def call(self, node: tree.Call, hoist: bool) -> tree.Expr:
        func = self.ctx.facts.kind(node.func)
        args = [a.value for a in node.args]
        data = any(self.ctx.depends(a) for a in args)
        if isinstance(func, Static) and func.what == "builtin" and data and not any(a.star for a in node.args):
            converted = self.builtin(node, str(func.value), hoist)
            if converted is not None:
                return converted
        if isinstance(func, Static) and func.what == "method" and isinstance(node.func, tree.Attribute):
            base = self.ctx.facts.kind(node.func.value)
            if depends(base):
                converted = self.method(node, node.func, base, hoist)
                if converted is not None:
                    return converted
        if isinstance(func, Static) and func.what == "math" and data:
            return self.math(node, str(func.value).rsplit(".", 1)[-1], hoist)
        if isinstance(func, Static) and func.what == "torch" and data:
            converted = self.torch(node, str(func.value), hoist)
            if converted is not None:
                return converted
        new = self.children(node, hoist)
        assert isinstance(new, tree.Call)
        return self.arguments_as_tensors(node, new)

    def arguments_as_tensors(self, node: tree.Call, new: tree.Call) -> tree.Call:
        """A helper whose parameter is a bool tensor in some call is given one in each: ``~True`` is -2."""
        callees = self.ctx.facts.callees.get(node, frozenset())
        if not callees:
            return new
        arguments = list(new.args)
        for callee in callees:
            names = list(callee.positional)
            if callee.owner is not None and not callee.is_staticmethod:
                names = names[1:]
            by_name = {p.name: p for p in callee.params}
            for k, arg in enumerate(new.args):
                if arg.star:
                    break
                param = by_name.get(arg.keyword) if arg.keyword else names[k] if k < len(names) else None
                if param is None:
                    continue
                have = self.ctx.facts.kind(node.args[k].value)
                want = self.ctx.facts.params.get(callee, {}).get(param.name, Bottom())
                if isinstance(have, Static) and have.what == "bool" and isinstance(want, Number):
                    arguments[k] = replace(arg, value=torch_call("tensor", arg.value))
        return (
            new
            if all(a is b for a, b in zip(arguments, new.args, strict=True))
            else replace(new, args=tuple(arguments))
        )

    def builtin(self, node: tree.Call, name: str, hoist: bool) -> tree.Expr | None:
        args = node.args
        if name in ("min", "max") and not any(a.keyword for a in args):
            return self.extremum(node, name, hoist)
        if name == "bool" and len(args) == 1:
            return self.mask(args[0].value, hoist)
        if name in ("float", "int") and len(args) == 1:
            return self.to_number(node, name, self.value(args[0].value, hoist), self.ctx.facts.kind(args[0].value))
        if name == "round" and len(args) == 1 and isinstance(self.ctx.facts.kind(args[0].value), Number):
            inner = self.value(args[0].value, hoist)
            return method_call(method_call(inner, "round"), "long")
        if name in ("any", "all") and len(args) == 1:
            return self.any_all(node, name, hoist)
        if name == "range":
            self.ctx.refuse("dynamic-range", node, "the number of steps depends on the data")
            return node
        if name == "isinstance" and isinstance(self.ctx.facts.kind(args[0].value), Number):
            self.ctx.refuse("identity-test", node)
            return node
        if name in ("str", "repr", "format", "hash", "id"):
            self.ctx.refuse("python-value", node, f"{name}() of a value")
            return node
        if name in ("sorted",):
            return self.sorted_two(node, hoist)
        if name == "divmod":
            a, b = (self.value(x.value, hoist) for x in args)
            return tree.Tuple((tree.Binary("//", a, b), tree.Binary("%", a, b)))
        return None

    def extremum(self, node: tree.Call, name: str, hoist: bool) -> tree.Expr | None:
        """min and max keep the first of equal values, and whatever a NaN compares false with."""
        args = [a.value for a in node.args]
        if len(args) == 1:
            kind = self.ctx.facts.kind(args[0])
            if isinstance(kind, Sequence) and kind.items is not None and isinstance(args[0], tree.Tuple | tree.List):
                args = list(args[0].items)
            elif isinstance(kind, Sequence) and kind.items is not None and isinstance(args[0], tree.Name):
                args = [
                    self.ctx.made(tree.Subscript(args[0], (tree.Constant(k),), at=node.at), item)
                    for k, item in enumerate(kind.items)
                ]
                for a, item in zip(args, kind.items, strict=True):
                    self.ctx.facts.kinds[a] = item
            elif isinstance(kind, Sequence):
                self.ctx.refuse("unsupported", node, f"{name}() over a sequence whose length is not known")
                return node
            else:
                self.ctx.refuse("unsupported", node, f"{name}() over the elements of a tensor: use torch.{name}")
                return node
        if any(isinstance(a, tree.Starred) for a in args) or not args:
            self.ctx.refuse("unsupported", node, f"{name}() with a starred argument")
            return node
        best = self.value(args[0], hoist)
        kind = self.kind_of(best, args[0])
        for k, arg in enumerate(args[1:]):
            best = self.atom(best, kind, name, hoist)
            other = self.atom(self.value(arg, hoist), self.ctx.facts.kind(arg), hints.hint(arg, "value"), hoist)
            other_kind = self.kind_of(other, arg)
            if not depends(kind) and not depends(other_kind):
                whole = tree.Call(node.func, (tree.Argument(best), tree.Argument(other)))
                best, kind = whole, kind if k else other_kind
                self.ctx.made_kinds[whole] = kind
                continue
            test: tree.Expr = tree.Compare(other, (">" if name == "max" else "<",), (best,))
            if hoist:
                # Used twice or not: tidy inlines what is used once.
                made = self.ctx.temporary(hints.hint(test, "mask"), Tensor(True, "bool", ()))
                self.scope.emit(tree.Assign((made,), test))
                test = made
            best = self.merged(test, other, other_kind, best, kind, node, node)
            kind = self.ctx.kind(best)
        return best

    def atom(self, expr: tree.Expr, kind: Kind, hint: str, hoist: bool) -> tree.Expr:
        """The value under a name where it is used more than once and is no name or literal already."""
        plain = isinstance(expr, tree.Name | tree.Constant) or (
            isinstance(expr, tree.Unary) and isinstance(expr.operand, tree.Constant | tree.Name)
        )
        if plain or not hoist or (isinstance(expr, tree.Attribute) and isinstance(expr.value, tree.Name)):
            return expr
        made = self.ctx.temporary(hint, kind)
        self.scope.emit(tree.Assign((made,), expr))
        return made

    def sorted_two(self, node: tree.Call, hoist: bool) -> tree.Expr | None:
        arg = node.args[0].value
        if len(node.args) != 1 or not isinstance(arg, tree.Tuple | tree.List) or len(arg.items) != 2:
            self.ctx.refuse("unsupported", node, "sorted() of values: use torch.sort")
            return node
        a = self.atom(self.value(arg.items[0], hoist), self.ctx.facts.kind(arg.items[0]), "first", hoist)
        b = self.atom(self.value(arg.items[1], hoist), self.ctx.facts.kind(arg.items[1]), "second", hoist)
        test: tree.Expr = tree.Compare(b, ("<",), (a,))
        if hoist:
            made = self.ctx.temporary(hints.hint(test, "swap"), Tensor(True, "bool", ()))
            self.scope.emit(tree.Assign((made,), test))
            test = made
        ka, kb = self.kind_of(a, arg.items[0]), self.kind_of(b, arg.items[1])
        return tree.List((self.merged(test, b, kb, a, ka, node, node), self.merged(test, a, ka, b, kb, node, node)))

    def any_all(self, node: tree.Call, name: str, hoist: bool) -> tree.Expr:
        arg = node.args[0].value
        kind = self.ctx.facts.kind(arg)
        if isinstance(kind, Tensor):
            inner = self.value(arg, hoist)
            return method_call(inner if is_bool(kind) else tree.Compare(inner, ("!=",), (tree.Constant(0),)), name)
        if (
            isinstance(arg, tree.List | tree.Tuple)
            and arg.items
            and not any(isinstance(i, tree.Starred) for i in arg.items)
        ):
            masks = [self.mask(i, hoist) for i in arg.items]
            result = masks[0]
            for m in masks[1:]:
                result = tree.Binary("|" if name == "any" else "&", result, m)
            return result
        if (
            isinstance(arg, tree.Comprehension)
            and isinstance(kind, Sequence)
            and not any(c.conditions for c in arg.clauses)
        ):
            names = frozenset(n.id for c in arg.clauses for n in region_facts.target_names(c.target))
            self.bound.append(names)
            element_ = (
                self.mask(arg.element, False) if self.ctx.depends(arg.element) else self.value(arg.element, False)
            )
            clauses = tuple(replace(c, iter=self.value(c.iter, False)) for c in arg.clauses)
            self.bound.pop()
            items = tree.Comprehension("list", element_, clauses)
            return method_call(torch_call("stack", items), name)
        self.ctx.refuse("unsupported", node, f"{name}() over this iterable")
        return node

    def to_number(self, node: tree.Expr, name: str, inner: tree.Expr, kind: Kind) -> tree.Expr:
        """float() and int() leave autograd, and give Python numbers: doubles, and ints cut towards zero."""
        what = kind.what if isinstance(kind, Number) else ""
        if name == what:
            return inner
        base = (
            method_call(inner, "detach")
            if not isinstance(kind, Number) and not (isinstance(kind, Tensor) and kind.dtype == "bool")
            else inner
        )
        if name == "int":
            return method_call(base, "long")
        return method_call(base, "double")

    def method(self, node: tree.Call, func: tree.Attribute, base: Kind, hoist: bool) -> tree.Expr | None:
        name = func.attr
        if name == "item" and isinstance(base, Tensor | Unknown):
            inner = self.value(func.value, hoist)
            dtype = base.dtype if isinstance(base, Tensor) else None
            if dtype == "bool":
                return inner
            if dtype is not None and dtype.startswith(("int", "uint")):
                return method_call(inner, "long")
            return method_call(method_call(inner, "detach"), "double")
        if name in ("tolist", "numpy") and isinstance(base, Tensor):
            if name == "tolist":
                self.ctx.refuse("python-value", node, ".tolist()")
                return node
            return None
        if name in ("nonzero", "masked_select", "unique") and isinstance(base, Tensor):
            self.ctx.refuse("dynamic-shape", node, f".{name}()")
            return node
        return None

    def torch(self, node: tree.Call, dotted: str, hoist: bool) -> tree.Expr | None:
        name = dotted.rsplit(".", 1)[-1]
        if name == "tensor" and len(node.args) >= 1:
            return self.tensor(node, hoist)
        if (
            name in ("equal", "allclose")
            and len(node.args) >= 2
            and not any(a.star or a.keyword for a in node.args[:2])
        ):
            if name == "equal":
                a, b = (self.value(x.value, hoist) for x in node.args[:2])
                return method_call(tree.Compare(a, ("==",), (b,)), "all")
            close = replace(node, func=tree.TorchName("isclose"))
            return method_call(self.children(close, hoist), "all")
        if name in ("nonzero", "masked_select", "unique", "argwhere") or (name == "where" and len(node.args) == 1):
            self.ctx.refuse("dynamic-shape", node, f"torch.{name}")
            return node
        return None

    def tensor(self, node: tree.Call, hoist: bool) -> tree.Expr | None:
        """``torch.tensor`` of batched values copies them out of autograd: a stack of detached values."""
        data = node.args[0].value
        dtype = next((a.value for a in node.args[1:] if a.keyword == "dtype"), None)
        kind = self.ctx.facts.kind(node)
        if not isinstance(data, tree.List | tree.Tuple):
            inner = self.value(data, hoist)
            base = inner if isinstance(self.ctx.facts.kind(data), Number) else method_call(inner, "detach")
            if dtype is not None:
                return tree.Call(tree.Attribute(base, "to"), (tree.Argument(self.value(dtype, hoist)),))
            if isinstance(self.ctx.facts.kind(data), Number):
                if self.ctx.facts.kind(data) == Number("float"):
                    return tree.Call(tree.Attribute(base, "to"), (tree.Argument(torch_call("get_default_dtype")),))
                return base
            return method_call(base, "clone")
        target = self.value(dtype, hoist) if dtype is not None else None
        if target is None:
            if not isinstance(kind, Tensor) or kind.dtype is None:
                self.ctx.refuse("unsupported", node, "torch.tensor of values whose dtype is not known: use torch.stack")
                return node
            target = numbers.dtype_expr(kind.dtype, [data.items[0]], self.scope.names, self.scope.kinds_in_scope())
        return self._stacked(data, target, hoist)

    def _stacked(self, data: tree.Expr, dtype: tree.Expr, hoist: bool) -> tree.Expr:
        if isinstance(data, tree.List | tree.Tuple):
            return torch_call("stack", tree.List(tuple(self._stacked(i, dtype, hoist) for i in data.items)))
        inner, kind = self.value(data, hoist), self.ctx.facts.kind(data)
        if isinstance(kind, Static):
            return torch_call("tensor", inner, dtype=dtype)
        base = inner if isinstance(kind, Number) else method_call(inner, "detach")
        return tree.Call(tree.Attribute(base, "to"), (tree.Argument(dtype),))

    def math(self, node: tree.Call, name: str, hoist: bool) -> tree.Expr:
        """math.* on a value: outside autograd, in doubles."""
        twin = {
            "fabs": "abs",
            "pow": "pow",
            "gamma": "",
            "lgamma": "lgamma",
            "copysign": "copysign",
            "fmod": "fmod",
        }.get(name, name)
        known = [
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atan2",
            "atanh",
            "ceil",
            "copysign",
            "cos",
            "cosh",
            "erf",
            "erfc",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "fmod",
            "hypot",
            "isfinite",
            "isinf",
            "isnan",
            "lgamma",
            "log",
            "log10",
            "log1p",
            "log2",
            "pow",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
        ]
        if twin not in known:
            self.ctx.refuse("unsupported", node, f"math.{name} of a value")
            return node
        arguments: list[tree.Expr] = []
        for a in node.args:
            inner, kind = self.value(a.value, hoist), self.ctx.facts.kind(a.value)
            if isinstance(kind, Static):
                arguments.append(torch_call("tensor", inner, dtype=tree.TorchName("float64")))
            else:
                base = inner if isinstance(kind, Number) else method_call(inner, "detach")
                arguments.append(self.ctx.made(method_call(base, "double"), Number("float")))
        result: tree.Expr = torch_call(twin, *arguments)
        if name in ("floor", "ceil", "trunc"):
            result = method_call(result, "long")
        return result

    # --- tests ------------------------------------------------------------------------------

    def named_mask(self, test: tree.Expr, hoist: bool) -> tree.Expr:
        """The test as a boolean tensor, under a name of its own where there is a place for the assignment."""
        return self.named(self.test(test, hoist), test, hoist)

    def named(self, mask: tree.Expr, test: tree.Expr, hoist: bool) -> tree.Expr:
        if isinstance(mask, tree.Name) or not hoist:
            return mask
        made = self.ctx.temporary(hints.hint(test, "mask"), Tensor(True, "bool", ()))
        self.ctx.places[region_facts.key(made)] = self.scope.place
        self.scope.emit(tree.Assign((made,), mask))
        return made

    def test(self, node: tree.Expr, hoist: bool = True) -> tree.Expr:
        """The truth of the expression as a bool tensor without dimensions: one of one element would lend its own to what it picks."""
        mask = self.mask(node, hoist)
        kind = self.ctx.kind(mask)
        if not isinstance(kind, Tensor) or not kind.shape or all(d is Ellipsis for d in kind.shape):
            return mask
        return self.ctx.made(method_call(mask, "reshape", tree.Tuple(())), Tensor(True, "bool", ()))

    def mask(self, node: tree.Expr, hoist: bool = True) -> tree.Expr:
        """The truth of the expression as a bool tensor."""
        new = self._mask(node, hoist)
        if new not in self.ctx.made_kinds and not (isinstance(new, tree.Name) and new.version):
            kind = self.ctx.facts.kind(node)
            shape = kind.shape if isinstance(kind, Tensor) else ()
            self.ctx.made_kinds[new] = Tensor(True, "bool", shape)
        return new

    def _mask(self, node: tree.Expr, hoist: bool) -> tree.Expr:
        kind = self.ctx.facts.kind(node)
        if not depends(kind):
            return self.static_mask(node, hoist)
        if isinstance(node, tree.BoolOp):
            return self.bool_mask(node, hoist)
        if isinstance(node, tree.Unary) and node.op == "not":
            return tree.Unary("~", self.mask(node.operand, hoist))
        if isinstance(node, tree.Compare):
            return self.comparison(node, hoist)
        if isinstance(node, tree.Conditional) and self.ctx.depends(node.test):
            test = self.named_mask(node.test, hoist)
            return tree.Select(test, self.mask(node.body, hoist), self.mask(node.orelse, hoist))
        value = self.value(node, hoist)
        if isinstance(self.ctx.kind(value), Static):
            # A choice between equal numbers is still that number.
            return torch_call("tensor", value if is_bool(kind) else self.nonzero(value))
        if is_bool(kind) and not isinstance(node, tree.Conditional):
            return value
        return self.nonzero(value) if not is_bool(self.kind_of(value, node)) else value

    def nonzero(self, value: tree.Expr) -> tree.Expr:
        return tree.Compare(value, ("!=",), (tree.Constant(0),))

    def static_mask(self, node: tree.Expr, hoist: bool) -> tree.Expr:
        kind = self.ctx.facts.kind(node)
        if isinstance(kind, Tensor):
            value = self.value(node, hoist)
            return value if kind.dtype == "bool" else self.nonzero(value)
        value = self.value(node, hoist)
        return torch_call(
            "tensor",
            value
            if isinstance(kind, Static) and kind.what == "bool"
            else tree.Call(tree.Name("bool"), (tree.Argument(value),)),
        )

    def bool_mask(self, node: tree.BoolOp, hoist: bool) -> tree.Expr:
        op = "&" if node.op == "and" else "|"
        left, right = self.ctx.depends(node.left), self.ctx.depends(node.right)
        if left and right:
            return tree.Binary(op, self.mask(node.left, hoist), self.mask(node.right, hoist))
        if left:
            return tree.Binary(op, self.mask(node.left, hoist), self.static_truth(node.right))
        # The static part protects the other: it stays a choice of Python's.
        settled = torch_call("tensor", tree.Constant(node.op == "or"))
        test, guarded = self.value(node.left, hoist), self.mask(node.right, False)
        if node.op == "and":
            return tree.Conditional(test, guarded, settled)
        return tree.Conditional(test, settled, guarded)

    def static_truth(self, node: tree.Expr) -> tree.Expr:
        kind = self.ctx.facts.kind(node)
        value = self.value(node, False)
        if is_bool(kind):
            return value
        return tree.Call(tree.Name("bool"), (tree.Argument(value),))

    def comparison(self, node: tree.Compare, hoist: bool) -> tree.Expr:
        operands = [node.left, *node.rest]
        if len(node.ops) == 1:
            if node.ops[0] in ("in", "not in"):
                return self.membership(node, hoist)
            return self.children(node, hoist)
        converted = [self.value(operands[0], hoist)]
        for k, operand in enumerate(operands[1:]):
            inner = self.value(operand, hoist)
            last = k == len(operands) - 2
            converted.append(
                inner if last else self.atom(inner, self.ctx.facts.kind(operand), hints.hint(operand, "middle"), hoist)
            )
        parts = [tree.Compare(a, (op,), (b,)) for a, op, b in zip(converted, node.ops, converted[1:], strict=False)]
        if any(op not in _COMPARISONS for op in node.ops):
            self.ctx.refuse("unsupported", node, "a chained comparison with `in` or `is`")
            return node
        result: tree.Expr = parts[0]
        for p in parts[1:]:
            result = tree.Binary("&", result, p)
        return result

    def membership(self, node: tree.Compare, hoist: bool) -> tree.Expr:
        container = node.rest[0]
        kind = self.ctx.facts.kind(container)
        if isinstance(container, tree.Tuple | tree.List | tree.Set) and not any(
            isinstance(i, tree.Starred) for i in container.items
        ):
            items = [self.value(i, hoist) for i in container.items]
        elif isinstance(kind, Sequence) and kind.items is not None and isinstance(container, tree.Name):
            items = [tree.Subscript(self.value(container, hoist), (tree.Constant(k),)) for k in range(len(kind.items))]
        elif isinstance(kind, Tensor):
            item = self.value(node.left, hoist)
            found: tree.Expr = method_call(tree.Compare(self.value(container, hoist), ("==",), (item,)), "any")
            return found if node.ops[0] == "in" else tree.Unary("~", found)
        else:
            self.ctx.refuse("unsupported", node, "membership in something whose elements are not known")
            return node
        value = self.atom(
            self.value(node.left, hoist), self.ctx.facts.kind(node.left), hints.hint(node.left, "item"), hoist
        )
        tests: list[tree.Expr] = [tree.Compare(value, ("==",), (i,)) for i in items]
        if not tests:
            return torch_call("tensor", tree.Constant(node.ops[0] != "in"))
        result = tests[0]
        for t in tests[1:]:
            result = tree.Binary("|", result, t)
        return result if node.ops[0] == "in" else tree.Unary("~", result)


__all__ = ["MISSING", "Expressions", "Mapping", "Scope", "element", "taint"]
