"""The program as it stands in memory: names resolve to objects, and kinds are observed on them.

Nothing of the user's is called: attributes are read where they are stored, never through properties.
"""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from if2where.kinds.lattice import (
    Bound,
    ClassObject,
    Function,
    Instance,
    Kind,
    Mapping,
    Sequence,
    Static,
    Tensor,
    Unknown,
    join_all,
)
from if2where.module import Function as FunctionSpan
from if2where.module import Module
from if2where.program import Callee, ClassInfo, Program
from if2where.region import tree
from if2where.runtime.sources import SourceUnavailable, locate, module_of
from if2where.select import select

#: Packages that inference knows by name; their own source is not looked into.
_KNOWN = {
    "torch": "torch",
    "functorch": "torch",
    "math": "math",
    "numpy": "numpy",
    "scipy": "numpy",
    "if2where": "if2where",
}
_NAMESPACES = (torch, torch.nn.functional, torch.linalg, torch.special, torch.fft, torch.func)
_INSTALLED = ("site-packages", "dist-packages")
#: The largest container whose items are looked at one by one.
_LARGEST = 64

#: What no name stands for.
ABSENT: Any = object()


@dataclass(frozen=True, eq=False)
class LiveClass(ClassInfo):
    """A class in memory with its place in the source."""

    cls: type


class Trace(NamedTuple):
    """What a name stood for outside a function: the object where its identity matters, else its type."""

    function: Any  # types.FunctionType, which a type checker takes for a method here
    name: str
    value: Any
    exact: bool

    def holds(self) -> bool:
        now = value_of(self.name, self.function)
        return now is self.value if self.exact else type(now) is self.value


_IDENTITIES = (types.FunctionType, types.MethodType, types.ModuleType, type)


