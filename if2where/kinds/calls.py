"""What operators, attributes and library calls give, as kinds: the transfer functions of the inference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from if2where.kinds import dtypes, returns
from if2where.kinds.lattice import (
    BOTTOM,
    DEFAULT_FLOAT,
    MISSING,
    STATIC,
    Bottom,
    Function,
    Kind,
    Mapping,
    Number,
    Sequence,
    Shape,
    Static,
    Tensor,
    Unknown,
    broadcast,
    depends,
    element,
    is_floating,
    join_all,
    promote,
    promote_number,
    rank,
    taint,
    to_float,
)

Apply = Callable[[Kind, list[Kind], dict[str, Kind], None], Kind]

_TORCH_NAMESPACES = {
    "torch.nn.functional": "functional",
    "torch.special": "special",
    "torch.linalg": "linalg",
    "torch.fft": "fft",
}
_NUMBERS = ("bool", "int", "float")


def constant(value: Any) -> Static:
    if value is None:
        return Static("none", None)
    for t, what in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
        if isinstance(value, t):
            return Static(what, value)
    return STATIC


def iteration(kind: Kind) -> Kind:
    """What iterating over a value of this kind gives at each step."""
    if isinstance(kind, Bottom):
        return BOTTOM
    if isinstance(kind, Sequence):
        return element(kind)
    if isinstance(kind, Tensor):
        return replace(kind, shape=_drop(kind.shape, 0))
    if isinstance(kind, Mapping):
        return join_all(constant(k) for k in kind.keys)
    if isinstance(kind, Unknown):
        return kind
    return Unknown(True) if depends(kind) else Static("int") if kind == Static("range") else Unknown(False)


def count(kind: Kind) -> int | None:
    """How many steps iterating over it takes, where known."""
    if isinstance(kind, Sequence) and kind.items is not None:
        return len(kind.items)
    if isinstance(kind, Tensor) and kind.shape and isinstance(kind.shape[0], int):
        return kind.shape[0]
    return None


def subscript(base: Kind, items: list[Kind], is_tuple: bool) -> Kind:
    if isinstance(base, Bottom) or any(isinstance(i, Bottom) for i in items):
        return BOTTOM
    index = items[0] if len(items) == 1 and not is_tuple else None
    if isinstance(base, Tensor):
        return replace(
            base, batched=base.batched or any(map(depends, items)), shape=_indexed(base.shape, items), optional=False
        )
    if isinstance(base, Sequence) and index is not None:
        if isinstance(index, Static) and index.what == "slice":
            return Sequence(base.form, None, element(base))
        if (
            base.items is not None
            and isinstance(index, Static)
            and isinstance(index.value, int)
            and -len(base.items) <= index.value < len(base.items)
        ):
            return base.items[index.value]
        return taint(element(base)) if depends(index) else element(base)
    if isinstance(base, Mapping) and index is not None:
        if isinstance(index, Static) and index.value is not MISSING:
            found = base.get(index.value)
            if found is not None:
                return found
        return taint(join_all(base.values)) if depends(index) else join_all(base.values)
    if isinstance(base, Static) and base.what == "shape":
        return Static("int")
    return Unknown(depends(base) or any(map(depends, items)))


def _drop(shape: Shape | None, dim: int) -> Shape | None:
    if shape is None or dim >= len(shape) or shape[dim] is Ellipsis:
        return None
    return shape[:dim] + shape[dim + 1 :]


def _indexed(shape: Shape | None, items: list[Kind]) -> Shape | None:
    """The shape after indexing, where integers (and 0-dim integer tensors) drop a dimension and slices keep it."""
    if shape is None or rank(shape) is None:
        return None
    rest = list(shape)
    out: list[Any] = []
    for item in items:
        if isinstance(item, Static) and item.what == "none":
            out.append(1)
            continue
        if not rest:
            return None
        rest.pop(0)
        if isinstance(item, Static) and item.what == "int":
            continue
        if isinstance(item, Tensor) and item.shape == () and item.dtype != "bool":
            continue
        if isinstance(item, Number) and item.what == "int":
            continue
        if isinstance(item, Static) and item.what == "slice":
            out.append(None)
            continue
        return None
    return (*out, *rest)


def binary(op: str, a: Kind, b: Kind) -> Kind:
    if isinstance(a, Bottom) or isinstance(b, Bottom):
        return BOTTOM
    tensors = [k for k in (a, b) if isinstance(k, Tensor)]
    if tensors:
        return _tensor_binary(op, a, b)
    if isinstance(a, Static | Number) and isinstance(b, Static | Number):
        return _number_binary(op, a, b)
    if op == "+" and isinstance(a, Sequence) and isinstance(b, Sequence):
        if a.items is not None and b.items is not None:
            return Sequence(a.form, a.items + b.items)
        return Sequence(a.form, None, join_all([element(a), element(b)]))
    if op == "*":
        for s, n in ((a, b), (b, a)):
            if isinstance(s, Sequence) and isinstance(n, Static):
                if s.items is not None and isinstance(n.value, int) and 0 <= n.value * len(s.items) <= 64:
                    return Sequence(s.form, s.items * n.value)
                return Sequence(s.form, None, element(s))
    return Unknown(depends(a) or depends(b))


def _number_binary(op: str, a: Static | Number, b: Static | Number) -> Kind:
    data = isinstance(a, Number) or isinstance(b, Number)
    if not {a.what, b.what} <= set(_NUMBERS):
        if not data and "str" in (a.what, b.what):
            return Static("str")
        return Unknown(True) if data else STATIC
    what = max(a.what, b.what, key=_NUMBERS.index)
    if op == "/":
        what = "float"
    elif what == "bool" and op not in ("&", "|", "^"):
        what = "int"
    elif op == "**" and what == "int" and not (isinstance(b, Static) and isinstance(b.value, int) and b.value >= 0):
        what = "float"
    if data:
        return Number(what)
    return Static(what, _fold(op, a, b)) if what in _NUMBERS else STATIC


def _fold(op: str, a: Static | Number, b: Static | Number) -> Any:
    x, y = getattr(a, "value", MISSING), getattr(b, "value", MISSING)
    if not isinstance(x, int | float) or not isinstance(y, int | float) or max(abs(x), abs(y)) > 1e6:
        return MISSING
    if op in ("+", "-", "*"):
        return x + y if op == "+" else x - y if op == "-" else x * y
    if op == "/" and y:
        return x / y
    if op == "//" and y:
        return x // y
    return MISSING


def _tensor_binary(op: str, a: Kind, b: Kind) -> Kind:
    batched = depends(a) or depends(b)
    if any(
        not isinstance(k, Tensor | Number | Static) or (isinstance(k, Static) and k.what not in _NUMBERS)
        for k in (a, b)
    ):
        return Tensor(batched)
    dtype: str | None
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        dtype = promote(a.dtype, b.dtype)
        shape = _matmul(a.shape, b.shape) if op == "@" else broadcast(a.shape, b.shape)
    else:
        t, n = (a, b) if isinstance(a, Tensor) else (b, a)
        assert isinstance(t, Tensor)
        assert isinstance(n, Number | Static)
        dtype, shape = promote_number(t.dtype, n.what), t.shape
    if op == "/":
        dtype = to_float(dtype)
    return Tensor(batched, dtype, shape)


def _matmul(a: Shape | None, b: Shape | None) -> Shape | None:
    ra, rb = rank(a), rank(b)
    if a is None or b is None or ra is None or rb is None or not ra or not rb:
        return None
    if ra == 1 and rb == 1:
        return ()
    if ra == 2 and rb == 1:
        return (a[0],)
    if ra == 1 and rb == 2:
        return (b[1],)
    if ra == 2 and rb == 2:
        return (a[0], b[1])
    return None


def compared(kinds: list[Kind], batched: bool) -> Kind:
    """The kind of an elementwise comparison."""
    if not any(isinstance(k, Tensor | Unknown) for k in kinds):
        return Number("bool") if batched else Static("bool")
    shape: Shape | None = ()
    for k in kinds:
        shape = broadcast(shape, k.shape if isinstance(k, Tensor) else () if isinstance(k, Number | Static) else None)
    return Tensor(batched, "bool", shape)


# --- attributes -----------------------------------------------------------------------------


def attribute(base: Kind, attr: str, program: Any, module: Any) -> Kind:
    if isinstance(base, Bottom):
        return BOTTOM
    if isinstance(base, Static):
        if base.what == "program":
            return program.member(base.value, attr)  # type: ignore[no-any-return]
        if base.what in ("torch", "math", "numpy", "module", "builtin", "if2where"):
            return _library_member(base, attr)
        if base.what in ("", "shape", "str"):
            return Static("method", (base, attr))
        return Static("method", (base, attr))
    if isinstance(base, Tensor):
        found = returns.lookup("property", attr)
        if found is not None:
            return _property(base, found, attr)
        return Static("method", (base, attr))
    if isinstance(base, Number | Sequence | Mapping):
        return Static("method", (base, attr))
    if isinstance(base, Unknown):
        if returns.lookup("property", attr) is not None and returns.lookup("property", attr).what == "metadata":  # type: ignore[union-attr]
            return STATIC
        return Static("method", (base, attr))
    return Unknown(depends(base))


def _library_member(base: Static, attr: str) -> Kind:
    dotted = f"{base.value}.{attr}"
    if base.what == "torch":
        last = attr
        if last in _DTYPES:
            return Static("dtype", _DTYPES[last])
        if last in ("inf", "nan", "pi", "e"):
            return Static("float")
        return Static("torch", dotted)
    if base.what == "math" and attr in ("pi", "e", "inf", "nan", "tau"):
        return Static("float")
    return Static(base.what, dotted)


_DTYPES = {
    n: {
        "double": "float64",
        "float": "float32",
        "half": "float16",
        "long": "int64",
        "int": "int32",
        "short": "int16",
    }.get(n, n)
    for n in [
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "half",
        "float",
        "double",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "short",
        "int",
        "long",
        "bool",
        "complex64",
        "complex128",
    ]
}


def _property(base: Tensor, found: returns.Returns, attr: str) -> Kind:
    if attr == "shape":
        return Static("shape", base.shape) if base.shape is not None else Static("shape")
    if attr == "dtype":
        return Static("dtype", base.dtype) if base.dtype is not None else Static("dtype")
    if found.what == "metadata":
        return (
            Static("int")
            if attr in ("ndim", "itemsize", "nbytes")
            else Static("bool")
            if attr.startswith("is_")
            else STATIC
        )
    if found.what == "tensor":
        shape = (
            tuple(reversed(base.shape)) if attr in ("T", "mT") and rank(base.shape) is not None and base.shape else None
        )
        return replace(base, shape=shape if attr in ("T", "mT") else base.shape, optional=False)
    return Unknown(base.batched)


# --- calls ----------------------------------------------------------------------------------


def module_call(arguments: list[Kind]) -> Kind:
    return Tensor(True) if any(map(depends, arguments)) else Unknown(False)


def library_call(func: Kind, positional: list[Kind], keywords: dict[str, Kind], apply: Any) -> Kind:
    """The kind of a call of something that is not a function of the program."""
    arguments = [*positional, *keywords.values()]
    data = any(map(depends, arguments))
    if isinstance(func, Static):
        if func.what == "builtin":
            return _builtin(str(func.value), positional, keywords, apply)
        if func.what == "math":
            return _math(str(func.value).rsplit(".", 1)[-1], arguments)
        if func.what == "torch":
            return _torch(str(func.value), positional, keywords, apply)
        if func.what == "method" and isinstance(func.value, tuple):
            return _method(func.value[0], func.value[1], positional, keywords)
        if func.what == "if2where":
            # any_active gives a plain bool for the whole batch.
            return Static("bool") if str(func.value).endswith("any_active") else Unknown(data)
        if func.what == "numpy":
            return Unknown(False)
        if func.what == "dtype":
            return STATIC
        return Unknown(data)
    return Unknown(data or depends(func))


def _torch(dotted: str, positional: list[Kind], keywords: dict[str, Kind], apply: Any) -> Kind:
    prefix, _, name = dotted.rpartition(".")
    data = any(map(depends, [*positional, *keywords.values()]))
    if (
        name in ("vmap", "grad", "jacrev", "jacfwd", "hessian", "compile", "checkpoint")
        and positional
        and isinstance(positional[0], Function)
    ):
        if name in ("compile", "checkpoint") and len(positional) == 1:
            return positional[0]
        if name == "checkpoint":
            return apply(positional[0], positional[1:], {}, None)  # type: ignore[no-any-return]
        return Unknown(True)
    found = returns.lookup(_TORCH_NAMESPACES.get(prefix, "torch"), name)
    if found is None:
        return Tensor(True) if data else Unknown(False)
    return _returned(found, name, positional, keywords)


def _method(base: Kind, name: str, positional: list[Kind], keywords: dict[str, Kind]) -> Kind:
    arguments = [*positional, *keywords.values()]
    data = any(map(depends, arguments)) or depends(base)
    if isinstance(base, Tensor):
        found = returns.lookup("method", name)
        if found is None:
            return Unknown(data)
        return _returned(found, name, [base, *positional], keywords)
    if isinstance(base, Sequence):
        if name == "copy":
            return base
        if name == "pop":
            return element(base)
        if name in ("index", "count"):
            return Number("int") if data else Static("int")
        return Static("none", None)
    if isinstance(base, Mapping):
        if name == "items":
            pairs = tuple(Sequence("tuple", (constant(k), v)) for k, v in zip(base.keys, base.values, strict=True))
            return Sequence("list", pairs)
        if name == "values":
            return Sequence("list", base.values)
        if name == "keys":
            return Sequence("list", tuple(constant(k) for k in base.keys))
        if name == "copy":
            return base
        if name in ("get", "pop") and positional:
            key = positional[0]
            found_kind = base.get(key.value) if isinstance(key, Static) and key.value is not MISSING else None
            return found_kind or join_all([*base.values, *positional[1:]])
        return Static("none", None)
    if isinstance(base, Number):
        return (
            Number("float")
            if name in ("real", "conjugate")
            else Number("bool")
            if name == "is_integer"
            else Unknown(True)
        )
    if isinstance(base, Unknown):
        found = returns.lookup("method", name)
        if found is not None and found.what == "metadata":
            return STATIC
        return Unknown(data)
    if isinstance(base, Static) and base.what == "str":
        return STATIC
    return Unknown(data)


def _returned(found: returns.Returns, name: str, positional: list[Kind], keywords: dict[str, Kind]) -> Kind:
    arguments = [*positional, *keywords.values()]
    tensors = [t for k in arguments for t in _tensors_in(k)]
    batched = any(map(depends, arguments))
    if found.what == "metadata":
        if name in ("size", "stride") and not positional[1:] and not keywords:
            return Static("shape")
        return (
            Static("int")
            if name in ("dim", "numel", "size", "ndimension", "nelement", "stride", "len")
            else Static("bool")
            if name.startswith("is_")
            else STATIC
        )
    if found.what == "none":
        return Static("none", None)
    if found.what == "number":
        what = found.dtype if found.dtype in _NUMBERS else _number_of(tensors)
        return Number(what) if batched else Static(what)
    if found.what == "python":
        return Unknown(batched) if name not in ("numpy", "from_numpy") else Unknown(False)
    if found.what == "constructor":
        return _constructed(found, name, positional, keywords, batched)
    if found.what in ("tensor", "tensors"):
        if not batched and not tensors and name not in ("from_numpy",):
            return Tensor(False, _dtype(found, tensors, keywords, arguments), None)
        dtype = _dtype(found, tensors, keywords, arguments)
        shape = _shape(found, name, positional, keywords, tensors)
        one = Tensor(batched, dtype, shape)
        if found.what == "tensor":
            return one
        if found.count is None:
            return Sequence(
                "tuple",
                None,
                Tensor(batched, dtype, _drop(tensors[0].shape, 0) if name == "unbind" and tensors else None),
            )
        return Sequence(
            "tuple",
            (
                one,
                *[
                    Tensor(
                        batched,
                        "int64"
                        if name in ("sort", "topk", "min", "max", "kthvalue", "median", "mode", "cummax", "cummin")
                        else dtype,
                    )
                ]
                * (found.count - 1),
            ),
        )
    return Unknown(batched)


def _number_of(tensors: list[Tensor]) -> str:
    if tensors and tensors[0].dtype is not None:
        d = tensors[0].dtype
        if d == "bool":
            return "bool"
        if d.startswith(("int", "uint")):
            return "int"
    return "float"


def _tensors_in(kind: Kind) -> list[Tensor]:
    if isinstance(kind, Tensor):
        return [kind]
    if isinstance(kind, Sequence):
        return [t for k in (kind.items if kind.items is not None else (kind.element,)) for t in _tensors_in(k)]
    return []


def _dtype(
    found: returns.Returns, tensors: list[Tensor], keywords: dict[str, Kind], arguments: list[Kind]
) -> str | None:
    given = keywords.get("dtype")
    if isinstance(given, Static) and given.what == "dtype":
        return given.value if isinstance(given.value, str) else None
    if given is not None and not (isinstance(given, Static) and given.what == "none"):
        return None
    if found.dtype not in ("", "same", "float", "first", "argument", "sum"):
        return found.dtype
    if not tensors:
        return None
    first = tensors[0].dtype
    promoted = first
    for t in tensors[1:]:
        promoted = promote(promoted, t.dtype)
    for n in arguments:
        if isinstance(n, Static | Number) and n.what in _NUMBERS and found.shape == "same":
            promoted = promote_number(promoted, n.what)
    if found.dtype == "sum":
        ints = promoted is not None and not promoted.startswith("@") and dtypes.category(promoted) in ("bool", "int")
        return "int64" if ints else promoted if is_floating(promoted) else None
    if found.dtype == "float":
        return to_float(promoted)
    if found.dtype == "same":
        return promoted
    if found.dtype in ("first", "argument"):
        return first
    return next(
        (k.value for k in arguments if isinstance(k, Static) and k.what == "dtype" and isinstance(k.value, str)), None
    )


def _shape(
    found: returns.Returns, name: str, positional: list[Kind], keywords: dict[str, Kind], tensors: list[Tensor]
) -> Shape | None:
    if found.shape == "scalar":
        return ()
    first = tensors[0].shape if tensors else None
    if found.shape == "same":
        shape: Shape | None = ()
        for t in tensors:
            shape = broadcast(shape, t.shape)
        return shape
    if found.shape == "first":
        return first
    dims = [k for k in positional[1:] if not isinstance(k, Tensor)]
    if found.shape == "reduce":
        if "keepdim" in keywords or len(dims) > 1 or any(k == Static("bool", True) for k in dims):
            return None
        if not dims and "dim" not in keywords:
            return ()
        if rank(first) is None or first is None:
            return None
        dim = (dims or [keywords.get("dim", STATIC)])[0]
        if isinstance(dim, Static) and isinstance(dim.value, int):
            index = dim.value % max(len(first), 1)
            return _drop(first, index)
        return None
    if found.shape == "matmul" and len(tensors) == 2:
        return _matmul(tensors[0].shape, tensors[1].shape)
    if found.shape == "stack" and positional and isinstance(positional[0], Sequence):
        items = positional[0].items
        inner = tensors[0].shape if tensors else None
        if len(positional) > 1 or keywords:
            return None
        n = len(items) if items is not None else None
        return (n, *inner) if inner is not None else (n, ...)
    if found.shape == "reshape":
        sizes = positional[1:]
        if len(sizes) == 1 and isinstance(sizes[0], Sequence) and sizes[0].items is not None:
            sizes = list(sizes[0].items)
        if sizes and all(isinstance(s, Static) and s.what == "int" for s in sizes):
            return tuple(
                s.value if isinstance(s.value, int) and s.value >= 0 else None for s in sizes if isinstance(s, Static)
            )
        return None
    if found.shape == "unsqueeze" and rank(first) is not None and first is not None:
        return (None,) * (len(first) + 1)
    if found.shape == "transpose" and rank(first) is not None and first is not None:
        return (None,) * len(first)
    return None


def _constructed(
    found: returns.Returns, name: str, positional: list[Kind], keywords: dict[str, Kind], batched: bool
) -> Kind:
    dtype = _dtype(found, [], keywords, [])
    arguments = [*positional, *keywords.values()]
    if name.endswith("_like") or name.startswith("new_"):
        first = positional[0] if positional else BOTTOM
        like = first if isinstance(first, Tensor) else Tensor(depends(first))
        if dtype is None and "dtype" not in keywords:
            dtype = like.dtype
        shape = like.shape if name.endswith("_like") else _literal_shape(positional[1:], name)
        # Made from a batched tensor, it is batched under vmap, whatever it holds.
        return Tensor(like.batched or batched, dtype, shape)
    if name in ("tensor", "as_tensor", "asarray", "scalar_tensor"):
        return _tensor_of(positional[0] if positional else BOTTOM, dtype, "dtype" in keywords, name, batched)
    if name in ("arange", "range"):
        ints = all(isinstance(k, Static) and k.what == "int" for k in positional)
        given = "dtype" in keywords
        return (
            Tensor(False, dtype if given else "int64" if ints else DEFAULT_FLOAT, (None,))
            if not any(map(depends, positional))
            else Unknown(True)
        )
    if dtype is None and "dtype" not in keywords:
        if name == "full" and len(positional) > 1 and isinstance(positional[1], Static | Number):
            dtype = {"bool": "bool", "int": "int64", "float": DEFAULT_FLOAT}.get(positional[1].what)
        else:
            dtype = DEFAULT_FLOAT
    if name == "eye":
        n = (
            positional[0].value
            if positional and isinstance(positional[0], Static) and isinstance(positional[0].value, int)
            else None
        )
        return Tensor(False, dtype, (n, n) if len(positional) < 2 else (None, None))
    data = any(depends(k) for k in (arguments[1:] if name == "full" else []))
    return Tensor(data, dtype, _literal_shape(positional[:1] if name == "full" else positional, name))


def _literal_shape(sizes: list[Kind], name: str) -> Shape | None:
    if name == "new_full":
        sizes = sizes[:1]
    if len(sizes) == 1 and isinstance(sizes[0], Sequence):
        if sizes[0].items is None:
            return None
        sizes = list(sizes[0].items)
    if not all(isinstance(s, Static) and s.what == "int" for s in sizes):
        return None
    return tuple(s.value if isinstance(s, Static) and isinstance(s.value, int) else None for s in sizes)


def _tensor_of(data: Kind, dtype: str | None, given: bool, name: str, batched: bool) -> Kind:
    leaves: list[Kind] = []
    shape: Shape | None = ()

    def visit(kind: Kind, depth: int) -> None:
        nonlocal shape
        if isinstance(kind, Sequence):
            n = len(kind.items) if kind.items is not None else None
            if shape is not None and len(shape) == depth:
                shape = (*shape, n)
            for k in kind.items if kind.items is not None else (kind.element,):
                visit(k, depth + 1)
        else:
            leaves.append(kind)

    visit(data, 0)
    if not given:
        whats = [k.what for k in leaves if isinstance(k, Static | Number)]
        tensors = [k for k in leaves if isinstance(k, Tensor)]
        if tensors:
            dtype = tensors[0].dtype
            for t in tensors[1:]:
                dtype = promote(dtype, t.dtype)
            if isinstance(data, Tensor):
                shape = data.shape
        elif len(whats) == len(leaves) and whats and set(whats) <= set(_NUMBERS):
            dtype = {"bool": "bool", "int": "int64", "float": DEFAULT_FLOAT}[max(whats, key=_NUMBERS.index)]
    elif isinstance(data, Tensor):
        shape = data.shape
    if isinstance(data, Unknown):
        shape = None
    return Tensor(batched, dtype, shape)


def _math(name: str, arguments: list[Kind]) -> Kind:
    found = returns.lookup("math", name)
    what = found.dtype if found is not None and found.dtype in _NUMBERS else "float"
    return Number(what) if any(map(depends, arguments)) else Static(what)


def _builtin(name: str, positional: list[Kind], keywords: dict[str, Kind], apply: Any) -> Kind:
    data = any(map(depends, [*positional, *keywords.values()]))
    if name == "range":
        return Unknown(True) if data else _range(positional)
    if name == "len":
        n = count(positional[0]) if positional else None
        return Static("int", n) if n is not None else Static("int")
    if name in ("isinstance", "hasattr", "callable", "issubclass"):
        return Static("bool")
    if name in ("float", "int", "bool"):
        return Number(name) if data else Static(name)
    if name == "abs" and positional:
        return positional[0] if not isinstance(positional[0], Static) else Static(positional[0].what)
    if name in ("min", "max") and positional:
        parts = [iteration(positional[0])] if len(positional) == 1 else positional
        kind = join_all(parts)
        return taint(kind) if data else (kind if not isinstance(kind, Static) else Static(kind.what))
    if name == "sum" and positional:
        start = positional[1] if len(positional) > 1 else constant(0)
        one = iteration(positional[0])
        total = binary("+", start, one) if not isinstance(one, Bottom) else start
        return replace(total, value=MISSING) if isinstance(total, Static) else total
    if name in ("any", "all"):
        return Number("bool") if data else Static("bool")
    if name == "round":
        return (
            positional[0]
            if isinstance(positional[0], Tensor)
            else Number("int" if len(positional) == 1 else "float")
            if data
            else Static("int")
        )
    if name == "pow" and len(positional) >= 2:
        return binary("**", positional[0], positional[1])
    if name == "divmod" and len(positional) == 2:
        return Sequence("tuple", (binary("//", *positional), binary("%", *positional)))
    if name == "enumerate" and positional:
        return _enumerated(positional[0])
    if name == "zip":
        counts = [count(k) for k in positional]
        if positional and all(c is not None for c in counts):
            n = min(c for c in counts if c is not None)
            if n <= 64:
                rows = tuple(Sequence("tuple", tuple(_at(k, j) for k in positional)) for j in range(n))
                return Sequence("list", rows)
        return Sequence("list", None, Sequence("tuple", tuple(iteration(k) for k in positional)))
    if name in ("reversed", "list", "tuple", "sorted", "set", "iter"):
        if not positional:
            return Sequence("tuple" if name == "tuple" else "list", ())
        k = positional[0]
        form = "tuple" if name == "tuple" else "list"
        if isinstance(k, Sequence):
            items = k.items
            if items is not None and name == "reversed":
                items = items[::-1]
            if name == "sorted" and data:
                return Sequence("list", None if items is None else (taint(element(k)),) * len(items), element(k))
            return Sequence(form, items, k.element)
        n = count(k)
        if n is not None and n <= 64:
            return Sequence(form, (iteration(k),) * n)
        return Sequence(form, None, iteration(k))
    if name == "next" and positional:
        return iteration(positional[0])
    if name == "dict":
        return Mapping(tuple(keywords), tuple(keywords.values())) if not positional else Unknown(data)
    if name in ("str", "repr", "format", "type", "id", "print", "ascii", "chr"):
        return Static("none", None) if name == "print" else Static("str") if name != "type" else STATIC
    if name == "map" and len(positional) >= 2:
        return Sequence("list", None, apply(positional[0], [iteration(k) for k in positional[1:]], {}, None))
    if name == "getattr":
        return Unknown(data)
    if name in ("ValueError", "RuntimeError", "TypeError", "AssertionError"):
        return Static("exception")
    return Unknown(data)


def _range(positional: list[Kind]) -> Kind:
    if (
        len(positional) == 1
        and isinstance(positional[0], Static)
        and isinstance(positional[0].value, int)
        and 0 <= positional[0].value <= 64
    ):
        return Sequence("list", tuple(constant(k) for k in range(positional[0].value)))
    return Sequence("list", None, Static("int"))


def _at(kind: Kind, index: int) -> Kind:
    if isinstance(kind, Sequence) and kind.items is not None:
        return kind.items[index]
    return iteration(kind)


def _enumerated(kind: Kind) -> Kind:
    if isinstance(kind, Sequence) and kind.items is not None:
        return Sequence("list", tuple(Sequence("tuple", (constant(i), k)) for i, k in enumerate(kind.items)))
    return Sequence("list", None, Sequence("tuple", (Static("int"), iteration(kind))))


__all__ = [
    "attribute",
    "binary",
    "compared",
    "constant",
    "count",
    "is_floating",
    "iteration",
    "library_call",
    "module_call",
    "subscript",
]
