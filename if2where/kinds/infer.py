"""A kind for every expression of the program, by abstract interpretation to a fixpoint.

The interpreter walks each function in scope with the kinds of its parameters, follows the
calls that it can resolve with the kinds of their arguments, and repeats until nothing changes.
Nothing is run. Where a data-dependent test decides between two values of a variable, its kind
after the join is *tainted*: it may differ from sample to sample from there on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from if2where.kinds import calls
from if2where.kinds.lattice import (
    BOTTOM,
    MISSING,
    STATIC,
    Bottom,
    Bound,
    ClassObject,
    Function,
    Instance,
    Kind,
    Mapping,
    Number,
    Sequence,
    Static,
    Tensor,
    Unknown,
    broadcast,
    depends,
    element,
    join,
    join_all,
    promote,
    promote_number,
    taint,
    to_float,
)
from if2where.program import Callee, Program
from if2where.region import facts, tree

#: How often a function or loop may be walked before what still changes is widened to Unknown.
MAX_ROUNDS = 40


@dataclass(frozen=True)
class Value:
    """A variable's kind with the identity of the assignment or join that it comes from."""

    kind: Kind
    origin: Any


Env = dict[str, Value]


@dataclass(frozen=True)
class Facts:
    """What inference found out. Keys are tree nodes (compared by identity)."""

    kinds: dict[tree.Expr, Kind]
    callees: dict[tree.Call, frozenset[Callee]]
    params: dict[Callee, dict[str, Kind]]
    returns: dict[Callee, Kind]
    attributes: dict[Any, dict[str, Kind]]
    variables: dict[Callee, dict[str, Kind]]
    env_before: dict[tree.Stmt, dict[str, Kind]]
    callers: dict[Callee, frozenset[Callee]]

    def kind(self, node: tree.Expr) -> Kind:
        return self.kinds.get(node, BOTTOM)


def infer(program: Program, entries: dict[Callee, dict[str, Kind]]) -> Facts:
    """Kinds for all functions reachable from the entries, whose parameters have the given kinds."""
    return _Interpreter(program).run(entries)


@dataclass
class _Loop:
    control: int
    breaks: list[Env] = field(default_factory=list)
    continues: list[Env] = field(default_factory=list)
    data_exit: bool = False
    data_continue: bool = False


class _Interpreter:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.params: dict[Callee, dict[str, Kind]] = {}
        self.returns: dict[Callee, Kind] = {}
        self.attributes: dict[Any, dict[str, Kind]] = {}
        self.variables: dict[Callee, dict[str, Kind]] = {}
        self.kinds: dict[tree.Expr, Kind] = {}
        self.callees: dict[tree.Call, frozenset[Callee]] = {}
        self.callers: dict[Callee, frozenset[Callee]] = {}
        self.env_before: dict[tree.Stmt, dict[str, Kind]] = {}
        self.readers: dict[Any, set[Callee]] = {}
        self.dirty: dict[Callee, None] = {}
        self.liveness: dict[Callee, facts.Liveness] = {}

    def run(self, entries: dict[Callee, dict[str, Kind]]) -> Facts:
        for callee, params in entries.items():
            self.push(callee, params)
        rounds: dict[Callee, int] = {}
        while self.dirty:
            callee = next(iter(self.dirty))
            del self.dirty[callee]
            rounds[callee] = rounds.get(callee, 0) + 1
            if rounds[callee] > MAX_ROUNDS:
                continue
            _Frame(self, callee).run()
        return Facts(
            self.kinds,
            self.callees,
            self.params,
            self.returns,
            self.attributes,
            self.variables,
            self.env_before,
            self.callers,
        )

    def live(self, callee: Callee) -> facts.Liveness:
        if callee not in self.liveness:
            body = callee.node.body
            self.liveness[callee] = facts.liveness(body if isinstance(body, tuple) else ())
        return self.liveness[callee]

    def push(self, callee: Callee, arguments: dict[str, Kind]) -> None:
        """Join the arguments into what the function's parameters may be; look at it (again) where that is news."""
        old = self.params.get(callee)
        new = dict(old or {})
        for p in callee.params:
            new[p.name] = join(new.get(p.name, BOTTOM), arguments.get(p.name, BOTTOM))
        if new != old:
            self.params[callee] = new
            self.dirty[callee] = None

    def set_return(self, callee: Callee, kind: Kind) -> None:
        if join(self.returns.get(callee, BOTTOM), kind) != self.returns.get(callee):
            self.returns[callee] = join(self.returns.get(callee, BOTTOM), kind)
            self.wake(("return", callee))

    def set_attribute(self, owner: Any, name: str, kind: Kind) -> None:
        table = self.attributes.setdefault(owner, {})
        new = join(table.get(name, BOTTOM), kind)
        if new != table.get(name):
            table[name] = new
            self.wake(("attribute", owner))

    def set_variable(self, callee: Callee, name: str, kind: Kind) -> None:
        table = self.variables.setdefault(callee, {})
        new = join(table.get(name, BOTTOM), kind)
        if new != table.get(name):
            table[name] = new
            self.wake(("variables", callee))

    def wake(self, what: Any) -> None:
        for reader in self.readers.get(what, ()):
            self.dirty[reader] = None


