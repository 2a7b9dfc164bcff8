"""Which functions of a module are in scope, and which of their parameters are batched. Reads, never runs.

One pass over the tree records what every name may be bound to, scope by scope; calls and decorators are
then looked up in that record, so that the cost grows with the size of the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from if2where.module import Function, FunctionNode, Module

#: "batched", "unbatched", "unknown", or the in_dims of a container: a tuple, list or dict of 0 and None.
Spec = Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VMAPS = frozenset(
    {
        "torch.vmap",
        "torch.func.vmap",
        "functorch.vmap",
        "functorch.experimental.chunk_vmap",
        "torch._functorch.apis.vmap",
        "torch._functorch.apis.chunk_vmap",
        "torch._functorch.vmap.vmap",
        "torch._vmap_internals.vmap",
        "if2where.vmap",
        "if2where.convert",
    }
)
#: Functions of a function that give another function of the same arguments.
WRAPPERS = _words(
    "grad grad_and_value value_and_grad jacrev jacfwd hessian functionalize compile script checkpoint vjp jvp"
    " linearize no_grad enable_grad inference_mode lru_cache cache"
)
#: Functions that take a function first and its positional arguments after it.
APPLIERS = frozenset({"checkpoint", "vjp", "linearize"})
#: Functions that take a function first and a tuple of its arguments: where that tuple stands.
PACKED = {"jvp": 1, "functional_call": 2}
#: Methods of a module that give the module itself.
_FLUENT = _words("to eval train cuda cpu double float half bfloat16 requires_grad_ type share_memory")
#: How far a chain of names is followed, so that no file can exhaust the stack.
_DEPTH = 40
#: How many functions deep a target hands its arguments on.
_ROUNDS = 8
#: The most entries of in_dims that are read.
_LONGEST = 256

#: The line ends that Python counts.
_LINE_END = re.compile(r"\r\n|\r|\n")
_TENSOR = re.compile(r"Tensor|\b(?:Float|Int|UInt|Integer|Complex|Bool|Shaped|Num|Inexact|Real)\d*\[")
_FIXED = re.compile(
    r"^(?:[\w.]*\.)?(?:float|int|bool|str|bytes|complex|dict|Any|Number|Literal|type|Module|dtype|device|Generator)\b"
    r"|^(?:[\w.]*\.)?(?:list|tuple|set|frozenset|Sequence|Iterable|List|Tuple)\[[^\]]*\b(?:int|float|bool|str)\b"
    r"|\bNone$|nn\.Module|Module$|dtype|device|ndarray"
)
_CALLABLE = re.compile(r"^(?:[\w.]*\.)?(?:Callable|type|Type)\b")
#: Methods that only tensors have, as far as unannotated parameters go.
_TENSOR_METHODS = _words(
    "norm sqrt exp log clamp item detach clone reshape unsqueeze squeeze dim numel softmax sigmoid tanh argmax cumsum"
    " matmul backward double long"
)
#: Torch functions that take plain numbers, shapes or files: an argument of theirs need not be a tensor.
_NO_EVIDENCE = _words(
    "zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor as_tensor from_numpy normal"
    " device dtype load save manual_seed seed compile vmap is_tensor broadcast_shapes set_default_dtype get_num_threads"
    " set_num_threads set_default_device set_grad_enabled typename finfo iinfo Size Generator scalar_tensor hann_window"
    " hamming_window kaiser_window blackman_window bartlett_window empty_strided"
    " tril_indices triu_indices fftfreq rfftfreq from_dlpack frombuffer asarray is_storage range"
)
_NAMESPACES = frozenset({"torch", "torch.linalg", "torch.special", "torch.fft", "torch.nn.functional"})


@dataclass(frozen=True)
class Target:
    """A function in scope. ``at`` is the (line, column) of its first vmap call, counted from 1."""

    function: Function
    batched: dict[str, Spec]
    reason: str
    at: tuple[int, int] | None = None

    @property
    def node(self) -> FunctionNode:
        return self.function.node


@dataclass(frozen=True)
class Selection:
    """``scope`` is the one taken; ``unmatched`` names that --function gave and nothing has.

    ``skipped`` are the ids of function nodes kept out, ``skipped_lines`` the lines of other statements that
    a comment keeps out: its own, and the one below where it stands alone.
    """

    scope: str
    targets: tuple[Target, ...]
    skipped: frozenset[int]
    unmatched: tuple[str, ...] = ()
    skipped_lines: frozenset[int] = frozenset()


def might_matter(text: str, scope: str) -> bool:
    """Whether a file can hold anything in scope: a scan of the text, before anything is parsed."""
    return "vmap" in text or "if2where" in text or (scope != "vmapped" and "torch" in text)


def select(module: Module, scope: str = "auto", functions: tuple[str, ...] = ()) -> Selection:
    """The functions of the module that are in scope."""
    marks = _Marks(module)
    unmatched = tuple(n for n in functions if not any(_answers(f, n) for f in module.functions))
    taken = scope
    if marks.whole_file:
        every = frozenset(id(f.node) for f in module.functions)
        return Selection("vmapped" if scope == "auto" else scope, (), every, unmatched)
    targets = _Targets()
    vmaps = False
    if "vmap" in module.source.text or "if2where" in module.source.text:
        finder = _Finder(module, targets)
        finder.run()
        vmaps = finder.found
    for f in marks.converted:
        targets.add(f, _marked(f), "marked")
    if functions:
        named = [f for f in module.functions if any(_answers(f, n) for n in functions)]
        found = {id(f.node): targets.by_node.get(id(f.node)) or Target(f, _marked(f), "named") for f in named}
        targets = _Targets(found)
    if scope == "auto":
        taken = "vmapped" if functions or vmaps or targets.by_node else "all"
    if taken == "all" and not functions:
        torch_names = _torch_names(module.tree)
        for f in module.functions:
            used = frozenset() if id(f.node) in targets.by_node else _tensor_uses(f.node, torch_names)
            if id(f.node) not in targets.by_node and (used or _annotated(f.node)):
                targets.add(f, _guessed(f, used), "all")
    kept = tuple(t for key, t in targets.by_node.items() if key not in marks.skipped)
    return Selection(taken, kept, marks.skipped, unmatched, marks.skipped_lines)


def _answers(f: Function, name: str) -> bool:
    """Whether --function NAME means this function: by its simple or its dotted name."""
    dotted = f.qualname.replace("<locals>.", "")
    return name in (f.qualname, dotted, f.qualname.rsplit(".", 1)[-1])


# --- joining --------------------------------------------------------------------------------


@dataclass
class _Targets:
    """The targets found so far, one a function."""

    by_node: dict[int, Target] = field(default_factory=dict)

    def add(self, f: Function, batched: dict[str, Spec], reason: str, at: tuple[int, int] | None = None) -> bool:
        """Joins with what is known of the function: what one call batches is batched. Whether anything changed."""
        old = self.by_node.get(id(f.node))
        if old is None:
            self.by_node[id(f.node)] = Target(f, batched, reason, at)
            return True
        merged = {n: _join(s, batched.get(n, "unbatched")) for n, s in old.batched.items()}
        places = [p for p in (old.at, at) if p is not None]
        self.by_node[id(f.node)] = Target(f, merged, old.reason, min(places, default=None))
        return merged != old.batched


def _join(a: Spec, b: Spec) -> Spec:
    """The spec of a parameter that has both: batched wins, leaf by leaf in containers."""
    if isinstance(a, str) and isinstance(b, str):
        return max(a, b, key=("unbatched", "unknown", "batched").index)
    if isinstance(a, str):
        a, b = b, a
    if b == "batched":
        return _filled(a)
    if isinstance(b, str):
        return a
    return _join_dims(a, b)


def _join_dims(a: Any, b: Any) -> Any:
    if isinstance(a, tuple | list) and type(a) is type(b) and len(a) == len(b):
        return type(a)(_join_dims(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {k: _join_dims(v, b[k]) for k, v in a.items()}
    if isinstance(a, tuple | list | dict):
        return a if b is None else _filled(a)
    if isinstance(b, tuple | list | dict):
        return _join_dims(b, a)
    return b if a is None else a


def _filled(dims: Any) -> Any:
    """The same container with every leaf batched."""
    if isinstance(dims, tuple | list):
        return type(dims)(_filled(d) for d in dims)
    return {k: _filled(v) for k, v in dims.items()} if isinstance(dims, dict) else 0


# --- marks ----------------------------------------------------------------------------------


class _Marks:
    """What the comments of a module ask for."""

    def __init__(self, module: Module) -> None:
        self.marks = module.pragmas
        self.converted: list[Function] = []
        self.skipped: frozenset[int] = frozenset()
        self.skipped_lines: frozenset[int] = frozenset()
        self.whole_file = False
        if self.marks:
            self.lines = _LINE_END.split(module.source.text)
            self._read(module)

    def _read(self, module: Module) -> None:
        heads: set[int] = set()
        spans: list[tuple[int, int]] = []
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                lines = self._head(node)
                heads |= lines
                if self._any("skip", lines):
                    spans.append((node.lineno, node.end_lineno or node.lineno))
        lambdas = [f for f in module.functions if isinstance(f.node, ast.Lambda) and f.line not in heads]
        skipped = {id(f.node) for f in lambdas if self._any("skip", {f.line})}
        spans.sort()
        covered, reach = set(), 0
        for first, last in spans:
            covered |= set(range(max(first, reach + 1), last + 1))
            reach = max(reach, last)
        for f in module.functions:
            around = f.parent is not None and id(f.parent.node) in skipped
            if around or f.line in covered:
                skipped.add(id(f.node))
        self.skipped = frozenset(skipped)
        self.converted = [
            f
            for f in module.functions
            if self._any("convert", {f.line} - heads if isinstance(f.node, ast.Lambda) else self._head(f.node))
        ]
        first = self._first_statement(module.tree)
        skips = {n for n, words in self.marks.items() if "skip" in words} - heads
        self.whole_file = any(n < first and self._alone(n) for n in skips)
        self.skipped_lines = frozenset(skips | {n + 1 for n in skips if self._alone(n)})

    def _any(self, word: str, lines: Iterable[int]) -> bool:
        return any(word in self.marks.get(n, ()) for n in lines)

    def _alone(self, line: int) -> bool:
        return self.lines[line - 1].lstrip().startswith("#")

    def _first_statement(self, tree: ast.Module) -> int:
        for s in tree.body:
            text = isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
            if not text and not isinstance(s, ast.Import | ast.ImportFrom):
                return s.lineno
        return len(self.lines) + 1

    def _head(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
        """The lines of a definition from its first decorator to its colon, and a comment right above."""
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        lines = set(range(first, self._colon(node) + 1))
        if first > 1 and self._alone(first - 1):
            lines.add(first - 1)
        return lines

    def _colon(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """The line of the colon that ends the head: after the last expression, only names and comments come."""
        inside: list[ast.AST] = list(getattr(node, "type_params", ()))
        if isinstance(node, ast.ClassDef):
            inside += [*node.bases, *node.keywords]
        else:
            returns = [] if node.returns is None else [node.returns]
            defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
            inside += [*parameters(node), *defaults, *returns]
        ends = [(getattr(n, "end_lineno", 0) or 0, getattr(n, "end_col_offset", 0) or 0) for n in inside]
        line, column = max([(node.lineno, node.col_offset), *ends])
        for number in range(line, node.body[0].lineno + 1):
            code = self.lines[number - 1].encode("utf-8", "surrogatepass")[column if number == line else 0 :]
            if b":" in code.split(b"#", 1)[0]:
                return number
        return node.lineno


# --- parameters -----------------------------------------------------------------------------


def parameters(node: FunctionNode) -> list[ast.arg]:
    a = node.args
    return [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]


def _defaulted(node: FunctionNode) -> set[str]:
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    names = {p.arg for p in positional[len(positional) - len(a.defaults) :]} if a.defaults else set()
    return names | {p.arg for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}


def _annotation(arg: ast.arg) -> str:
    if arg.annotation is None:
        return ""
    try:
        text = ast.unparse(arg.annotation).strip("'\"")
    except RecursionError:
        return ""
    return text.removeprefix("typing.").removeprefix("Optional[")


def _decorated(node: ast.AST, name: str) -> bool:
    decorators = [] if isinstance(node, ast.Lambda) else getattr(node, "decorator_list", [])
    return any(isinstance(d, ast.Name) and d.id == name for d in decorators)


def _implicit(f: Function) -> int:
    """How many leading parameters the object or class fills."""
    if f.owner is None or isinstance(f.node, ast.Lambda):
        return 0
    return 0 if _decorated(f.node, "staticmethod") else 1


def _marked(f: Function) -> dict[str, Spec]:
    """Of a function that is named or marked: batched, but for what its annotation or default says is not."""
    default = _defaulted(f.node)
    specs: dict[str, Spec] = {}
    for k, arg in enumerate(parameters(f.node)):
        text = _annotation(arg)
        tensor = bool(_TENSOR.search(text)) and not _CALLABLE.search(text)
        fixed = k < _implicit(f) or (not tensor and (arg.arg in default or bool(_is_fixed(text))))
        specs[arg.arg] = "unbatched" if fixed else "batched"
    return specs


def _is_fixed(annotation: str) -> bool:
    return bool(_FIXED.search(annotation) or _CALLABLE.search(annotation))


def _guessed(f: Function, used: frozenset[str]) -> dict[str, Spec]:
    """Of a function that nothing names: what annotations and uses give away."""
    specs: dict[str, Spec] = {}
    default = _defaulted(f.node)
    for k, arg in enumerate(parameters(f.node)):
        text = _annotation(arg)
        if k < _implicit(f) or _CALLABLE.search(text):
            specs[arg.arg] = "unbatched"
        elif _TENSOR.search(text):
            specs[arg.arg] = "unknown" if re.search(r"\b(?:float|int|bool|str|Number)\b", text) else "batched"
        elif text or arg.arg in default:
            specs[arg.arg] = "unbatched"
        else:
            specs[arg.arg] = "batched" if arg.arg in used else "unknown"
    return specs


# --- evidence -------------------------------------------------------------------------------

_TORCH = {"torch": "torch", "F": "torch.nn.functional"}


def evident(node: FunctionNode, torch_names: dict[str, str] = _TORCH) -> bool:
    """Whether something in the function evidently is a tensor. ``torch_names``: what names stand for in torch."""
    return _annotated(node) or bool(_tensor_uses(node, torch_names))


def _annotated(node: FunctionNode) -> bool:
    texts = (_annotation(a) for a in parameters(node))
    return any(_TENSOR.search(text) and not _CALLABLE.search(text) for text in texts)


def _torch_names(tree: ast.Module) -> dict[str, str]:
    names = dict(_TORCH)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update((n, d) for n, d in _imported(node) if d == "torch" or d.startswith("torch."))
    return names


def _tensor_uses(node: FunctionNode, torch_names: dict[str, str]) -> frozenset[str]:
    """The parameters that torch's functions or a tensor's own methods are applied to."""
    names = {a.arg for a in parameters(node)}
    used: set[str] = set()
    for sub in ast.walk(node) if names else ():
        if not isinstance(sub, ast.Call):
            continue
        func = sub.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in names:
            if func.attr in _TENSOR_METHODS:
                used.add(func.value.id)
            continue
        namespace, _, name = _plain_dotted(func, torch_names).rpartition(".")
        if namespace in _NAMESPACES and name not in _NO_EVIDENCE:
            used |= {a.id for a in sub.args if isinstance(a, ast.Name) and a.id in names}
    return frozenset(used)


def _plain_dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    base = names.get(node.id, "") if isinstance(node, ast.Name) else ""
    return ".".join([base, *reversed(parts)]) if base else ""


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with the dotted name that it stands for."""
    if isinstance(node, ast.Import):
        for a in node.names:
            yield (a.asname, a.name) if a.asname else (a.name.split(".")[0],) * 2
    else:
        for a in node.names:
            yield a.asname or a.name, f"{'.' * node.level}{node.module or ''}.{a.name}"


