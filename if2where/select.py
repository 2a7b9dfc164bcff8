"""Which functions of a module are in scope, and which of their parameters are batched. Reads, never runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from if2where.module import Function, FunctionNode, Module

VMAPS = frozenset(
    {
        "torch.vmap",
        "torch.func.vmap",
        "functorch.vmap",
        "torch._functorch.apis.vmap",
        "torch._functorch.vmap.vmap",
        "if2where.vmap",
        "if2where.convert",
    }
)
#: Functions of a function that give another function of the same arguments.
WRAPPERS = frozenset(
    [
        "grad",
        "grad_and_value",
        "value_and_grad",
        "jacrev",
        "jacfwd",
        "hessian",
        "vjp",
        "jvp",
        "linearize",
        "functionalize",
        "compile",
        "script",
        "checkpoint",
        "no_grad",
        "enable_grad",
        "inference_mode",
        "wraps",
        "lru_cache",
        "cache",
    ]
)
_NUMBER_ANNOTATIONS = re.compile(
    r"^(?:builtins\.)?(?:float|int|bool|str|bytes|complex|dict|Callable|Any)\b|None$|nn\.Module|Module$|dtype|device"
)
_TENSOR_ANNOTATION = re.compile(r"Tensor|Float\[|Int\[|Bool\[|Shaped\[|Num\[|Inexact\[|Real\[")
_TENSOR_METHODS = frozenset(
    [
        "abs",
        "sum",
        "mean",
        "norm",
        "sqrt",
        "exp",
        "log",
        "clamp",
        "item",
        "detach",
        "clone",
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "dim",
        "size",
        "numel",
        "softmax",
        "sigmoid",
        "tanh",
        "any",
        "all",
        "max",
        "min",
        "argmax",
        "cumsum",
        "matmul",
        "pow",
        "backward",
        "double",
        "float",
        "long",
    ]
)


@dataclass(frozen=True)
class Target:
    """A function in scope. ``batched``: per parameter "batched", "unbatched", "unknown", or the literal in_dims of a container."""

    function: Function
    batched: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Selection:
    """``scope`` is the one taken; ``unmatched`` names that --function gave and nothing has."""

    scope: str
    targets: tuple[Target, ...]
    skipped: frozenset[int]
    unmatched: tuple[str, ...] = ()


def might_matter(text: str, scope: str) -> bool:
    """Whether a file can hold anything in scope: a scan of the text, before anything is parsed."""
    return "vmap" in text or "if2where" in text or (scope != "vmapped" and "torch" in text)


def select(module: Module, scope: str = "auto", functions: tuple[str, ...] = ()) -> Selection:
    """The functions of the module that are in scope."""
    marks = module.pragmas
    skipped = frozenset(id(f.node) for f in module.functions if _skipped(f, module, marks))
    if _file_skipped(module, marks):
        return Selection("vmapped", (), skipped)
    found = _Finder(module)
    targets = dict(found.targets)
    for f in module.functions:
        if any("convert" in marks.get(line, ()) for line in _header_lines(f)):
            _add(targets, f, _marked(f), "marked")
    unmatched: tuple[str, ...] = ()
    if functions:
        named = {
            n: [f for f in module.functions if n in (f.qualname, f.qualname.rsplit(".", 1)[-1])] for n in functions
        }
        unmatched = tuple(n for n, fs in named.items() if not fs)
        targets = {
            id(f.node): targets.get(id(f.node)) or Target(f, _marked(f), "named") for fs in named.values() for f in fs
        }
    taken = ("vmapped" if targets else "all") if scope == "auto" and not functions else scope
    if taken == "all" and not functions:
        for f in module.functions:
            if id(f.node) not in targets and evident(f.node):
                _add(targets, f, _guessed(f), "all")
    kept = tuple(t for key, t in targets.items() if key not in skipped and not _inside_skipped(t.function, skipped))
    return Selection("vmapped" if taken == "auto" else taken, kept, skipped, unmatched)


def _inside_skipped(f: Function, skipped: frozenset[int]) -> bool:
    outer = f.parent
    while outer is not None:
        if id(outer.node) in skipped:
            return True
        outer = outer.parent
    return False


def _header_lines(f: Function) -> range:
    node = f.node
    if isinstance(node, ast.Lambda):
        return range(node.lineno, node.lineno + 1)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return range(first - 1, max(node.lineno, node.body[0].lineno - 1) + 1)


def _skipped(f: Function, module: Module, marks: dict[int, tuple[str, ...]]) -> bool:
    if not marks:
        return False
    if any("skip" in marks.get(line, ()) for line in _header_lines(f)):
        return True
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.ClassDef)
            and "skip" in marks.get(node.lineno, ())
            and any(n is f.node for n in ast.walk(node))
        ):
            return True
    return False


def _file_skipped(module: Module, marks: dict[int, tuple[str, ...]]) -> bool:
    first = next(
        (s.lineno for s in module.tree.body if not isinstance(s, ast.Import | ast.ImportFrom) and not _is_docstring(s)),
        10**9,
    )
    lines = module.source.text.splitlines()
    return any(
        "skip" in words and line < first and lines[line - 1].lstrip().startswith("#") and not _above_def(module, line)
        for line, words in marks.items()
    )


def _above_def(module: Module, line: int) -> bool:
    return any(
        isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and line == min([s.lineno, *(d.lineno for d in s.decorator_list)]) - 1
        for s in module.tree.body
    )


def _is_docstring(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def _add(targets: dict[int, Target], f: Function, batched: dict[str, Any], reason: str) -> None:
    """Several calls of one function are joined: a parameter that one of them batches is batched."""
    old = targets.get(id(f.node))
    if old is not None:
        order = ("unbatched", "unknown", "batched")
        merged = dict(old.batched)
        for name, spec in batched.items():
            have = merged.get(name, "unbatched")
            both = isinstance(have, str) and isinstance(spec, str)
            merged[name] = max(have, spec, key=order.index) if both else spec if isinstance(have, str) else have
        batched, reason = merged, old.reason
    targets[id(f.node)] = Target(f, batched, reason)


def parameters(node: FunctionNode) -> list[ast.arg]:
    a = node.args
    return [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]


def _defaulted(node: FunctionNode) -> set[str]:
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    names = {p.arg for p in positional[len(positional) - len(a.defaults) :]} if a.defaults else set()
    return names | {p.arg for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}


def _annotation(arg: ast.arg) -> str:
    return ast.unparse(arg.annotation) if arg.annotation is not None else ""


def _implicit(f: Function) -> int:
    """How many leading parameters the object or class fills."""
    if f.owner is None or isinstance(f.node, ast.Lambda):
        return 0
    return 0 if any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in f.node.decorator_list) else 1


def _marked(f: Function) -> dict[str, Any]:
    default = _defaulted(f.node)
    specs: dict[str, Any] = {}
    for k, arg in enumerate(parameters(f.node)):
        text = _annotation(arg)
        fixed = (
            k < _implicit(f)
            or (arg.arg in default and not _TENSOR_ANNOTATION.search(text))
            or bool(_NUMBER_ANNOTATIONS.search(text) and not _TENSOR_ANNOTATION.search(text))
        )
        specs[arg.arg] = "unbatched" if fixed else "batched"
    return specs


def _guessed(f: Function) -> dict[str, Any]:
    specs: dict[str, Any] = {}
    default = _defaulted(f.node)
    used = _tensor_uses(f.node)
    for k, arg in enumerate(parameters(f.node)):
        text = _annotation(arg)
        if k < _implicit(f):
            specs[arg.arg] = "unbatched"
        elif _TENSOR_ANNOTATION.search(text):
            specs[arg.arg] = "unknown" if re.search(r"\b(?:float|int|bool|str|Number)\b", text) else "batched"
        elif text or arg.arg in default:
            specs[arg.arg] = "unbatched"
        else:
            specs[arg.arg] = "batched" if arg.arg in used else "unknown"
    return specs


def evident(node: FunctionNode) -> bool:
    """Whether something in the function evidently is a tensor."""
    return any(_TENSOR_ANNOTATION.search(_annotation(a)) for a in parameters(node)) or bool(_tensor_uses(node))


def _tensor_uses(node: FunctionNode) -> set[str]:
    """The parameters that torch's functions or a tensor's methods are applied to."""
    names = {a.arg for a in parameters(node)}
    used: set[str] = set()
    for sub in ast.walk(node):
        if not (isinstance(sub, ast.Call) and isinstance(sub.func, ast.Attribute)):
            continue
        base = sub.func.value
        root = base
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in ("torch", "F"):
            used |= {a.id for a in sub.args if isinstance(a, ast.Name) and a.id in names}
        elif (
            isinstance(base, ast.Name)
            and base.id in names
            and sub.func.attr
            in _TENSOR_METHODS - {"float", "max", "min", "size", "view", "pow", "any", "all", "sum", "abs", "mean"}
        ):
            used.add(base.id)
    return used


# --- vmap calls -----------------------------------------------------------------------------


@dataclass
class _Finder:
    """Finds the functions that are passed to vmap in a module."""

    module: Module
    targets: dict[int, Target] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.aliases = self._find_aliases()
        self.by_node = {id(f.node): f for f in self.module.functions}
        self.values = self._find_values()
        self.visit()

    def _find_aliases(self) -> dict[str, str]:
        aliases: dict[str, str] = {}
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Import):
                for a in node.names:
                    aliases[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for a in node.names:
                    aliases[a.asname or a.name] = f"{node.module}.{a.name}"
        for _ in range(2):
            for node in ast.walk(self.module.tree):
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                    if isinstance(node.value, ast.Attribute | ast.Name):
                        dotted = _dotted(node.value, aliases)
                        if dotted in VMAPS:
                            aliases[node.targets[0].id] = dotted
        return aliases

    def _find_values(self) -> dict[str, list[ast.expr]]:
        values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Assign):
                for t in node.targets:
                    if isinstance(t, ast.Name):
                        values.setdefault(t.id, []).append(node.value)
            elif (
                isinstance(node, ast.AnnAssign | ast.NamedExpr)
                and isinstance(node.target, ast.Name)
                and node.value is not None
            ):
                values.setdefault(node.target.id, []).append(node.value)
        return values

    def name(self, node: ast.AST) -> str:
        return _dotted(node, self.aliases)

    def is_vmap(self, node: ast.expr) -> bool:
        return self.name(node) in VMAPS

    def partial_of_vmap(self, node: ast.expr) -> ast.Call | None:
        """``partial(vmap, ...)``, also under a name."""
        if isinstance(node, ast.Name) and len(self.values.get(node.id, ())) == 1:
            node = self.values[node.id][0]
        if (
            isinstance(node, ast.Call)
            and self.name(node.func) in ("functools.partial", "partial")
            and node.args
            and self.is_vmap(node.args[0])
        ):
            return node
        return None

    def visit(self) -> None:
        stack: list[tuple[ast.AST, tuple[ast.AST, ...], ast.Call | None]] = [(self.module.tree, (), None)]
        while stack:
            node, outer, called_by = stack.pop()
            if isinstance(node, ast.Call):
                self.call(node, outer, called_by)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for d in node.decorator_list:
                    self.decorator(d, node)
            inner = (*outer, node) if isinstance(node, FunctionNode | ast.ClassDef) else outer
            for child in ast.iter_child_nodes(node):
                by = node if isinstance(node, ast.Call) and child is node.func else None
                stack.append((child, inner, by))

    def call(self, node: ast.Call, outer: tuple[ast.AST, ...], called_by: ast.Call | None) -> None:
        keywords = {k.arg: k.value for k in node.keywords if k.arg is not None}
        if self.is_vmap(node.func):
            fn = node.args[0] if node.args else keywords.get("func") or keywords.get("fn")
            dims = node.args[1] if len(node.args) > 1 else keywords.get("in_dims")
        else:
            made = self.partial_of_vmap(node.func)
            if made is None or not node.args:
                return
            fn = node.args[0]
            dims = keywords.get("in_dims") or next((k.value for k in made.keywords if k.arg == "in_dims"), None)
        if fn is None or self.is_vmap(fn):
            return
        for f, skip, fixed in self.resolve(fn, outer, 0):
            self.target(f, skip, fixed, dims, called_by)

    def decorator(self, d: ast.expr, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        dims: ast.expr | None = None
        if isinstance(d, ast.Call):
            made = self.partial_of_vmap(d)
            if made is None and not self.is_vmap(d.func):
                return
            dims = next((k.value for k in d.keywords if k.arg == "in_dims"), None)
        elif not self.is_vmap(d):
            made = self.partial_of_vmap(d)
            if made is None:
                return
            dims = next((k.value for k in made.keywords if k.arg == "in_dims"), None)
        f = self.by_node[id(node)]
        self.target(f, _implicit(f), set(), dims, None)

    def target(
        self, f: Function, skip: int, fixed: set[str], dims: ast.expr | None, called_by: ast.Call | None
    ) -> None:
        literal = self.literal(dims)
        args = f.node.args
        positional = [*args.posonlyargs, *args.args]
        default = _defaulted(f.node)
        specs: dict[str, Any] = {p.arg: "unbatched" for p in positional[:skip]}
        rest = [p for p in positional[skip:] if p.arg not in fixed]
        given = (
            called_by.args
            if called_by is not None and not any(isinstance(a, ast.Starred) for a in called_by.args)
            else None
        )
        named = {k.arg for k in called_by.keywords} if called_by is not None else set()
        for k, p in enumerate(rest):
            if isinstance(literal, tuple | list):
                specs[p.arg] = _spec(literal[k]) if k < len(literal) else "batched" if p.arg in named else "unbatched"
            elif given is not None:
                specs[p.arg] = (
                    "batched"
                    if (k < len(given) and not isinstance(given[k], ast.Constant)) or p.arg in named
                    else "unbatched"
                )
            else:
                specs[p.arg] = "unbatched" if p.arg in default else "batched"
        for name in fixed:
            specs[name] = "unbatched"
        if args.vararg is not None:
            extra = literal[len(rest) :] if isinstance(literal, tuple | list) else ()
            specs[args.vararg.arg] = (
                "unbatched" if isinstance(literal, tuple | list) and all(d is None for d in extra) else "batched"
            )
        for p in args.kwonlyargs:
            specs[p.arg] = "batched" if p.arg in named or (p.arg not in default and p.arg not in fixed) else "unbatched"
        if args.kwarg is not None:
            specs[args.kwarg.arg] = "batched" if named else "unbatched"
        _add(self.targets, f, specs, "vmapped")

    def literal(self, node: ast.expr | None) -> Any:
        """The value of in_dims where it is written out, else 0: every parameter is batched."""
        if node is None:
            return 0
        if isinstance(node, ast.Name) and len(self.values.get(node.id, ())) == 1:
            node = self.values[node.id][0]
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            if isinstance(node, ast.Tuple | ast.List):
                return tuple(self.literal(e) for e in node.elts)
            return 0

    def resolve(
        self, node: ast.expr, outer: tuple[ast.AST, ...], depth: int
    ) -> Iterator[tuple[Function, int, set[str]]]:
        """The functions that an expression may stand for: each with how many parameters are filled, and which by name."""
        if depth > 8:
            return
        if isinstance(node, ast.Lambda):
            yield self.by_node[id(node)], 0, set()
        elif isinstance(node, ast.Name):
            yield from self.named(node.id, outer, depth)
        elif isinstance(node, ast.Attribute):
            for cls in self.classes_of(node.value, outer):
                for f in self.methods(cls, node.attr):
                    through_class = isinstance(node.value, ast.Name) and node.value.id == cls.name
                    bound = _implicit(f)
                    is_cls = isinstance(f.node, ast.FunctionDef) and any(
                        isinstance(d, ast.Name) and d.id == "classmethod" for d in f.node.decorator_list
                    )
                    yield f, 0 if through_class and not is_cls else bound, set()
        elif isinstance(node, ast.Call):
            name = self.name(node.func)
            last = name.rsplit(".", 1)[-1]
            if name in ("functools.partial", "partial") and node.args:
                names = {k.arg for k in node.keywords if k.arg is not None}
                for f, skip, fixed in self.resolve(node.args[0], outer, depth + 1):
                    yield f, skip + len(node.args) - 1, fixed | names
            elif (
                last in WRAPPERS or self.is_vmap(node.func) or self.partial_of_vmap(node.func) is not None
            ) and node.args:
                yield from self.resolve(node.args[0], outer, depth + 1)
            else:
                for cls in self.classes_of(node, outer):
                    yield from self.callable_object(cls)

    def named(self, name: str, outer: tuple[ast.AST, ...], depth: int) -> Iterator[tuple[Function, int, set[str]]]:
        for level in range(len(outer), -1, -1):
            around = outer[level - 1] if level else None
            if around is not None and isinstance(around, ast.ClassDef):
                continue
            here = [
                f
                for f in self.module.functions
                if not isinstance(f.node, ast.Lambda)
                and f.node.name == name
                and f.owner is None
                and (f.parent.node if f.parent else None) is around
            ]
            if here:
                yield from ((f, 0, set()) for f in here)
                return
        for value in self.values.get(name, ()):
            if not (isinstance(value, ast.Name) and value.id == name):
                yield from self.resolve(value, outer, depth + 1)

    def classes_of(self, node: ast.expr, outer: tuple[ast.AST, ...]) -> Iterator[ast.ClassDef]:
        if isinstance(node, ast.Name):
            if node.id in ("self", "cls"):
                yield from (c for c in reversed(outer) if isinstance(c, ast.ClassDef))
                return
            found = [c for c in ast.walk(self.module.tree) if isinstance(c, ast.ClassDef) and c.name == node.id]
            if found:
                yield from found
                return
            for value in self.values.get(node.id, ()):
                if isinstance(value, ast.Call):
                    yield from self.classes_of(value, outer)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call | ast.Name):
                yield from self.classes_of(node.func.value, outer) if not isinstance(node.func.value, ast.Name) else ()
            yield from (
                c
                for c in ast.walk(self.module.tree)
                if isinstance(c, ast.ClassDef) and isinstance(node.func, ast.Name) and c.name == node.func.id
            )

    def methods(self, cls: ast.ClassDef, name: str) -> list[Function]:
        return [
            self.by_node[id(n)]
            for n in cls.body
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == name
        ]

    def callable_object(self, cls: ast.ClassDef) -> Iterator[tuple[Function, int, set[str]]]:
        for name in ("forward", "__call__"):
            for f in self.methods(cls, name):
                yield f, 1, set()


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, aliases)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _spec(dim: Any) -> Any:
    if dim is None:
        return "unbatched"
    return "batched" if isinstance(dim, int) else dim
