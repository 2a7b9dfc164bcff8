"""Function objects from converted text, and what must stand in for the objects that hold them.

A converted function keeps the globals of the original: the very dict, so that what the module binds later
is seen, ``global`` statements write where they did, and torch.compile meets an ordinary function. (A dict
laid over the original's would be seen by no C code that reads it directly, and not by dynamo.) The names
that must mean something else in it, its converted helpers for one, are made free variables: its text is
compiled inside a function that has them as parameters, and they are reached through cells of its own.
The cells of the original's own free variables are shared with it.

Objects that hold converted functions are met by views: an object of a subclass with the converted methods
that shares the ``__dict__`` of the original, so that either sees what is later stored in the other.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from if2where.module import Module
from if2where.program import Callee
from if2where.runtime.live import ABSENT, LiveProgram, value_of
from if2where.runtime.sources import compiled, register

_numbers = itertools.count(1)


class Rebuilder:
    """Makes stand-ins for values that lead to a converted function; all other values stand for themselves.

    ``texts`` holds the text of each converted function, ``extra`` the names that it needs besides (torch,
    any_active), ``twins`` the second versions of helpers, by their names.
    """

    def __init__(
        self,
        program: LiveProgram,
        texts: dict[Callee, str],
        extra: Callable[[Callee], dict[str, Any]],
        twins: dict[Callee, dict[str, str]],
    ) -> None:
        self.program = program
        self.texts = texts
        self.extra = extra
        self.twins = twins
        self.twin_functions: dict[tuple[int, str], types.FunctionType] = {}
        self.callees = {id(f): callee for callee, fs in program.functions.items() for f in fs}
        self.functions: dict[int, types.FunctionType] = {}
        self.classes: dict[type, type[Any]] = {}
        self.views: dict[int, tuple[Any, Any]] = {}
        self._leads: dict[int, tuple[Any, bool]] = {}

    # --- what leads to a converted function -------------------------------------------------

    def leads(self, value: Any) -> bool:
        """Whether a converted function can be reached from the value by what inference followed."""
        if value is None or isinstance(value, torch.Tensor | str | int | float):
            return False
        if not isinstance(value, types.FunctionType | type):
            return self._search(value)  # containers and objects may change, and are not to be kept alive
        kept = self._leads.get(id(value))
        if kept is None:
            kept = value, self._search(value)
            self._leads[id(value)] = kept
        return kept[1]

    def _search(self, start: Any) -> bool:
        seen: dict[int, Any] = {}
        stack = [start]
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen[id(value)] = value
            callee = self.callees.get(id(value))
            if callee is not None and callee in self.texts:
                return True
            stack += self._next(value)
        return False

    def _next(self, value: Any) -> Iterator[Any]:
        if isinstance(value, types.FunctionType):
            callee = self.callees.get(id(value))
            if callee is not None:
                yield from (value_of(name, value) for name in self.program.names.get(callee, ()))
                yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            elif hasattr(value, "__wrapped__"):
                yield value.__wrapped__
        elif isinstance(value, types.MethodType):
            yield value.__func__
            yield value.__self__
        elif isinstance(value, functools.partial):
            yield from (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, type):
            yield from (b for b in value.__mro__[1:] if b in self.program.methods_read)  # by super()
            yield from self.program.methods_read.get(value, {}).values()
            for name in self.program.attributes_read.get(value, ()):
                yield from self.program.stored(value, name)
        elif isinstance(value, types.ModuleType):
            if value.__name__ in self.program.members_read:
                yield from (vars(value).get(n) for n in self.program.members_read[value.__name__])
        elif type(value) in (tuple, list):
            yield from value if len(value) <= 64 else ()
        elif type(value) is dict:
            yield from value.values() if len(value) <= 64 else ()
        elif isinstance(value, torch.nn.Module):
            yield from vars(value)["_modules"].values()
            yield type(value)
        elif type(value) in self.program.objects:
            yield type(value)

    # --- stand-ins --------------------------------------------------------------------------

    def stand_in(self, value: Any) -> Any:
        if not self.leads(value):
            return value
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.MethodType):
            made = self.function(value.__func__) if isinstance(value.__func__, types.FunctionType) else value.__func__
            return types.MethodType(made, self.stand_in(value.__self__))
        if isinstance(value, functools.partial):
            keywords = {k: self.stand_in(v) for k, v in value.keywords.items()}
            return functools.partial(self.stand_in(value.func), *map(self.stand_in, value.args), **keywords)
        if isinstance(value, type):
            return self.view_class(value)
        if isinstance(value, types.ModuleType):
            return _ModuleView(value, self)
        if type(value) in (tuple, list):
            return type(value)(self.stand_in(v) for v in value)
        if type(value) is dict:
            return {k: self.stand_in(v) for k, v in value.items()}
        return self.view(value)

    def function(self, original: types.FunctionType) -> types.FunctionType:
        if id(original) in self.functions:
            return self.functions[id(original)]
        if not self.leads(original):
            return original
        callee = self.callees.get(id(original))
        return self._wrapper(original) if callee is None else self._converted(original, callee)

    def _wrapper(self, original: types.FunctionType) -> types.FunctionType:
        """A decorator's wrapper (no_grad's, say), around what stands in for the function that it wraps."""
        inner = original.__wrapped__  # type: ignore[attr-defined]
        old = original.__closure__ or ()
        if not any(_holds(cell, inner) for cell in old):
            raise TypeError(f"{original.__qualname__}: its wrapper keeps the function out of sight; convert it first")
        cells = [types.CellType(self.stand_in(inner)) if _holds(cell, inner) else cell for cell in old]
        made = types.FunctionType(
            original.__code__, original.__globals__, original.__name__, original.__defaults__, tuple(cells)
        )
        self.functions[id(original)] = made
        _dress(made, original)
        made.__wrapped__ = self.stand_in(inner)  # type: ignore[attr-defined]
        made.source = getattr(made.__wrapped__, "source", "")  # type: ignore[attr-defined]
        return made

    def twin(self, original: types.FunctionType, callee: Callee, name: str) -> types.FunctionType:
        """A second version of a helper, which takes a mask."""
        key = id(original), name
        if key not in self.twin_functions:
            self._converted(original, callee, name)
        return self.twin_functions[key]

    def _twins_called(self, text: str) -> Iterator[tuple[str, types.FunctionType, Callee]]:
        """The second versions that a text calls by name, and the functions that they are versions of."""
        for callee, texts in self.twins.items():
            for name in texts:
                if callee.owner is None and re.search(rf"\b{name}\(", text):
                    yield name, self.program.functions[callee][0], callee

    def _converted(self, original: types.FunctionType, callee: Callee, twin: str | None = None) -> types.FunctionType:
        assert callee.span is not None
        names = self.program.names.get(callee, set())
        bound = {n: v for n in sorted(names) if (v := value_of(n, original)) is not ABSENT and self.leads(v)}
        extra = self.extra(callee) if callee in self.texts else {}
        new = self.texts.get(callee) if twin is None else self.twins[callee][twin]
        twins = {name: (f, c) for name, f, c in self._twins_called(new or "")}
        code, text = compile_text(original, callee.module, callee.span, new, (*bound, *extra, *twins))
        own = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
        fresh = {n: types.CellType() for n in (*bound, *extra, *twins)}
        cells = tuple(fresh.get(n) or own[n] for n in code.co_freevars)
        made = types.FunctionType(code, original.__globals__, original.__name__, original.__defaults__, cells)
        # Kept before the cells are filled: helpers may call one another.
        if twin is None:
            self.functions[id(original)] = made
        else:
            self.twin_functions[id(original), twin] = made
        for name, value in bound.items():
            fresh[name].cell_contents = self.stand_in(value)
        for name, value in extra.items():
            fresh[name].cell_contents = value
        for name, (function, helper) in twins.items():
            fresh[name].cell_contents = self.twin(function, helper, name)
        _dress(made, original)
        if twin is not None:
            made.__name__ = twin
        made.__defaults__ = original.__defaults__ and tuple(map(self.stand_in, original.__defaults__))
        made.__kwdefaults__ = original.__kwdefaults__ and {
            k: self.stand_in(v) for k, v in original.__kwdefaults__.items()
        }
        made.source = text  # type: ignore[attr-defined]
        made.original = original  # type: ignore[attr-defined]
        return made

    # --- views ------------------------------------------------------------------------------

    def view_class(self, cls: type[Any]) -> type[Any]:
        if cls in self.classes:
            return self.classes[cls]
        namespace: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        # super() in a method of the class goes on to the next in line: the converted bases come in right there.
        lineage = [self.view_class(b) for b in cls.__mro__[1:] if b in self.program.methods_read and self.leads(b)]
        made = types.new_class(cls.__name__, (cls, *lineage), {}, lambda ns: ns.update(namespace))
        made.__qualname__ = cls.__qualname__
        self.classes[cls] = made
        for name, function in self.program.methods_read.get(cls, {}).items():
            if self.leads(function):
                raw = next(vars(c)[name] for c in cls.__mro__ if name in vars(c))
                setattr(made, name, _like(raw, self.function(function)))
                callee = self.callees.get(id(function))
                if callee is not None:
                    for twin in self.twins.get(callee, {}):
                        setattr(made, twin, _like(raw, self.twin(function, callee, twin)))
        for name in self.program.attributes_read.get(cls, ()):
            values = self.program.stored(cls, name)
            if any(map(self.leads, values)) and not (issubclass(cls, tuple) or self._child(cls, name)):
                setattr(made, name, _attribute(name, self))
        if issubclass(cls, torch.nn.Module):
            _view_children(made, cls, self)
        return made

    def _child(self, cls: type, name: str) -> bool:
        """Whether a module's attribute is a registered child, which its view replaces on its own."""
        return any(name in getattr(o, "_modules", ()) for o in self.program.objects.get(cls, {}).values())

    def view(self, value: Any) -> Any:
        """An object of the converted class with the original's own ``__dict__``."""
        if id(value) in self.views:
            return self.views[id(value)][1]
        cls = self.view_class(type(value))
        if isinstance(value, tuple):
            made = tuple.__new__(cls, value)
        elif hasattr(value, "__dict__") and not any(vars(c).get("__slots__") for c in type(value).__mro__):
            made = object.__new__(cls)
            object.__setattr__(made, "__dict__", value.__dict__)
        else:
            raise TypeError(
                f"{type(value).__qualname__} has __slots__: its methods can only be converted in its source"
            )
        self.views[id(value)] = value, made
        return made