# --- scopes ---------------------------------------------------------------------------------


class _Self(NamedTuple):
    """The first parameter of a method: an instance of the class, or the class itself."""

    owner: ast.ClassDef
    is_class: bool


class _Typed(NamedTuple):
    """A parameter, by its annotation."""

    annotation: ast.expr


def _typed(annotation: ast.expr | None) -> _Typed | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None if annotation is None else _Typed(annotation)


#: What a name may be bound to: a dotted name (an import), a definition, an expression, a parameter; None is opaque.
Bound = str | ast.AST | _Self | _Typed | None


@dataclass(eq=False)
class _Scope:
    node: ast.AST
    parent: _Scope | None
    names: dict[str, list[tuple[Bound, _Scope]]] = field(default_factory=dict)
    elsewhere: dict[str, _Scope] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    returns: list[ast.expr] = field(default_factory=list)

    def bind(self, name: str, value: Bound, seen_from: _Scope) -> None:
        home = self.elsewhere.get(name, self)
        home.names.setdefault(name, []).append((value, seen_from))

    def holder(self, name: str) -> _Scope | None:
        """The scope that binds the name as seen from here: a class's names are seen in its own body alone."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.elsewhere:
                scope = scope.elsewhere[name]
            if name in scope.names and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope
            scope = scope.parent
        return None


class _Use(NamedTuple):
    """An expression where it stands."""

    expr: ast.expr
    scope: _Scope


class _Call(NamedTuple):
    node: ast.Call
    scope: _Scope
    called_by: ast.Call | None


class _Decorator(NamedTuple):
    use: _Use
    function: ast.FunctionDef | ast.AsyncFunctionDef


_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class _Names:
    """What every name of a module may be bound to, and the calls in it: one pass over the tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.top = _Scope(tree, None)
        self.scopes: dict[int, _Scope] = {id(tree): self.top}
        self.calls: list[_Call] = []
        self.decorators: list[_Decorator] = []
        self.classes: list[_Use] = []
        #: ``self.NAME = value`` by class and name.
        self.attributes: dict[tuple[int, str], list[_Use]] = {}
        #: The names that a value is assigned to directly: ``g = vmap(f)``.
        self.assigned: dict[int, list[tuple[_Scope, str]]] = {}
        self._stack: list[tuple[ast.AST, _Scope, ast.Call | None]] = []
        self._push(ast.iter_child_nodes(tree), self.top)
        while self._stack:
            self._visit(*self._stack.pop())

    def _push(self, nodes: Iterable[ast.AST | None], scope: _Scope) -> None:
        self._stack.extend((n, scope, None) for n in reversed(list(nodes)) if n is not None)

    def _visit(self, node: ast.AST, scope: _Scope, called_by: ast.Call | None) -> None:
        if isinstance(node, FunctionNode):
            self._function(node, scope)
            return
        if isinstance(node, ast.ClassDef):
            scope.bind(node.name, node, scope)
            self._push([*node.decorator_list, *node.bases, *(k.value for k in node.keywords)], scope)
            inner = self.scopes[id(node)] = _Scope(node, scope)
            self._push(node.body, inner)
            return
        if isinstance(node, ast.Call):
            self.calls.append(_Call(node, scope, called_by))
            self._push([*node.args, *node.keywords], scope)
            self._stack.append((node.func, scope, node))
            return
        if isinstance(node, _COMPREHENSION):
            scope = _Scope(node, scope)
        self._bindings(node, scope)
        self._push(ast.iter_child_nodes(node), scope)

    def _function(self, node: FunctionNode, scope: _Scope) -> None:
        outside: list[ast.AST | None] = [*node.args.defaults, *node.args.kw_defaults]
        inner = self.scopes[id(node)] = _Scope(node, scope)
        self._parameters(node, inner, scope)
        if isinstance(node, ast.Lambda):
            inner.returns.append(node.body)
            self._push([node.body], inner)
        else:
            scope.bind(node.name, node, scope)
            outside += [*node.decorator_list, node.returns, *(a.annotation for a in parameters(node))]
            self.decorators += [_Decorator(_Use(d, scope), node) for d in node.decorator_list]
            self._push(node.body, inner)
        self._push(outside, scope)

    def _parameters(self, node: FunctionNode, inner: _Scope, scope: _Scope) -> None:
        defaults = dict(zip(reversed([*node.args.posonlyargs, *node.args.args]), reversed(node.args.defaults)))
        for k, arg in enumerate(parameters(node)):
            own = k == 0 and isinstance(scope.node, ast.ClassDef) and not isinstance(node, ast.Lambda)
            if own and isinstance(scope.node, ast.ClassDef) and not _decorated(node, "staticmethod"):
                is_class = _decorated(node, "classmethod") or getattr(node, "name", "") == "__new__"
                inner.bind(arg.arg, _Self(scope.node, is_class), scope)
                continue
            inner.bind(arg.arg, _typed(arg.annotation), scope)
            if arg in defaults:
                inner.bind(arg.arg, defaults[arg], scope)

    def _bindings(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, node.value, scope)
        elif isinstance(node, ast.NamedExpr):
            home = scope
            while isinstance(home.node, _COMPREHENSION) and home.parent is not None:
                home = home.parent
            self._assign(node.target, node.value, home)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            items = node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else [None]
            for item in items:
                self._assign(node.target, item, scope)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, None, scope)
        elif isinstance(node, ast.withitem):
            if node.optional_vars is not None:
                self._assign(node.optional_vars, None, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name, dotted in _imported(node):
                if name == "*":
                    scope.stars.append(dotted.removesuffix(".*"))
                else:
                    scope.bind(name, dotted, scope)
        elif isinstance(node, ast.Global):
            scope.elsewhere.update(dict.fromkeys(node.names, self.top))
        elif isinstance(node, ast.Nonlocal):
            for name in node.names:
                home_of = scope.parent.holder(name) if scope.parent is not None else None
                if home_of is not None:
                    scope.elsewhere[name] = home_of
        elif isinstance(node, ast.Return):
            if node.value is not None:
                scope.returns.append(node.value)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            scope.bind(node.name, None, scope)
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            scope.bind(node.rest, None, scope)

    def _assign(self, target: ast.expr, value: ast.expr | None, scope: _Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, value, scope)
            if value is not None:
                self.assigned.setdefault(id(value), []).append((scope.elsewhere.get(target.id, scope), target.id))
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and value is not None:
            home = scope.holder(target.value.id)
            for bound, _ in home.names[target.value.id] if home is not None else ():
                if isinstance(bound, _Self):
                    self.attributes.setdefault((id(bound.owner), target.attr), []).append(_Use(value, scope))
        elif isinstance(target, ast.Tuple | ast.List):
            values: list[ast.expr | None] = [None] * len(target.elts)
            starred = any(isinstance(e, ast.Starred) for e in target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(values) and not starred:
                values = list(value.elts)
            for t, v in zip(target.elts, values, strict=True):
                self._assign(t, v, scope)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None, scope)


# --- what expressions stand for -------------------------------------------------------------


@dataclass(frozen=True)
class _Reach:
    """A function that an expression may stand for, with what is bound already.

    ``filled`` counts the leading parameters that have a value, ``fixed`` names those that are given by
    keyword, ``packed`` is the position of the one argument that holds all the others, where there is one.
    """

    node: FunctionNode
    filled: int = 0
    fixed: frozenset[str] = frozenset()
    packed: int | None = None


class _Transform(NamedTuple):
    """``vmap`` itself, with the arguments that a partial has given it."""

    args: tuple[_Use, ...] = ()
    keywords: tuple[tuple[str, _Use], ...] = ()


class _Resolver:
    """What expressions stand for. Each question is answered once for each expression."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self._known: dict[tuple[str, int], Any] = {}
        self._bases: dict[int, list[ast.ClassDef]] = {}
        self._children: dict[int, list[ast.ClassDef]] | None = None
        self._depth = 0

    def _ask(self, question: str, node: ast.AST, answer: Any, *rest: Any) -> Any:
        """``answer(node, *rest)`` as a tuple without repeats; a question inside itself has no answers of its own."""
        key = (question, id(node))
        if key in self._known:
            return self._known[key]
        if self._depth > _DEPTH:
            return ()
        self._known[key] = ()
        self._depth += 1
        self._known[key] = found = tuple(dict.fromkeys(answer(node, *rest)))
        self._depth -= 1
        return found

    def alternatives(self, expr: ast.expr) -> tuple[ast.expr, ...]:
        """The expressions of which one is the value."""
        if isinstance(expr, ast.IfExp):
            return (expr.body, expr.orelse)
        if isinstance(expr, ast.BoolOp):
            return tuple(expr.values)
        if isinstance(expr, ast.NamedExpr):
            return (expr.value,)
        return ()

    def values(self, name: str, scope: _Scope) -> list[tuple[Bound, _Scope]]:
        home = scope.holder(name)
        return home.names[name] if home is not None else []

    # dotted names

    def dotted(self, expr: ast.expr, scope: _Scope) -> tuple[str, ...]:
        """The dotted names that an expression may stand for: ``th.func.vmap`` is ``torch.func.vmap``."""
        attrs: list[str] = []
        while isinstance(expr, ast.Attribute):
            attrs.append(expr.attr)
            expr = expr.value
        tail = "".join(f".{a}" for a in reversed(attrs))
        if isinstance(expr, ast.Name):
            home = scope.holder(expr.id)
            if home is None:
                stars = [f"{star}.{expr.id}" for s in _outward(scope) for star in s.stars]
                return tuple(base + tail for base in [expr.id, *stars])
            return tuple(base + tail for base in self._name(home, expr.id))
        return tuple(d + tail for e in self.alternatives(expr) for d in self._ask("dotted", e, self.dotted, scope))

    def _name(self, home: _Scope, name: str) -> tuple[str, ...]:
        key = (f"name {name}", id(home))
        if key not in self._known:
            self._known[key] = ()
            found: list[str] = []
            for bound, scope in home.names[name]:
                if isinstance(bound, str):
                    found.append(bound)
                elif isinstance(bound, ast.Name | ast.Attribute | ast.IfExp | ast.BoolOp | ast.NamedExpr):
                    found += self._ask("dotted", bound, self.dotted, scope)
            self._known[key] = tuple(dict.fromkeys(found))
        answer: tuple[str, ...] = self._known[key]
        return answer

    def last(self, expr: ast.expr, scope: _Scope) -> set[str]:
        """The last parts of the names of what is imported."""
        return {d.rsplit(".", 1)[-1] for d in self.dotted(expr, scope) if "." in d}

    # vmap

    def transforms(self, expr: ast.expr, scope: _Scope) -> tuple[_Transform, ...]:
        """The vmaps that an expression may stand for, a partial one among them."""
        found: tuple[_Transform, ...] = self._ask("transform", expr, self._transforms, scope)
        return found

    def _transforms(self, expr: ast.expr, scope: _Scope) -> Iterator[_Transform]:
        if isinstance(expr, ast.Name | ast.Attribute) and any(d in VMAPS for d in self.dotted(expr, scope)):
            yield _Transform()
        if isinstance(expr, ast.Name):
            for bound, where in self.values(expr.id, scope):
                if isinstance(bound, ast.Call | ast.IfExp | ast.BoolOp | ast.NamedExpr):
                    yield from self.transforms(bound, where)
        elif isinstance(expr, ast.Call):
            if expr.args and "functools.partial" in self.dotted(expr.func, scope):
                args = tuple(_Use(a, scope) for a in expr.args[1:])
                keywords = tuple((k.arg, _Use(k.value, scope)) for k in expr.keywords if k.arg is not None)
                for t in self.transforms(expr.args[0], scope):
                    yield _Transform((*t.args, *args), (*t.keywords, *keywords))
        for e in self.alternatives(expr):
            yield from self.transforms(e, scope)

    # functions

    def functions(self, expr: ast.expr, scope: _Scope) -> tuple[_Reach, ...]:
        """The functions of the module that an expression may stand for."""
        found: tuple[_Reach, ...] = self._ask("function", expr, self._functions, scope)
        return found

    def _functions(self, expr: ast.expr, scope: _Scope) -> Iterator[_Reach]:
        if isinstance(expr, ast.Lambda):
            yield _Reach(expr)
        elif isinstance(expr, ast.Call):
            yield from self._called(expr, scope)
        elif isinstance(expr, ast.Name):
            for bound, where in self.values(expr.id, scope):
                if isinstance(bound, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield _Reach(bound)
                elif isinstance(bound, ast.expr):
                    yield from self.functions(bound, where)
        elif isinstance(expr, ast.Attribute):
            yield from self._attribute(expr, scope)
        for e in self.alternatives(expr):
            yield from self.functions(e, scope)
        if not isinstance(expr, ast.Call):
            for owner, _ in self.instances(expr, scope):
                yield from self._object(owner)

    def _object(self, owner: ast.ClassDef) -> Iterator[_Reach]:
        """A callable object: its ``__call__``, or the ``forward`` that nn.Module's own leads to."""
        for name in ("__call__", "forward"):
            found = tuple(self._member(owner, name, through_class=False))
            if found:
                yield from found
                return

    def _called(self, call: ast.Call, scope: _Scope) -> Iterator[_Reach]:
        names = self.dotted(call.func, scope)
        last = {d.rsplit(".", 1)[-1] for d in names if "." in d}
        first = call.args[0] if call.args else _keyword(call, "func", "f", "fn", "function", "model", "obj")
        if first is not None and "functools.partial" in names:
            yield from self._partial(call, first, scope)
            return
        if last & WRAPPERS or self.transforms(call.func, scope):
            if first is not None:
                yield from self.functions(first, scope)
            return
        if isinstance(call.func, ast.Call) and first is not None:
            # torch.compile(mode=...)(f), torch.no_grad()(f), functools.wraps(g)(f)
            if self.last(call.func.func, scope) & (WRAPPERS | {"wraps"}) and not self._wraps_function(call.func, scope):
                yield from self.functions(first, scope)
                return
        if last & {"staticmethod", "deepcopy", "copy"} or _is_name(call.func, "staticmethod"):
            if first is not None:
                yield from self.functions(first, scope)
        for owner, _ in self.instances(call, scope):
            yield from self._object(owner)
        for reach in self.functions(call.func, scope):
            # a function that gives a function
            inner = self.names.scopes[id(reach.node)]
            for value in inner.returns:
                yield from self.functions(value, inner)

    def _wraps_function(self, call: ast.Call, scope: _Scope) -> bool:
        """Whether a wrapper has its function already, so that calling the result gives a value."""
        return "wraps" not in self.last(call.func, scope) and bool(
            call.args and not isinstance(call.args[0], ast.Constant)
        )

    def _partial(self, call: ast.Call, first: ast.expr, scope: _Scope) -> Iterator[_Reach]:
        rest = call.args[1:] if call.args else []
        fixed = frozenset(k.arg for k in call.keywords if k.arg is not None)
        last = self.last(first, scope)
        if rest and last & APPLIERS:
            for r in self.functions(rest[0], scope):
                yield _Reach(r.node, r.filled + len(rest) - 1, r.fixed)
        elif rest and last & PACKED.keys():
            place = max(PACKED[n] for n in last & PACKED.keys()) - len(rest)
            for r in self.functions(rest[0], scope):
                yield _Reach(r.node, r.filled, r.fixed, place if place >= 0 else None)
        else:
            for r in self.functions(first, scope):
                packed = r.packed - len(rest) if r.packed is not None else None
                filled = r.filled + (len(rest) if r.packed is None else 0)
                yield _Reach(r.node, filled, r.fixed | fixed, packed)

    def _attribute(self, expr: ast.Attribute, scope: _Scope) -> Iterator[_Reach]:
        for owner in self.classes(expr.value, scope):
            yield from self._member(owner, expr.attr, through_class=True)
        for owner, exact in self.instances(expr.value, scope):
            yield from self._member(owner, expr.attr, through_class=False)
            for cls in self._lineage(owner):
                for use in self.names.attributes.get((id(cls), expr.attr), ()):
                    yield from self.functions(*use)
            for cls in () if exact else self._below(owner):
                yield from self._own(cls, expr.attr, through_class=False)

    def _member(self, owner: ast.ClassDef, name: str, through_class: bool) -> Iterator[_Reach]:
        for cls in self._lineage(owner):
            if name in self.names.scopes[id(cls)].names:
                yield from self._own(cls, name, through_class)
                return

    def _own(self, cls: ast.ClassDef, name: str, through_class: bool) -> Iterator[_Reach]:
        """What a class's own attribute stands for, bound to the object or not."""
        inside = self.names.scopes[id(cls)]
        for bound, where in inside.names.get(name, ()):
            if isinstance(bound, ast.FunctionDef | ast.AsyncFunctionDef):
                if _decorated(bound, "property") or _decorated(bound, "cached_property"):
                    for value in self.names.scopes[id(bound)].returns:
                        yield from self.functions(value, self.names.scopes[id(bound)])
                elif _decorated(bound, "staticmethod"):
                    yield _Reach(bound)
                else:
                    yield _Reach(bound, 1 if not through_class or _decorated(bound, "classmethod") else 0)
            elif isinstance(bound, ast.expr):
                plain = isinstance(bound, ast.Lambda | ast.Name) and not through_class
                for r in self.functions(bound, where):
                    yield _Reach(r.node, r.filled + plain, r.fixed, r.packed)

    # classes and objects

    def classes(self, expr: ast.expr, scope: _Scope) -> tuple[ast.ClassDef, ...]:
        """The classes of the module that an expression may stand for."""
        found: tuple[ast.ClassDef, ...] = self._ask("class", expr, self._classes, scope)
        return found

    def _classes(self, expr: ast.expr, scope: _Scope) -> Iterator[ast.ClassDef]:
        name = expr.id if isinstance(expr, ast.Name) else expr.value if isinstance(expr, ast.Constant) else None
        if isinstance(name, str):  # a string is an annotation
            for bound, where in self.values(name, scope):
                if isinstance(bound, ast.ClassDef):
                    yield bound
                elif isinstance(bound, _Self) and bound.is_class:
                    yield bound.owner
                elif isinstance(bound, ast.Name | ast.Attribute):
                    yield from self.classes(bound, where)
        elif isinstance(expr, ast.BinOp):  # Model | None
            yield from self.classes(expr.left, scope)
            yield from self.classes(expr.right, scope)
        elif isinstance(expr, ast.Attribute):
            if expr.attr == "__class__":
                yield from (owner for owner, _ in self.instances(expr.value, scope))
            for outer in self.classes(expr.value, scope):
                for bound, _ in self.names.scopes[id(outer)].names.get(expr.attr, ()):
                    if isinstance(bound, ast.ClassDef):
                        yield bound
        elif isinstance(expr, ast.Subscript):  # Optional[Model], Model[T]
            yield from self.classes(expr.value, scope)
            yield from self.classes(expr.slice, scope)
        elif isinstance(expr, ast.Call) and _is_name(expr.func, "type") and len(expr.args) == 1:
            yield from (owner for owner, _ in self.instances(expr.args[0], scope))

    def instances(self, expr: ast.expr, scope: _Scope) -> tuple[tuple[ast.ClassDef, bool], ...]:
        """The classes of the objects that an expression may stand for, each with whether it is exactly that one."""
        found: tuple[tuple[ast.ClassDef, bool], ...] = self._ask("instance", expr, self._instances, scope)
        return found

    def _instances(self, expr: ast.expr, scope: _Scope) -> Iterator[tuple[ast.ClassDef, bool]]:
        if isinstance(expr, ast.Name):
            for bound, where in self.values(expr.id, scope):
                if isinstance(bound, _Self) and not bound.is_class:
                    yield bound.owner, False
                elif isinstance(bound, _Typed):
                    yield from ((c, False) for c in self.classes(bound.annotation, where))
                elif isinstance(bound, ast.expr):
                    yield from self.instances(bound, where)
        elif isinstance(expr, ast.Attribute):
            for owner, _ in self.instances(expr.value, scope):
                for cls in self._lineage(owner):
                    for use in self.names.attributes.get((id(cls), expr.attr), ()):
                        yield from self.instances(*use)
                    for bound, where in self.names.scopes[id(cls)].names.get(expr.attr, ()):
                        if isinstance(bound, ast.expr):
                            yield from self.instances(bound, where)
        elif isinstance(expr, ast.Call):
            yield from ((c, True) for c in self.classes(expr.func, scope))
            if isinstance(expr.func, ast.Attribute) and expr.func.attr in _FLUENT:
                yield from self.instances(expr.func.value, scope)
            if _is_name(expr.func, "super"):
                for owner in _around(scope):
                    yield from ((b, True) for b in self._parents(owner))
            if expr.args and self.last(expr.func, scope) & {"compile", "script", "deepcopy", "copy"}:
                yield from self.instances(expr.args[0], scope)
            for reach in self.functions(expr.func, scope):
                inner = self.names.scopes[id(reach.node)]
                for value in inner.returns:
                    yield from self.instances(value, inner)
        for e in self.alternatives(expr):
            yield from self.instances(e, scope)

    def _parents(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        if id(cls) not in self._bases:
            scope = self.names.scopes[id(cls)].parent
            assert scope is not None
            self._bases[id(cls)] = [c for base in cls.bases for c in self.classes(base, scope) if c is not cls]
        return self._bases[id(cls)]

    def _lineage(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and those of the module that it inherits from, nearest first."""
        found = [cls]
        for c in found:
            found += [b for b in self._parents(c) if b not in found]
        return found

    def _below(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        """The classes of the module that inherit from the class."""
        if self._children is None:
            self._children = {}
            for scope in self.names.scopes.values():
                if isinstance(scope.node, ast.ClassDef):
                    for base in self._parents(scope.node):
                        self._children.setdefault(id(base), []).append(scope.node)
        found = list(self._children.get(id(cls), ()))
        for c in found:
            found += [b for b in self._children.get(id(c), ()) if b not in found]
        return found


def _outward(scope: _Scope) -> Iterator[_Scope]:
    outer: _Scope | None = scope
    while outer is not None:
        yield outer
        outer = outer.parent


def _around(scope: _Scope) -> Iterator[ast.ClassDef]:
    for s in _outward(scope):
        if isinstance(s.node, ast.ClassDef):
            yield s.node
            return


def _is_name(expr: ast.expr, name: str) -> bool:
    return isinstance(expr, ast.Name) and expr.id == name


def _keyword(call: ast.Call, *names: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg in names), None)


# --- vmap calls -----------------------------------------------------------------------------

#: in_dims, or a part of them, that are not written out: every parameter that is given is batched.
_UNKNOWN = 0


@dataclass
class _Finder:
    """Finds the functions that are passed to vmap; ``found`` says whether the module calls vmap at all."""

    module: Module
    targets: _Targets
    found: bool = False

    def run(self) -> None:
        self.lines = _LINE_END.split(self.module.source.text)
        self.names = _Names(self.module.tree)
        self.resolver = _Resolver(self.names)
        self.by_node = {id(f.node): f for f in self.module.functions}
        self.calls_of: dict[tuple[int, str], list[ast.Call]] = {}
        for call in self.names.calls:
            if isinstance(call.node.func, ast.Name):
                home = call.scope.holder(call.node.func.id)
                if home is not None:
                    self.calls_of.setdefault((id(home), call.node.func.id), []).append(call.node)
        for call in self.names.calls:
            for transform in self.resolver.transforms(call.node.func, call.scope):
                self._call(call, transform)
        for decorator in self.names.decorators:
            self._decorator(decorator)
        self._carry_on()

    def _call(self, call: _Call, transform: _Transform) -> None:
        self.found = True
        args, keywords = _arguments(transform, call.node, call.scope)
        fn = args[0] if args else keywords.get("func") or keywords.get("fn")
        if fn is None:
            return
        dims = self._dims(args[1] if len(args) > 1 else keywords.get("in_dims"))
        seen = self._visible(call)
        for reach in self.resolver.functions(*fn):
            self._target(reach, dims, seen, call.node)
        applied = self.resolver.last(*fn) & (APPLIERS | PACKED.keys())
        for name in applied:
            # vmap(functional_call, in_dims=(None, None, 0))(model, params, x)
            for given in seen:
                for reach in self.resolver.functions(given.args[0], call.scope) if given.args else ():
                    if name in PACKED:
                        self._target(_Reach(reach.node, reach.filled, packed=PACKED[name]), dims, [], call.node)
                    else:
                        self._target(reach, dims[1:] if isinstance(dims, tuple) else dims, [], call.node)

    def _visible(self, call: _Call) -> list[ast.Call]:
        """The calls of what vmap gave, on the spot or through a name, where their arguments can be counted."""
        if call.called_by is not None:
            seen = [call.called_by]
        else:
            names = self.names.assigned.get(id(call.node), ())
            seen = [c for home, name in names for c in self.calls_of.get((id(home), name), ())]
        return _countable(seen)

    def _decorator(self, decorator: _Decorator) -> None:
        (expr, scope), node = decorator.use, decorator.function
        f = self.by_node[id(node)]
        transforms = list(self.resolver.transforms(expr, scope))
        if not transforms and isinstance(expr, ast.Call) and not expr.args and not _keyword(expr, "func", "fn"):
            # @if2where.convert(in_dims=...)
            keywords = tuple((k.arg, _Use(k.value, scope)) for k in expr.keywords if k.arg is not None)
            transforms = [
                _Transform(t.args, (*t.keywords, *keywords)) for t in self.resolver.transforms(expr.func, scope)
            ]
        seen = [] if isinstance(scope.node, ast.ClassDef) else self.calls_of.get((id(scope), node.name), [])
        for transform in transforms:
            self.found = True
            dims = self._dims(dict(transform.keywords).get("in_dims"))
            # vmap is given the plain function: the object is its first argument, and counts.
            self._target(_Reach(node), dims, _countable(seen), expr, own=_implicit(f))

    def _target(self, reach: _Reach, dims: Any, seen: list[ast.Call], at: ast.expr, own: int = 0) -> None:
        f = self.by_node.get(id(reach.node))
        if f is None:  # a lambda that has no place in the text
            return
        if reach.packed is not None:
            seen = []
            if isinstance(dims, tuple):
                dims = dims[reach.packed] if reach.packed < len(dims) else None
        a = reach.node.args
        positional = [p.arg for p in (*a.posonlyargs, *a.args)]
        default = _defaulted(reach.node)
        # vmap passes keyword arguments on as they are: only what can be given by position is batched
        specs: dict[str, Spec] = {p.arg: "unbatched" for p in parameters(reach.node)}
        open_to = positional[reach.filled :]
        open_to = open_to[: next((k for k, n in enumerate(open_to) if n in reach.fixed), len(open_to))]
        for k, name in enumerate(open_to):
            if dims is None:
                continue
            if isinstance(dims, tuple | list):
                specs[name] = _spec(dims[k]) if k < len(dims) else "unbatched"
            elif seen:
                given = [c.args[k] for c in seen if k < len(c.args)]
                specs[name] = "unbatched" if all(map(_is_literal, given)) else "batched"
            else:
                specs[name] = "unbatched" if name in default else "batched"
        for name in positional[:own]:
            specs[name] = "unbatched"
        if a.vararg is not None:
            beyond = len(open_to)
            if isinstance(dims, tuple | list):
                batched = any(_spec(d) != "unbatched" for d in dims[beyond:])
            else:
                batched = dims is not None and (not seen or any(len(c.args) > beyond for c in seen))
            specs[a.vararg.arg] = "batched" if batched else "unbatched"
        self.targets.add(f, specs, "vmapped", self._place(at))

    def _place(self, node: ast.expr) -> tuple[int, int]:
        line = self.lines[node.lineno - 1]
        if line.isascii():
            return node.lineno, node.col_offset + 1
        return node.lineno, len(line.encode("utf-8", "surrogatepass")[: node.col_offset].decode("utf-8", "ignore")) + 1

    # in_dims

    def _dims(self, use: _Use | None) -> Any:
        """in_dims as far as it is written out."""
        self._budget = _LONGEST
        dims = 0 if use is None else self._fold(use.expr, use.scope, 0)
        return tuple(dims) if isinstance(dims, list) else dims

    def _fold(self, expr: ast.expr, scope: _Scope, depth: int) -> Any:
        self._budget -= 1  # constants may be made of one another, over and over
        if depth > _DEPTH or self._budget < 0:
            return _UNKNOWN
        if isinstance(expr, ast.Constant):
            return expr.value if expr.value is None or isinstance(expr.value, int) else _UNKNOWN
        if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
            inner = self._fold(expr.operand, scope, depth + 1)
            return -inner if isinstance(inner, int) else _UNKNOWN
        if isinstance(expr, ast.Tuple | ast.List):
            items: list[Any] = []
            for e in expr.elts:
                if isinstance(e, ast.Starred):
                    inner = self._fold(e.value, scope, depth + 1)
                    if not isinstance(inner, tuple | list):
                        return _UNKNOWN
                    items += inner
                else:
                    items.append(self._fold(e, scope, depth + 1))
            return tuple(items) if isinstance(expr, ast.Tuple) else items
        if isinstance(expr, ast.Dict):
            if not all(isinstance(k, ast.Constant) for k in expr.keys):
                return _UNKNOWN
            keys = [k.value for k in expr.keys if isinstance(k, ast.Constant)]
            return {k: self._fold(v, scope, depth + 1) for k, v in zip(keys, expr.values, strict=True)}
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add | ast.Mult):
            left, right = self._fold(expr.left, scope, depth + 1), self._fold(expr.right, scope, depth + 1)
            if isinstance(expr.op, ast.Add) and isinstance(left, tuple) and isinstance(right, tuple):
                return left + right if len(left) + len(right) <= _LONGEST else _UNKNOWN
            if isinstance(left, int):
                left, right = right, left
            if isinstance(expr.op, ast.Mult) and isinstance(left, tuple) and isinstance(right, int):
                return left * right if right * len(left) <= _LONGEST else _UNKNOWN
            return _UNKNOWN
        if isinstance(expr, ast.Name):
            bound = self.resolver.values(expr.id, scope)
            if len(bound) == 1 and isinstance(bound[0][0], ast.expr):
                return self._fold(bound[0][0], bound[0][1], depth + 1)
        return _UNKNOWN

    # functions that a target hands on

    def _carry_on(self) -> None:
        """Functions that a target applies through functional_call, jvp, vjp or linearize are in scope as well.

        What they are given is batched where it hangs on a batched parameter or a local of the target.
        """
        through = APPLIERS | PACKED.keys()
        handed = [c for c in self.names.calls if c.node.args and self.resolver.last(c.node.func, c.scope) & through]
        for _ in range(_ROUNDS if handed else 0):
            changed = [self._hand_on(call) for call in handed]
            if not any(changed):
                return

    def _hand_on(self, call: _Call) -> bool:
        if not any(id(s.node) in self.targets.by_node for s in _outward(call.scope)):
            return False
        name = next(iter(self.resolver.last(call.node.func, call.scope) & (APPLIERS | PACKED.keys())))
        given = call.node.args[1:]
        if name in PACKED:
            held = call.node.args[PACKED[name]] if PACKED[name] < len(call.node.args) else None
            given = list(held.elts) if isinstance(held, ast.Tuple | ast.List) else [] if held is None else [held]
        dims = tuple(0 if self._batched(g, call.scope) else None for g in given)
        changed = False
        if any(d == 0 for d in dims):
            for reach in self.resolver.functions(call.node.args[0], call.scope):
                before = self.targets.by_node.get(id(reach.node))
                self._target(_Reach(reach.node, reach.filled, reach.fixed), dims, [], call.node)
                after = self.targets.by_node.get(id(reach.node))
                changed |= after is not None and (before is None or before.batched != after.batched)
        return changed

    def _batched(self, expr: ast.expr, scope: _Scope) -> bool:
        for node in ast.walk(expr):
            home = scope.holder(node.id) if isinstance(node, ast.Name) else None
            if home is None or not any(id(s.node) in self.targets.by_node for s in _outward(home)):
                continue
            assert isinstance(node, ast.Name)
            target = self.targets.by_node.get(id(home.node))
            if target is None or target.batched.get(node.id, "batched") != "unbatched":
                return True
            if any(isinstance(bound, ast.AST) for bound, where in home.names[node.id] if where is home):
                return True  # assigned again in the body
        return False


def _arguments(transform: _Transform, call: ast.Call, scope: _Scope) -> tuple[list[_Use], dict[str, _Use]]:
    args = [*transform.args, *(_Use(a, scope) for a in call.args)]
    keywords = dict(transform.keywords)
    keywords.update((k.arg, _Use(k.value, scope)) for k in call.keywords if k.arg is not None)
    return args, keywords


def _countable(calls: list[ast.Call]) -> list[ast.Call]:
    return [] if any(isinstance(a, ast.Starred) for c in calls for a in c.args) else calls


def _is_literal(expr: ast.expr) -> bool:
    if isinstance(expr, ast.UnaryOp):
        expr = expr.operand
    return isinstance(expr, ast.Constant)


def _spec(dim: Any) -> Spec:
    if dim is None:
        return "unbatched"
    return "batched" if isinstance(dim, int) else dim