class LiveProgram(Program):
    """Functions are registered by ``callee_of``; whatever inference asks for by name is looked up in them.

    ``names`` holds, for each function, the names that were looked up outside it; ``methods_read`` and
    ``attributes_read``, for each class, what was looked up on it or its objects; ``members_read``, for each
    module. ``late`` tells that something was seen after an answer had been given that it would have changed:
    inference is then done again, with what has been seen so far.
    """

    def __init__(self, follow_installed: bool = True) -> None:
        super().__init__([])
        self.follow_installed = follow_installed
        self.met_installed = False
        #: Whether functional_call gives modules parameters that are batched.
        self.batched_state = False
        self.functions: dict[Callee, list[types.FunctionType]] = {}
        self.names: dict[Callee, set[str]] = {}
        self.classes: dict[type, LiveClass | None] = {}
        self.partials: dict[int, functools.partial[Any]] = {}
        self.objects: dict[type, dict[int, Any]] = {}
        self.methods_read: dict[type, dict[str, types.FunctionType]] = {}
        self.attributes_read: dict[type, set[str]] = {}
        self.members_read: dict[str, set[str]] = {}
        self.late = False
        self._globals: dict[int, dict[str, Any]] = {}
        self._owners: dict[int, LiveClass] = {}
        self._observing: set[int] = set()
        self._kept_out: dict[int, frozenset[int]] = {}

    # --- functions --------------------------------------------------------------------------

    def _followed(self, function: types.FunctionType) -> bool:
        """Whether a helper is looked into: one of an installed package only where that is asked for."""
        self.met_installed = self.met_installed or installed(function)
        return self.follow_installed or not installed(function)

    def callee_of(self, function: types.FunctionType, owner: LiveClass | None = None) -> Callee:
        """The program's function for a function object; raises SourceUnavailable."""
        module, span = locate(function)
        if not any(m is module for m in self.modules):
            self.add(module)
        self._globals.setdefault(id(module), function.__globals__)
        if owner is not None:
            self._owners.setdefault(id(span.node), owner)
        callee = self.callee(span.node)
        known = self.functions.setdefault(callee, [])
        if not any(f is function for f in known):
            # A second closure of the same code may hold other values than those that were read so far.
            self.late = self.late or bool(known and self.names.get(callee))
            known.append(function)
        return callee

    def _owner(self, module: Module, span: FunctionSpan) -> ClassInfo | None:
        return self._owners.get(id(span.node))

    def trace(self, leads: Callable[[Any], bool]) -> tuple[Trace, ...]:
        """Everything that names stood for, so that a later change can be told."""
        found: list[Trace] = []
        for callee, functions in self.functions.items():
            for f in functions:
                for name in self.names.get(callee, ()):
                    value = value_of(name, f)
                    exact = isinstance(value, _IDENTITIES) or leads(value)
                    found.append(Trace(f, name, value if exact else type(value), exact))
        return tuple(found)

    # --- names ------------------------------------------------------------------------------

    def lookup(self, name: str, callee: Callee) -> Kind:
        root = callee
        while root.parent is not None:
            root = root.parent
        self.names.setdefault(root, set()).add(name)
        values = [value_of(name, f) for f in self.functions.get(root, ())]
        return join_all(Unknown(False) if v is ABSENT else self.observe(v) for v in values)

    def global_name(self, name: str, module: Module) -> Kind:
        scope = self._globals.get(id(module), {})
        value = scope.get(name, getattr(builtins, name, ABSENT))
        return Unknown(False) if value is ABSENT else self.observe(value)

    def imported(self, dotted: str, module: Module) -> Kind:
        """What an import inside a function binds: a package that is known by name, or somebody's module."""
        root = dotted.split(".")[0]
        if root in _KNOWN:
            return Static(_KNOWN[root], dotted)
        return Static("module", dotted) if _standard(root) else Unknown(False)

    def member(self, module: Any, name: str) -> Kind:
        self.members_read.setdefault(module.__name__, set()).add(name)
        value = vars(module).get(name, ABSENT)
        return Unknown(False) if value is ABSENT else self.observe(value)

    def default(self, param: tree.Parameter, callee: Callee) -> Kind:
        """By what is written, as a literal may tell more; else by the object."""
        kind = super().default(param, callee)
        items = kind.items or () if isinstance(kind, Sequence) else (kind,)
        if not any(isinstance(k, Unknown) for k in items):
            return kind
        values = [v for f in self.functions.get(callee, ()) if (v := default_of(f, param.name)) is not ABSENT]
        return join_all(self.observe(v) for v in values) if values else kind

    # --- classes ----------------------------------------------------------------------------

    def class_info(self, cls: type) -> LiveClass | None:
        """The class with its place in the source; None where there is none, or it is a library's own."""
        if cls not in self.classes:
            self.classes[cls] = None if library(cls) is not None else self._find_class(cls)
        return self.classes[cls]

    def _find_class(self, cls: type) -> LiveClass | None:
        for value in vars(cls).values():
            function = plain(value)
            function = None if function is None else unwrapped(function)
            if function is None or function.__qualname__.rpartition(".")[0] != cls.__qualname__:
                continue
            try:
                module, span = locate(function)
            except SourceUnavailable:
                continue
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef) and any(child is span.node for child in node.body):
                    return LiveClass(node, module, cls)
        return self._find_by_fields(cls)

    def _find_by_fields(self, cls: type) -> LiveClass | None:
        """A NamedTuple or dataclass without methods: by its name and fields, in its module or a notebook's cells."""
        fields = getattr(cls, "_fields", None) or tuple(getattr(cls, "__dataclass_fields__", ()))
        home = sys.modules.get(cls.__module__)
        files = [str(getattr(home, "__file__", None) or ""), *self._notebook_files()] if fields and home else []
        for module in (m for f in files if f and (m := module_of(f, f"class {cls.__name__}")) is not None):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                    own = [
                        s.target.id
                        for s in node.body
                        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
                    ]
                    if own and tuple(own) == tuple(fields)[-len(own) :]:
                        self._globals.setdefault(id(module), vars(home))
                        return LiveClass(node, module, cls)
        return None

    def _notebook_files(self) -> list[str]:
        """The files that only linecache knows: a notebook's cells, the last first."""
        return [f for f, entry in reversed(list(linecache.cache.items())) if len(entry) == 4 and entry[1] is None]

    def bases(self, info: ClassInfo) -> Iterator[ClassInfo]:
        assert isinstance(info, LiveClass)
        for cls in info.cls.__mro__:
            found = self.class_info(cls)
            if found is not None:
                yield found

    def methods(self, info: ClassInfo, name: str) -> frozenset[Callee]:
        assert isinstance(info, LiveClass)
        return self._method_of(info.cls, name)

    def inherited(self, receiver: ClassInfo, owner: ClassInfo, name: str) -> frozenset[Callee]:
        assert isinstance(receiver, LiveClass)
        assert isinstance(owner, LiveClass)
        lineage = receiver.cls.__mro__
        after = lineage[lineage.index(owner.cls) + 1 :] if owner.cls in lineage else ()
        for cls in after:
            if name in vars(cls):
                return self._method_of(cls, name)
        return frozenset()

    def _method_of(self, cls: type, name: str) -> frozenset[Callee]:
        for base in cls.__mro__:
            if name in vars(base):
                owner = self.class_info(base)
                function = plain(vars(base)[name])
                if owner is None or function is None or not self._followed(function):
                    return frozenset()
                try:
                    callee = self.callee_of(unwrapped(function), owner)
                except SourceUnavailable:
                    return frozenset()
                self.methods_read.setdefault(cls, {})[name] = function
                return frozenset([callee])
        return frozenset()

    def class_attribute(self, info: ClassInfo, name: str) -> Kind | None:
        assert isinstance(info, LiveClass)
        self.attributes_read.setdefault(info.cls, set()).add(name)
        kinds = [self.observe(v) for v in self.stored(info.cls, name)]
        if self.batched_state and issubclass(info.cls, torch.nn.Module):
            kinds = [replace(k, batched=True) if isinstance(k, Tensor | Unknown) else k for k in kinds]
        return join_all(kinds) if kinds else None

    def stored(self, cls: type, name: str) -> list[Any]:
        """The values of an attribute in the objects that have been seen, or on the class."""
        found = [v for o in self.objects.get(cls, {}).values() if (v := _stored(o, name)) is not ABSENT]
        on_class = next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), ABSENT)
        if not found and on_class is not ABSENT and not hasattr(type(on_class), "__get__"):
            found.append(on_class)
        return found

    # --- values -----------------------------------------------------------------------------

    def observe(self, value: Any) -> Kind:
        """The kind of an object that a name stands for, the same for all samples.

        Of a tensor neither dtype nor shape is taken, and of a number not its value: the name may be bound to
        another one by the time of the call.
        """
        if value is None:
            return Unknown(False)
        if isinstance(value, torch.Tensor):
            return Tensor(is_batched(value))
        for type_, what in _SCALARS:
            if type(value) is type_:
                return Static(what)
        if isinstance(value, torch.dtype):
            return Static("dtype")
        known = library(value)
        if known is not None:
            return known
        if isinstance(value, types.ModuleType):
            return Static("program", value)
        if isinstance(value, types.FunctionType):
            inner = unwrapped(value)
            if is_mapped(inner):
                return Unknown(True)  # if2where.vmap's result: converts what it maps when it is called
            return self._function(inner)
        if isinstance(value, types.MethodType):
            return self._method(value)
        if isinstance(value, type):
            info = self.class_info(value)
            return Unknown(False) if info is None else ClassObject(info)
        if type(value) in (tuple, list, dict):
            return self._container(value)
        if isinstance(value, functools.partial):
            self.partials[id(value)] = value
            return Unknown(True)
        return self._object(value)

    def _function(self, function: types.FunctionType) -> Kind:
        if not self._followed(function):
            return Unknown(False)
        try:
            callee = self.callee_of(function)
        except SourceUnavailable:
            return Unknown(False)
        assert callee.span is not None
        if id(callee.span.node) in self._skipped(callee.module):
            return Unknown(False)
        return Function(frozenset([callee]))

    def _skipped(self, module: Module) -> frozenset[int]:
        """What a comment keeps out: such a function is somebody else's business."""
        if "if2where:" not in module.source.text:
            return frozenset()
        if id(module) not in self._kept_out:
            self._kept_out[id(module)] = select(module, "vmapped").skipped
        return self._kept_out[id(module)]

    def _method(self, method: types.MethodType) -> Kind:
        receiver = self.observe(method.__self__)
        if isinstance(receiver, Instance | ClassObject):
            keys = self.methods(receiver.key, method.__func__.__name__)
            if keys:
                return Bound(receiver, keys)
        return Unknown(False)

    def _container(self, value: Any) -> Kind:
        if len(value) > _LARGEST or id(value) in self._observing:
            return Unknown(False)
        self._observing.add(id(value))
        try:
            if isinstance(value, dict):
                if not all(type(k) in (str, int, bool) for k in value):
                    return Unknown(False)
                return Mapping(tuple(value), tuple(self.observe(v) for v in value.values()), False)
            items = [self.observe(v) for v in value]
            return (
                Sequence("tuple", tuple(items)) if isinstance(value, tuple) else Sequence("list", None, join_all(items))
            )
        finally:
            self._observing.discard(id(value))

    def _object(self, value: Any) -> Kind:
        info = self.class_info(type(value))
        seen = self.objects.setdefault(type(value), {})
        if id(value) not in seen:
            self.late = self.late or bool(self.attributes_read.get(type(value)))
            seen[id(value)] = value
        return Unknown(False) if info is None else Instance(info, False)