class _Frame:
    """One walk over one function."""

    def __init__(self, owner: _Interpreter, callee: Callee) -> None:
        self.i = owner
        self.callee = callee
        self.loops: list[_Loop] = []
        #: Depth of data-dependent control at this point; a partial exit raises it for the rest.
        self.control = 0
        self.result: Kind = BOTTOM
        self.data_returns = False

    def run(self) -> None:
        env: Env = {}
        for p in self.callee.params:
            env[p.name] = Value(self.i.params[self.callee].get(p.name, BOTTOM), ("parameter", p.name))
            self.i.set_variable(self.callee, p.name, env[p.name].kind)
        root = self.callee.node
        if isinstance(root, tree.Lambda):
            self.result = self.expr(root.body, env)
        else:
            end = self.block(root.body, env)
            if end is not None:
                self.give(Static("none", None))
        kind = taint(self.result) if self.data_returns else self.result
        self.i.set_return(self.callee, kind)

    def listen(self, what: Any) -> None:
        self.i.readers.setdefault(what, set()).add(self.callee)

    def give(self, kind: Kind) -> None:
        self.data_returns = self.data_returns or self.control > 0
        self.result = join(self.result, kind)

    # --- statements -------------------------------------------------------------------------

    def block(self, block: tree.Block, env: Env | None) -> Env | None:
        for stmt in block:
            if env is None:
                return None
            before = self.i.env_before.setdefault(stmt, {})
            for name, value in env.items():
                before[name] = join(before.get(name, BOTTOM), value.kind)
            env = self.statement(stmt, env)
        return env

    def statement(self, stmt: tree.Stmt, env: Env) -> Env | None:
        if isinstance(stmt, tree.Assign):
            kind = self.expr(stmt.value, env)
            for target in stmt.targets:
                self.assign(target, kind, env, stmt)
        elif isinstance(stmt, tree.AnnAssign):
            if stmt.value is not None:
                self.assign(stmt.target, self.expr(stmt.value, env), env, stmt)
        elif isinstance(stmt, tree.AugAssign):
            old = self.expr(stmt.target, env)
            new = self.binary(stmt.op, old, self.expr(stmt.value, env))
            if isinstance(old, Tensor) and isinstance(new, Tensor) and not old.optional:
                new = replace(new, dtype=old.dtype)
            self.assign(stmt.target, new, env, stmt)
        elif isinstance(stmt, tree.ExprStmt):
            self.expr(stmt.value, env)
            self.effects_of_call(stmt.value, env)
        elif isinstance(stmt, tree.If):
            return self.branch(stmt, env)
        elif isinstance(stmt, tree.For):
            return self.for_loop(stmt, env)
        elif isinstance(stmt, tree.While):
            return self.while_loop(stmt, env)
        elif isinstance(stmt, tree.With):
            for item in stmt.items:
                kind = self.expr(item.context, env)
                if item.target is not None:
                    self.assign(item.target, Unknown(depends(kind)), env, stmt)
            return self.block(stmt.body, env)
        elif isinstance(stmt, tree.Return):
            self.give(Static("none", None) if stmt.value is None else self.expr(stmt.value, env))
            self.exit()
            return None
        elif isinstance(stmt, tree.Break):
            loop = self.loops[-1]
            loop.data_exit = loop.data_exit or self.control > loop.control
            loop.breaks.append(dict(env))
            return None
        elif isinstance(stmt, tree.Continue):
            loop = self.loops[-1]
            loop.data_continue = loop.data_continue or self.control > loop.control
            loop.continues.append(dict(env))
            return None
        elif isinstance(stmt, tree.Raise):
            for child in (stmt.exc, stmt.cause):
                if child is not None:
                    self.expr(child, env)
            return None
        elif isinstance(stmt, tree.FunctionDef):
            inner = self.i.program.nested(stmt, self.callee)
            env[stmt.name] = Value(Function(frozenset([inner])), stmt)
            self.i.set_variable(self.callee, stmt.name, env[stmt.name].kind)
            self.escape_closure(stmt, env)
        elif isinstance(stmt, tree.Import):
            for name, dotted in stmt.names:
                env[name] = Value(self.i.program.imported(dotted, self.callee.module), stmt)
                self.i.set_variable(self.callee, name, env[name].kind)
        elif isinstance(stmt, tree.OpaqueStmt):
            return self.opaque(stmt, env)
        else:
            for part in tree.children(stmt):
                if isinstance(part, tree.Expr):
                    self.expr(part, env)
        return env

    def exit(self) -> None:
        for loop in self.loops:
            loop.data_exit = loop.data_exit or self.control > loop.control

    def opaque(self, stmt: tree.OpaqueStmt, env: Env) -> Env | None:
        for e in stmt.expressions:
            self.expr(e, env)
        for name in stmt.binds:
            env[name] = Value(Unknown(True), stmt)
            self.i.set_variable(self.callee, name, Unknown(True))
        ends: list[Env] = [dict(env)]
        for b in stmt.blocks:
            start = self.merge_all(ends, ("opaque", stmt), False)
            end = self.block(b, dict(start)) if start is not None else None
            if end is not None:
                ends.append(end)
        return self.merge_all(ends, ("opaque", stmt), False)

    def branch(self, stmt: tree.If, env: Env) -> Env | None:
        test = self.expr(stmt.test, env)
        decided = self.decide(stmt.test, env)
        data = depends(test) and decided is None
        self.control += data
        body_env, else_env = dict(env), dict(env)
        body = self.block(stmt.body, body_env) if decided is not False else None
        orelse = self.block(stmt.orelse, else_env) if decided is not True else None
        self.control -= data
        if data and (body is None) != (orelse is None) and self.exits(stmt):
            # What follows runs only for the samples that have not left: returns from there on are data-dependent.
            self.partial_exit()
        return self.merge_all([e for e in (body, orelse) if e is not None], ("if", stmt), data)

    def exits(self, stmt: tree.If) -> bool:
        return facts.has_exit((stmt,), tree.Return, tree.Break, tree.Continue)

    def partial_exit(self) -> None:
        """Some samples have left: a value returned from here on is one of several that the data pick from."""
        self.data_returns = True

    def merge_all(self, envs: list[Env], where: Any, data: bool) -> Env | None:
        if not envs:
            return None
        result = envs[0]
        for other in envs[1:]:
            result = self.merge(result, other, where, data)
        return result

    def merge(self, a: Env, b: Env, where: Any, data: bool) -> Env:
        merged: Env = {}
        for name in {**a, **b}:
            x, y = a.get(name), b.get(name)
            if x is None or y is None:
                one = x or y
                assert one is not None
                kind = taint(one.kind) if data else one.kind
                merged[name] = Value(kind, (where, name))
            elif x.origin == y.origin:
                merged[name] = Value(join(x.kind, y.kind), x.origin)
            else:
                kind = join(x.kind, y.kind)
                merged[name] = Value(taint(kind) if data else kind, (where, name))
            if "." not in name:
                self.i.set_variable(self.callee, name, merged[name].kind)
        return merged

    def for_loop(self, stmt: tree.For, env: Env) -> Env | None:
        iterated = self.expr(stmt.iter, env)
        return self.loop(stmt, env, lambda e: self.assign(stmt.target, calls.iteration(iterated), e, stmt), True)

    def while_loop(self, stmt: tree.While, env: Env) -> Env | None:
        forever = isinstance(stmt.test, tree.Constant) and bool(stmt.test.value)
        return self.loop(stmt, env, lambda e: None, not forever)

    def loop(self, stmt: tree.For | tree.While, env: Env, enter: Any, can_end: bool) -> Env | None:
        head: Env = dict(env)
        read_after = {n for n, _ in self.i.live(self.callee).after.get(stmt, ())} & {
            n for n, _ in facts.writes(stmt.body)
        }
        for round_ in range(MAX_ROUNDS):
            loop = _Loop(self.control)
            start = dict(head)
            if isinstance(stmt, tree.While) and depends(self.expr(stmt.test, start)):
                loop.data_exit = True
            enter(start)
            self.loops.append(loop)
            end = self.block(stmt.body, start)
            self.loops.pop()
            back = [e for e in [end, *loop.continues] if e is not None]
            new = head
            if back:
                new = self.merge(
                    head, self.merge_all(back, ("continue", stmt), loop.data_continue) or head, ("loop", stmt), False
                )
            if loop.data_exit:
                # Samples leave with different values of what is read later: it differs from the first step on.
                new = {n: replace(v, kind=taint(v.kind)) if n in read_after else v for n, v in new.items()}
            if round_ > 6:
                new = {
                    n: v if n in head and head[n].kind == v.kind else replace(v, kind=Unknown(True))
                    for n, v in new.items()
                }
            if all(n in head and head[n].kind == v.kind for n, v in new.items()):
                head = new
                break
            head = new
        done: Env | None = dict(head)
        if isinstance(stmt, tree.While):
            self.expr(stmt.test, dict(head))
        if not can_end:
            done = None
        if stmt.orelse and done is not None:
            self.control += loop.data_exit
            done = self.block(stmt.orelse, done)
            self.control -= loop.data_exit
        out = self.merge_all([e for e in [done, *loop.breaks] if e is not None], ("after", stmt), loop.data_exit)
        if out is not None and loop.data_exit:
            for name, _ in facts.writes(stmt.body):
                if name in out:
                    out[name] = Value(taint(out[name].kind), (("after", stmt), name))
                    if name in read_after:
                        self.i.set_variable(self.callee, name, out[name].kind)
        if loop.data_exit and facts.has_exit(stmt.body, tree.Return):
            self.partial_exit()
        return out

    # --- assignment -------------------------------------------------------------------------

    def assign(self, target: tree.Expr, kind: Kind, env: Env, stmt: tree.Stmt) -> None:
        self.i.kinds[target] = join(self.i.kinds.get(target, BOTTOM), kind)
        if isinstance(target, tree.Name):
            for path in [p for p in env if p.startswith(target.id + ".")]:
                del env[path]
            env[target.id] = Value(kind, (stmt, target.id))
            self.i.set_variable(self.callee, target.id, kind)
        elif isinstance(target, tree.Tuple | tree.List):
            self.unpack(target.items, kind, env, stmt)
        elif isinstance(target, tree.Starred):
            self.assign(target.value, Sequence("list", None, calls.iteration(kind)), env, stmt)
        elif isinstance(target, tree.Attribute):
            owner = self.expr(target.value, env)
            if isinstance(owner, Instance):
                self.i.set_attribute(owner.key, target.attr, kind)
            if isinstance(target.value, tree.Name):
                path = f"{target.value.id}.{target.attr}"
                env[path] = Value(kind, (stmt, path))
        elif isinstance(target, tree.Subscript):
            self.store(target, kind, env, stmt)

    def unpack(self, items: tuple[tree.Expr, ...], kind: Kind, env: Env, stmt: tree.Stmt) -> None:
        star = next((k for k, item in enumerate(items) if isinstance(item, tree.Starred)), None)
        parts = kind.items if isinstance(kind, Sequence) else None
        for k, item in enumerate(items):
            if parts is None or (star is None and len(parts) != len(items)) or star is not None:
                part = calls.iteration(kind)
            else:
                part = parts[k]
            if star == k:
                part = Sequence("list", None, part)
            self.assign(item, part, env, stmt)

    def store(self, target: tree.Subscript, kind: Kind, env: Env, stmt: tree.Stmt) -> None:
        """A store changes what the container is known to hold, through every name of it: weakly, but for a literal key."""
        base = self.expr(target.value, env)
        for item in target.items:
            self.expr(item, env)
        new = self.stored(base, target, kind)
        if new != base:
            self.update_path(target.value, new, env, stmt)

    def stored(self, base: Kind, target: tree.Subscript, kind: Kind) -> Kind:
        index = self.i.kinds.get(target.items[0], BOTTOM) if len(target.items) == 1 else STATIC
        if isinstance(base, Tensor):
            return replace(base, batched=base.batched or depends(kind) or depends(index))
        key = index.value if isinstance(index, Static) and not target.is_tuple else MISSING
        if isinstance(base, Sequence):
            if base.items is not None and isinstance(key, int) and -len(base.items) <= key < len(base.items):
                items = list(base.items)
                items[key] = kind if base.form == "list" else join(items[key], kind)
                return replace(base, items=tuple(items))
            if base.items is not None:
                return replace(base, items=tuple(join(i, kind) for i in base.items))
            return replace(base, element=join(base.element, kind))
        if isinstance(base, Mapping):
            if key is MISSING:
                return replace(base, values=tuple(join(v, kind) for v in base.values), exact=False)
            table = dict(zip(base.keys, base.values, strict=True))
            table[key] = kind
            return replace(base, keys=tuple(table), values=tuple(table.values()))
        return base

    def update_path(self, place: tree.Expr, kind: Kind, env: Env, stmt: tree.Stmt) -> None:
        if isinstance(place, tree.Name):
            if place.id in env:
                env[place.id] = Value(kind, (stmt, place.id))
                self.i.set_variable(self.callee, place.id, kind)
        elif isinstance(place, tree.Attribute):
            self.assign(place, kind, env, stmt)
        elif isinstance(place, tree.Subscript):
            outer = self.expr(place.value, env)
            new = self.stored(outer, place, kind)
            if new != outer:
                self.update_path(place.value, new, env, stmt)

    def effects_of_call(self, value: tree.Expr, env: Env) -> None:
        """An in-place method or list method called as a statement changes its receiver's kind."""
        if not (isinstance(value, tree.Call) and isinstance(value.func, tree.Attribute)):
            return
        base = self.expr(value.func.value, env)
        args = [self.expr(a.value, env) for a in value.args]
        if isinstance(base, Tensor) and value.func.attr.endswith("_") and any(map(depends, args)):
            self.update_path(value.func.value, replace(base, batched=True), env, tree.ExprStmt(value))
        if isinstance(base, Sequence) and value.func.attr in ("append", "insert", "extend") and args:
            more = calls.iteration(args[-1]) if value.func.attr == "extend" else args[-1]
            if base.items is not None and value.func.attr == "append" and not self.loops and not self.control:
                new = Sequence("list", (*base.items, more))
            else:
                new = Sequence("list", None, join(element(base), more))
            self.update_path(value.func.value, new, env, tree.ExprStmt(value))

    # --- expressions ------------------------------------------------------------------------

    def expr(self, node: tree.Expr, env: Env) -> Kind:
        kind = self.evaluate(node, env)
        self.i.kinds[node] = join(self.i.kinds.get(node, BOTTOM), kind)
        return kind

    def evaluate(self, node: tree.Expr, env: Env) -> Kind:
        if isinstance(node, tree.Name):
            return self.name(node.id, env)
        if isinstance(node, tree.Constant):
            return calls.constant(node.value)
        if isinstance(node, tree.TorchName):
            return Static("torch", f"torch.{node.name}")
        if isinstance(node, tree.Attribute):
            return self.attribute(node, env)
        if isinstance(node, tree.Call):
            return self.call(node, env)
        if isinstance(node, tree.Subscript):
            base = self.expr(node.value, env)
            items = [self.expr(i, env) for i in node.items]
            return calls.subscript(base, items, node.is_tuple)
        if isinstance(node, tree.Slice):
            parts = [self.expr(p, env) for p in (node.lower, node.upper, node.step) if p is not None]
            return Unknown(True) if any(map(depends, parts)) else Static("slice")
        if isinstance(node, tree.Unary):
            return self.unary(node.op, self.expr(node.operand, env))
        if isinstance(node, tree.Binary):
            return self.binary(node.op, self.expr(node.left, env), self.expr(node.right, env))
        if isinstance(node, tree.BoolOp):
            return self.bool_op(node, env)
        if isinstance(node, tree.Compare):
            return self.compare(node, env)
        if isinstance(node, tree.Conditional):
            test = self.expr(node.test, env)
            decided = self.decide(node.test, env)
            parts = []
            if decided is not False:
                parts.append(self.expr(node.body, env))
            if decided is not True:
                parts.append(self.expr(node.orelse, env))
            kind = join_all(parts)
            return taint(kind) if depends(test) and decided is None else kind
        if isinstance(node, tree.Select):
            self.expr(node.mask, env)
            a, b = self.expr(node.chosen, env), self.expr(node.other, env)
            kind = taint(join(a, b))
            if isinstance(kind, Number):
                return Tensor(True, {"bool": "bool", "int": "int64", "float": "@+f"}[kind.what], ())
            return replace(kind, optional=False) if isinstance(kind, Tensor) else kind
        if isinstance(node, tree.Tuple | tree.List | tree.Set):
            return self.display(node, env)
        if isinstance(node, tree.Dict):
            return self.dict_display(node, env)
        if isinstance(node, tree.Starred):
            return self.expr(node.value, env)
        if isinstance(node, tree.Walrus):
            kind = self.expr(node.value, env)
            self.i.kinds[node.target] = join(self.i.kinds.get(node.target, BOTTOM), kind)
            env[node.target.id] = Value(kind, (node, node.target.id))
            self.i.set_variable(self.callee, node.target.id, kind)
            return kind
        if isinstance(node, tree.Lambda):
            self.escape_closure(node, env)
            for p in node.params:
                if p.default is not None:
                    self.expr(p.default, env)
            return Function(frozenset([self.i.program.nested(node, self.callee)]))
        if isinstance(node, tree.Comprehension):
            return self.comprehension(node, env)
        if isinstance(node, tree.OpaqueExpr):
            parts = [self.expr(c, env) for c in node.children]
            if node.what in ("string", "f-string"):
                return Static("str")
            return Unknown(any(map(depends, parts)))
        return STATIC

    def escape_closure(self, node: tree.Node, env: Env) -> None:
        """What a closure reads is looked up in the join of all the values its variables ever have."""
        for name, _ in facts.reads(node):
            if name in env:
                self.i.set_variable(self.callee, name, env[name].kind)

    def name(self, name: str, env: Env) -> Kind:
        if name in env:
            return env[name].kind
        if self.callee.binds(name):
            return BOTTOM
        outer = self.callee.parent
        while outer is not None:
            if outer.binds(name):
                self.listen(("variables", outer))
                return self.i.variables.get(outer, {}).get(name, BOTTOM)
            outer = outer.parent
        return self.i.program.lookup(name, self.callee)

    def attribute(self, node: tree.Attribute, env: Env) -> Kind:
        base = self.expr(node.value, env)
        if isinstance(node.value, tree.Name):
            path = env.get(f"{node.value.id}.{node.attr}")
            if path is not None:
                return path.kind
        return self.attribute_of(base, node.attr)

    def attribute_of(self, base: Kind, attr: str) -> Kind:
        if isinstance(base, Instance):
            self.listen(("attribute", base.key))
            known = self.i.attributes.get(base.key, {}).get(attr)
            methods = self.i.program.methods(base.key, attr)
            if known is None and methods:
                if any(m.is_property for m in methods):
                    return self.invoke(methods, [base], {}, None)
                return Bound(base, methods)
            outside = self.i.program.class_attribute(base.key, attr)
            kinds = [k for k in (known, outside) if k is not None]
            if not base.made and not kinds:
                return Unknown(False)
            return join_all(kinds) if kinds else BOTTOM
        if isinstance(base, Static) and base.what == "super" and base.value is not MISSING:
            receiver, owner = base.value
            methods = self.i.program.inherited(receiver.key, owner, attr)
            return Bound(receiver, methods) if methods else calls.attribute(Unknown(False), attr, None, None)
        if isinstance(base, ClassObject):
            methods = self.i.program.methods(base.key, attr)
            if methods:
                if any(m.is_classmethod for m in methods):
                    return Bound(base, methods)
                return Function(methods)
            return self.i.program.class_attribute(base.key, attr) or Unknown(False)
        return calls.attribute(base, attr, self.i.program, self.callee.module)

    def unary(self, op: str, kind: Kind) -> Kind:
        if isinstance(kind, Bottom):
            return BOTTOM
        if op == "not":
            return Number("bool") if depends(kind) else Static("bool")
        if isinstance(kind, Static):
            if op == "-" and isinstance(kind.value, int | float):
                return calls.constant(-kind.value)
            return Static("int" if kind.what == "bool" else kind.what)
        if isinstance(kind, Number):
            return Number("int" if kind.what == "bool" else kind.what)
        return kind

    def binary(self, op: str, a: Kind, b: Kind) -> Kind:
        return calls.binary(op, a, b)

    def bool_op(self, node: tree.BoolOp, env: Env) -> Kind:
        left = self.expr(node.left, env)
        decided = self.decide(node.left, env)
        if decided is not None and decided != (node.op == "and"):
            return left
        right = self.expr(node.right, env)
        if decided is not None:
            return right
        kind = join(left, right)
        if not depends(left):
            return (
                right
                if isinstance(right, Number | Tensor) and isinstance(left, Static) and left.what in ("bool", "")
                else kind
            )
        if (
            isinstance(left, Number)
            and left.what == "bool"
            and isinstance(right, Static | Number)
            and right.what == "bool"
        ):
            return Number("bool")
        return taint(kind)

    def compare(self, node: tree.Compare, env: Env) -> Kind:
        kinds = [self.expr(node.left, env)] + [self.expr(r, env) for r in node.rest]
        if any(isinstance(k, Bottom) for k in kinds):
            return BOTTOM
        if all(op in ("is", "is not") for op in node.ops):
            return Static("bool")
        if any(isinstance(k, Static) and k.what in ("str", "none", "dtype", "shape") for k in kinds):
            return Static("bool")
        if not any(map(depends, kinds)):
            if any(isinstance(k, Tensor) for k in kinds) and len(node.ops) == 1 and node.ops[0] not in ("in", "not in"):
                return calls.compared(kinds, False)
            return Static("bool")
        if any(op in ("in", "not in") for op in node.ops):
            return Number("bool")
        if len(node.ops) > 1:
            return (
                replace(calls.compared(kinds, True))
                if any(isinstance(k, Tensor | Unknown) for k in kinds)
                else Number("bool")
            )
        return calls.compared(kinds, True)

    def decide(self, test: tree.Expr, env: Env) -> bool | None:
        """True or False where None-ness or isinstance settles the test for every call; None where it is open."""
        if isinstance(test, tree.Unary) and test.op == "not":
            inner = self.decide(test.operand, env)
            return None if inner is None else not inner
        if isinstance(test, tree.BoolOp):
            a, b = self.decide(test.left, env), self.decide(test.right, env)
            if test.op == "and":
                return False if a is False or b is False else True if a and b else None
            return True if a or b else False if a is False and b is False else None
        if isinstance(test, tree.Compare) and test.ops in (("is",), ("is not",)):
            k = self.expr(test.left, env)
            if isinstance(test.rest[0], tree.Constant) and test.rest[0].value is None:
                if isinstance(k, Static) and k.what == "none":
                    return test.ops == ("is",)
                if isinstance(k, Tensor | Number | Sequence | Mapping | Instance | Function):
                    return test.ops == ("is not",)
        return None

    def display(self, node: tree.Tuple | tree.List | tree.Set, env: Env) -> Kind:
        kinds: list[Kind] = []
        exact = True
        for item in node.items:
            kind = self.expr(item, env)
            if isinstance(item, tree.Starred):
                if isinstance(kind, Sequence) and kind.items is not None:
                    kinds.extend(kind.items)
                else:
                    kinds.append(calls.iteration(kind))
                    exact = False
            else:
                kinds.append(kind)
        form = "tuple" if isinstance(node, tree.Tuple) else "list"
        return Sequence(form, tuple(kinds)) if exact else Sequence(form, None, join_all(kinds))

    def dict_display(self, node: tree.Dict, env: Env) -> Kind:
        table: dict[Any, Kind] = {}
        exact = True
        for key, value in zip(node.keys, node.values, strict=True):
            kind = self.expr(value, env)
            if key is None:
                exact = exact and isinstance(kind, Mapping) and kind.exact
                if isinstance(kind, Mapping):
                    table.update(zip(kind.keys, kind.values, strict=True))
                continue
            k = self.expr(key, env)
            if isinstance(k, Static) and k.value is not MISSING:
                table[k.value] = kind
            else:
                return Unknown(depends(kind) or depends(k))
        return Mapping(tuple(table), tuple(table.values()), exact)

    def comprehension(self, node: tree.Comprehension, env: Env) -> Kind:
        inner = dict(env)
        dynamic = False
        for clause in node.clauses:
            iterated = self.expr(clause.iter, inner)
            self.assign(clause.target, calls.iteration(iterated), inner, tree.Pass())
            for c in clause.conditions:
                dynamic = dynamic or depends(self.expr(c, inner))
        for name in [
            n for n, v in inner.items() if isinstance(v.origin, tuple) and isinstance(v.origin[0], tree.Walrus)
        ]:
            env[name] = inner[name]
        value = self.expr(node.element, inner)
        if node.key is not None:
            self.expr(node.key, inner)
            return Unknown(depends(value))
        count = (
            calls.count(self.i.kinds[node.clauses[0].iter])
            if len(node.clauses) == 1 and not node.clauses[0].conditions
            else None
        )
        if count is not None and count <= 64:
            return Sequence("list", (value,) * count)
        return Sequence("list", None, value)

    # --- calls ------------------------------------------------------------------------------

    def call(self, node: tree.Call, env: Env) -> Kind:
        func = self.expr(node.func, env)
        if func == Static("builtin", "super") and not node.args:
            return self.super_object(env)
        positional: list[Kind] = []
        keywords: dict[str, Kind] = {}
        exact = True
        for arg in node.args:
            kind = self.expr(arg.value, env)
            if arg.star == "*":
                if isinstance(kind, Sequence) and kind.items is not None:
                    positional.extend(kind.items)
                else:
                    exact = False
                    positional.append(calls.iteration(kind))
            elif arg.star == "**":
                if isinstance(kind, Mapping):
                    keywords.update(zip(map(str, kind.keys), kind.values, strict=True))
                else:
                    exact = False
            elif arg.keyword is not None:
                keywords[arg.keyword] = kind
            else:
                positional.append(kind)
        self.drop_paths(node, func, env)
        return self.apply(func, positional, keywords, node, exact)

    def super_object(self, env: Env) -> Kind:
        """What ``super()`` gives in a method: its object, seen from the class that the method stands in."""
        root = self.callee
        while root.parent is not None:
            root = root.parent
        if root.owner is None or not root.positional:
            return Unknown(False)
        receiver = self.name(root.positional[0].name, env)
        return Static("super", (receiver, root.owner)) if isinstance(receiver, Instance) else Unknown(False)

    def drop_paths(self, node: tree.Call, func: Kind, env: Env) -> None:
        """A function of the program may change the attributes of what it is given."""
        if not isinstance(func, Function | Bound):
            return
        touched = [a.value for a in node.args] + ([node.func.value] if isinstance(node.func, tree.Attribute) else [])
        for place in touched:
            if isinstance(place, tree.Name):
                for path in [p for p in env if p.startswith(place.id + ".")]:
                    del env[path]

    def apply(
        self,
        func: Kind,
        positional: list[Kind],
        keywords: dict[str, Kind],
        node: tree.Call | None,
        exact: bool = True,
    ) -> Kind:
        arguments = [*positional, *keywords.values()]
        if isinstance(func, Bottom):
            return BOTTOM
        if isinstance(func, Function):
            return self.invoke(func.keys, positional, keywords, node, exact)
        if isinstance(func, Bound):
            return self.invoke(func.keys, [func.receiver, *positional], keywords, node, exact)
        if isinstance(func, ClassObject):
            return self.construct(func, positional, keywords, node, exact)
        if isinstance(func, Instance):
            for name in ("forward", "__call__"):
                methods = self.i.program.methods(func.key, name)
                if methods:
                    return self.invoke(methods, [func, *positional], keywords, node, exact)
            return calls.module_call(arguments)
        if any(isinstance(k, Bottom) for k in arguments):
            return BOTTOM
        return calls.library_call(func, positional, keywords, self.apply)

    def construct(
        self, cls: ClassObject, positional: list[Kind], keywords: dict[str, Kind], node: tree.Call | None, exact: bool
    ) -> Kind:
        fields = self.i.program.fields(cls.key)
        made = Instance(cls.key, True)
        init = self.i.program.methods(cls.key, "__init__")
        if init:
            self.invoke(init, [made, *positional], keywords, node, exact)
        elif fields is not None:
            values = dict(zip(fields, positional, strict=False)) | keywords
            for name in fields:
                if name in values:
                    self.i.set_attribute(cls.key, name, values[name])
        return made

    def invoke(
        self,
        callees: frozenset[Callee],
        positional: list[Kind],
        keywords: dict[str, Kind],
        node: tree.Call | None,
        exact: bool = True,
    ) -> Kind:
        result: Kind = BOTTOM
        for callee in callees:
            self.i.callers[callee] = self.i.callers.get(callee, frozenset()) | {self.callee}
            if node is not None:
                self.i.callees[node] = self.i.callees.get(node, frozenset()) | {callee}
            first = positional
            if (
                callee.is_staticmethod
                and positional
                and isinstance(positional[0], Instance | ClassObject)
                and callee.owner
            ):
                first = (
                    positional[1:]
                    if len(positional) > len(callee.positional) or isinstance(positional[0], Instance)
                    else positional
                )
            self.i.push(callee, self.bind(callee, first, keywords, exact))
            self.listen(("return", callee))
            result = join(result, self.i.returns.get(callee, BOTTOM))
        return result

    def bind(self, callee: Callee, positional: list[Kind], keywords: dict[str, Kind], exact: bool) -> dict[str, Kind]:
        bound: dict[str, Kind] = {}
        rest = list(positional)
        for p in callee.params:
            if p.kind in ("positional", "normal"):
                if rest:
                    bound[p.name] = rest.pop(0) if exact or len(rest) > 1 else rest[0]
                elif p.name in keywords:
                    bound[p.name] = keywords[p.name]
                elif p.default is not None:
                    bound[p.name] = self.i.program.default(p, callee)
                elif not exact:
                    bound[p.name] = Unknown(True)
            elif p.kind == "star":
                bound[p.name] = Sequence("tuple", tuple(rest)) if exact else Sequence("tuple", None, join_all(rest))
                rest = []
            elif p.kind == "keyword":
                if p.name in keywords:
                    bound[p.name] = keywords[p.name]
                elif p.default is not None:
                    bound[p.name] = self.i.program.default(p, callee)
            else:
                named = {q.name for q in callee.params}
                extra = {k: v for k, v in keywords.items() if k not in named}
                bound[p.name] = Mapping(tuple(extra), tuple(extra.values()), exact)
        return bound


__all__ = ["Facts", "Iterable", "broadcast", "infer", "promote", "promote_number", "to_float"]