class _ModuleView(types.ModuleType):
    """A module in which some functions are converted; everything else is read from the module itself."""

    def __init__(self, module: types.ModuleType, rebuilder: Rebuilder) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(_if2where_module=module, _if2where_rebuilder=rebuilder)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        return own["_if2where_rebuilder"].stand_in(getattr(own["_if2where_module"], name))


def _attribute(name: str, rebuilder: Rebuilder) -> property:
    def get(self: Any) -> Any:
        try:
            return rebuilder.stand_in(self.__dict__[name])
        except KeyError:
            raise AttributeError(name) from None

    def put(self: Any, value: Any) -> None:
        self.__dict__[name] = value

    return property(get, put)


def _view_children(made: type, cls: type, rebuilder: Rebuilder) -> None:
    """A view of a module gives views of its children, however they are asked for."""

    def get(self: Any, name: str) -> Any:
        return rebuilder.stand_in(cls.__getattr__(self, name))  # type: ignore[attr-defined]

    def put(self: Any, value: Any) -> None:
        self.__dict__["_modules"] = value

    made.__getattr__ = get  # type: ignore[attr-defined]
    made._modules = property(lambda self: _Children(self.__dict__["_modules"], rebuilder), put)  # type: ignore[attr-defined]


class _Children(dict[str, Any]):
    """A module's children as views; what is stored goes to the module."""

    def __init__(self, children: dict[str, Any], rebuilder: Rebuilder) -> None:
        super().__init__({k: rebuilder.stand_in(m) for k, m in children.items()})
        self._kept = children

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._kept[key] = value

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        del self._kept[key]