#: Whether a tensor is inside a vmap that runs now, and batched there: bool of a tensor.
is_batched: Any = torch._C._functorch.is_batchedtensor

_SCALARS = ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"))


def value_of(name: str, function: types.FunctionType) -> Any:
    """What a name that the function does not bind stands for; ``ABSENT`` where nothing does."""
    if name in function.__code__.co_freevars:
        assert function.__closure__ is not None
        try:
            return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents
        except ValueError:  # the cell is empty still
            return ABSENT
    return function.__globals__.get(name, getattr(builtins, name, ABSENT))


def default_of(function: types.FunctionType, name: str) -> Any:
    """The default of a parameter; ``ABSENT`` where it has none."""
    named = function.__kwdefaults__ or {}
    if name in named:
        return named[name]
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    return dict(zip(reversed(names), reversed(defaults), strict=False)).get(name, ABSENT)


def plain(value: Any) -> types.FunctionType | None:
    """The function under a static method, class method or property."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    return value if isinstance(value, types.FunctionType) else None


def _stored(value: Any, name: str) -> Any:
    """An attribute where it is kept: in the object's dict, or among a module's parameters, buffers and children."""
    own = getattr(value, "__dict__", {})
    if name in own:
        return own[name]
    if isinstance(value, torch.nn.Module):
        for group in ("_parameters", "_buffers", "_modules"):
            if name in own.get(group, ()):
                return own[group][name]
    if isinstance(value, tuple) and name in getattr(value, "_fields", ()):
        return tuple.__getitem__(value, value._fields.index(name))  # type: ignore[attr-defined]
    return ABSENT


def library(value: Any) -> Kind | None:
    """The kind of what belongs to torch, math, numpy, Python's library or the builtins; None for all else."""
    if isinstance(value, types.ModuleType):
        root = value.__name__.split(".")[0]
        if root in _KNOWN:
            return Static(_KNOWN[root], value.__name__)
        return Static("module", value.__name__) if _standard(root) else None
    if not callable(value) or not (
        isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
        or type(value).__module__.split(".")[0] in ("torch", "numpy")
    ):
        return None
    if isinstance(value, torch.nn.Module):
        return None
    name = getattr(value, "__name__", "")
    if getattr(builtins, name, None) is value:
        return Static("builtin", name)
    for space in _NAMESPACES:
        if getattr(space, name, None) is value:
            return Static("torch", f"{space.__name__}.{name}")
    home = getattr(value, "__module__", None) or type(value).__module__
    if isinstance(value, types.FunctionType) and not library_code(value):
        return None  # whatever its __module__ says: exec leaves it to be the builtins'
    root = home.split(".")[0]
    if root in _KNOWN:
        return Static(_KNOWN[root], f"{home}.{name}")
    if _standard(root):
        return Static("module", f"{home}.{name}")
    return None


def unwrapped(function: types.FunctionType) -> types.FunctionType:
    """The function under a library's wrapper (no_grad's, say), which is rebuilt around what stands in for it."""
    while (library_code(function) or installed(function)) and isinstance(
        getattr(function, "__wrapped__", None), types.FunctionType
    ):
        if is_mapped(function):
            break
        function = function.__wrapped__  # type: ignore[attr-defined]
    return function


def is_mapped(function: Any) -> bool:
    """Whether it is what if2where.vmap gives."""
    return isinstance(function, types.FunctionType) and function.__dict__.get("if2where_mapped") is True


def is_converted(function: Any) -> bool:
    """Whether if2where.convert has made it."""
    return isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith("<if2where ")


def library_code(function: types.FunctionType) -> bool:
    """Whether the code is a library's own, whatever functools.wraps has written on the function."""
    root = str(function.__globals__.get("__name__", "")).split(".")[0]
    return root in _KNOWN or _standard(root)


def installed(function: types.FunctionType) -> bool:
    """Whether the function is one of an installed package."""
    return any(part in _INSTALLED for part in Path(function.__code__.co_filename).parts)


def _standard(root: str) -> bool:
    return root in sys.stdlib_module_names and root != "__main__"