def _like(raw: Any, function: types.FunctionType) -> Any:
    """The function under the descriptor that it stood under: static method, class method, property."""
    if isinstance(raw, property):
        return property(function, raw.fset, raw.fdel, raw.__doc__)
    if isinstance(raw, staticmethod | classmethod):
        return type(raw)(function)
    return function


def _holds(cell: types.CellType, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:
        return False


def _dress(made: types.FunctionType, original: types.FunctionType) -> None:
    """Everything that a caller may see of a function but its code.

    ``__wrapped__`` is left out: inspect.getsource follows it, and would show the source of what is wrapped.
    """
    made.__kwdefaults__ = None if original.__kwdefaults__ is None else dict(original.__kwdefaults__)
    if hasattr(original, "__annotate__"):  # Python 3.14: evaluated when asked for
        made.__annotate__ = original.__annotate__  # type: ignore[attr-defined]
    else:
        made.__annotations__ = dict(original.__annotations__)
    made.__dict__.update({k: v for k, v in original.__dict__.items() if k != "__wrapped__"})
    made.__doc__, made.__module__, made.__qualname__ = original.__doc__, original.__module__, original.__qualname__
    if hasattr(original, "__type_params__"):
        made.__type_params__ = original.__type_params__  # type: ignore[attr-defined]


# --- text to code ---------------------------------------------------------------------------


def compile_text(
    original: types.FunctionType,
    module: Module,
    span: Any,
    text: str | None,
    free: tuple[str, ...],
) -> tuple[types.CodeType, str]:
    """The code for a function's new text (its present one where None), and the text as it is shown.

    The text is registered under a name of its own: tracebacks, inspect.getsource and pdb find it there.
    """
    shown, node = shown_text(module, span, text)
    filename = f"<if2where {original.__module__}.{original.__qualname__} #{next(_numbers)}>"
    register(shown, filename)
    code = compiled(node, original, span.owner, free, filename)
    return _renamed(code, code, original), shown


def shown_text(module: Module, span: Any, text: str | None) -> tuple[str, Any]:
    """A function's text from its ``def`` (or ``lambda``) on, with its indentation, and its node in it."""
    whole = module.source.text
    start, end = span.span
    text = whole[start:end] if text is None else text
    if isinstance(span.node, ast.Lambda):
        found = ast.parse(f"(\n{text}\n)", mode="eval").body
        ast.increment_lineno(found, -1)
        return text + "\n", found
    line = max(whole.rfind("\n", 0, start), whole.rfind("\r", 0, start)) + 1
    indent = whole[line:start]
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if indent.strip():  # `if x: def f(): ...` does not parse; a one-line class body does
        indent, text = "", textwrap.dedent(text)
    prefix = "if 1:\n" if indent else ""
    tree = ast.parse(f"{prefix}{indent}{text}\n")
    node: Any = tree.body[0]
    if prefix:
        node = node.body[0]
        ast.increment_lineno(node, -1)
    skipped = node.lineno - 1
    ast.increment_lineno(node, -skipped)
    return "\n".join(f"{indent}{text}".split("\n")[skipped:]) + "\n", node


def _renamed(code: types.CodeType, root: types.CodeType, original: types.FunctionType) -> types.CodeType:
    """The code with the qualified names that it and its inner functions would have had in their place."""
    if sys.version_info < (3, 11):
        return code
    consts = tuple(_renamed(c, root, original) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    qualname = original.__qualname__ + code.co_qualname.removeprefix(root.co_qualname)
    return code.replace(co_consts=consts, co_qualname=qualname)
