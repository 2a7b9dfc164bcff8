"""Function objects of every kind: converted, run under vmap, and held against the loop over samples."""

from __future__ import annotations

import copy
import functools
import inspect
import linecache
import subprocess
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.func import functional_call, grad, vmap  # noqa: E402

import if2where  # noqa: E402
from tests.execution import compare  # noqa: E402
from tests.runtime import elsewhere  # noqa: E402
from tests.runtime.elsewhere import soft  # noqa: E402

X = torch.linspace(-3.0, 5.0, 17, dtype=torch.float64)
Y = torch.linspace(4.0, -2.0, 17, dtype=torch.float64)


def equal(original: Any, converted: Any, *inputs: Any, in_dims: tuple[Any, ...] | None = None) -> None:
    """Values, dtypes and first derivatives under vmap are those of the original's loop; and vmap needed it."""
    dims = in_dims or (0,) * len(inputs)
    assert compare(original, converted, inputs, dims, second_order=True) == []
    assert converted is not original
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        vmap(original, dims)(*inputs)


# --- what a function may be ---------------------------------------------------------------------


def root_or_pass(x, y):
    if x > y:
        out = torch.sqrt(x - y)
    else:
        out = -y
    return out


def test_plain_function() -> None:
    equal(root_or_pass, if2where.convert(root_or_pass), X, Y)


def nothing_to_do(x, flag=True):
    if flag:
        return x + 1
    return x


def test_what_needs_nothing_is_left_as_it_is() -> None:
    assert if2where.convert(nothing_to_do) is nothing_to_do
    assert if2where.convert(torch.sin) is torch.sin
    converted = if2where.convert(root_or_pass)
    assert if2where.convert(converted) is converted
    linear = torch.nn.Linear(2, 2)
    assert if2where.convert(linear) is linear


def scaled(x, /, y, *rest, factor: float = 2.0, label: str = "none"):
    """Doc."""
    if x > y:
        return x * factor
    return y + sum(rest)


scaled.mark = "kept"


def test_everything_but_the_code_is_kept() -> None:
    converted = if2where.convert(scaled)
    equal(scaled, converted, X, Y)
    assert converted.__kwdefaults__ == {"factor": 2.0, "label": "none"}
    assert converted.__annotations__ == scaled.__annotations__ == {"factor": "float", "label": "str"}
    assert converted.__name__ == converted.__qualname__ == converted.__code__.co_name == "scaled"
    assert (converted.__doc__, converted.__module__, converted.mark) == ("Doc.", __name__, "kept")
    assert converted.__globals__ is scaled.__globals__
    assert inspect.signature(converted) == inspect.signature(scaled)
    assert converted.original is scaled
    assert vmap(functools.partial(converted, factor=3.0))(X, Y).equal(torch.where(X > Y, X * 3.0, Y))


def make(threshold):
    def inner(x, bonus=1.0):
        if x > threshold:
            return x * threshold
        return bonus - x

    def move(value):
        nonlocal threshold
        threshold = value

    return inner, move


def test_closure_is_shared_with_the_original() -> None:
    inner, move = make(1.0)
    converted = if2where.convert(inner)
    equal(inner, converted, X)
    move(3.0)
    equal(inner, converted, X)
    assert converted.__defaults__ == (1.0,)
    assert converted.__qualname__ == "make.<locals>.inner"
    other = if2where.convert(make(-1.0)[0])
    equal(make(-1.0)[0], other, X)


SLOPE = 2.0


def sloped(x):
    if x > 0:
        return x * SLOPE
    return x


def test_globals_are_seen_as_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = if2where.convert(sloped)
    monkeypatch.setitem(globals(), "SLOPE", 5.0)
    equal(sloped, converted, X)


def test_lambdas_on_one_line() -> None:
    first, second = (lambda x: x if x > 0 else -x), (lambda x: x if x > 1 else x * 2)
    equal(first, if2where.convert(first), X)
    equal(second, if2where.convert(second), X)
    assert if2where.convert(second).source == "lambda x: torch.where(x > 1, x, x * 2)\n"


def test_lambda_over_several_lines() -> None:
    table = {
        "chosen": lambda x, y: (
            torch.sqrt(x)
            if x > y  # which one
            else torch.sin(y)
        )
    }
    chosen = table["chosen"]
    equal(chosen, if2where.convert(chosen), X + 4, Y)
    assert inspect.getsource(if2where.convert(chosen)) == if2where.convert(chosen).source


class Scale:
    """Methods of every sort; ``factor`` changes later."""

    limit = 1.0

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.__hidden = 0.5
        self.act = elsewhere.Leaky()

    def plain(self, x):
        if x > self.limit:
            return x * self.factor
        return x - self.__hidden

    def through_another(self, x):
        return self.plain(x) + self.bent(x) + self.act(x) + self.steep

    def bent(self, x):
        return self.static(x) if x > 0 else x * self.factor

    @property
    def steep(self):
        return self.factor * 2

    @staticmethod
    def static(x):
        if x > 2:
            return torch.log(x)
        return x

    @classmethod
    def of_class(cls, x):
        if x > cls.limit:
            return cls.static(x)
        return -x

    def __call__(self, x):
        if x > self.factor:
            return x
        return self.plain(x)


class Steeper(Scale):
    def plain(self, x):
        y = super().plain(x)
        if y > 0:
            return y * 2
        return y


@pytest.mark.parametrize("cls", [Scale, Steeper])
@pytest.mark.parametrize("name", ["plain", "through_another", "bent", "static", "of_class"])
def test_methods(cls: type[Scale], name: str) -> None:
    scale = cls(3.0)
    converted = if2where.convert(getattr(scale, name))
    equal(getattr(scale, name), converted, X)
    scale.factor = -2.0
    equal(getattr(scale, name), converted, X)


def test_callable_object() -> None:
    scale = Scale(1.5)
    converted = if2where.convert(scale)
    assert isinstance(converted, Scale)
    equal(scale, converted, X)
    scale.factor = 4.0
    equal(scale, converted, X)
    assert type(scale).__call__ is Scale.__call__


def test_partial() -> None:
    bound = functools.partial(scaled, torch.tensor(0.5, dtype=torch.float64), factor=4.0)
    equal(bound, if2where.convert(bound), X)


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return wrapper


@wrapping
def wrapped(x):
    if x > 0:
        return torch.sqrt(x)
    return x


@torch.no_grad()
def without_grad(x):
    if x > 0:
        return x * 2
    return x


def test_decorated() -> None:
    equal(wrapped, if2where.convert(wrapped), X)
    converted = if2where.convert(without_grad)
    x = X.clone().requires_grad_()
    assert not vmap(converted)(x).requires_grad
    assert torch.equal(vmap(converted)(x), torch.stack([without_grad(v) for v in x]))


def test_transformed() -> None:
    gradient = grad(root_or_pass)
    converted = if2where.convert(gradient)
    x, y = X + 0.1, Y
    assert torch.equal(vmap(converted)(x, y), torch.stack([gradient(a, b) for a, b in zip(x, y, strict=True)]))


def gradient_inside(x):
    return grad(wrapped)(x * x)


def test_what_is_given_to_a_transform_is_converted() -> None:
    converted = if2where.convert(gradient_inside)
    assert torch.allclose(vmap(converted)(X + 0.1), torch.stack([gradient_inside(v) for v in X + 0.1]))


# --- helpers ------------------------------------------------------------------------------------

TABLE = {"soft": soft, "plain": elsewhere.no_branch}
LEAKY = elsewhere.Leaky()
HALF = functools.partial(scaled, factor=0.5)


def by_name(x):
    if x > 1:
        return soft(x)
    return -x


def by_module(x):
    return elsewhere.soft(elsewhere.no_branch(x))


def by_table(x):
    return TABLE["soft"](x) if x > 0 else TABLE["plain"](x)


def by_object(x):
    return LEAKY(x) * 2


def by_partial(x):
    return HALF(x, x * x)


@pytest.mark.parametrize("function", [by_name, by_module, by_table, by_object, by_partial])
def test_helpers_of_another_module(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(vars(elsewhere))
    converted = if2where.convert(function)
    equal(function, converted, X)
    monkeypatch.setattr(elsewhere, "LIMIT", 0.5)
    equal(function, converted, X)
    monkeypatch.undo()
    assert dict(vars(elsewhere)) == before
    assert "where(" in converted.diff()
    assert converted.source == inspect.getsource(converted)
    assert converted.source.startswith(f"def {function.__name__}(x):")


def even(x, n):
    if n == 0:
        return x
    return odd(torch.sin(x), n - 1)


def odd(x, n):
    y = x * 2 if x > 0 else x
    return even(y, n - 1)


def test_helpers_that_call_each_other() -> None:
    def call(x):
        return even(x, 4)

    equal(call, if2where.convert(call), X)


def newton(p):
    x = p
    while abs(x * x - p) > 1e-12 * p:
        x = 0.5 * (x + p / x)
    return x


def test_loop_that_the_data_end() -> None:
    p = X.abs() + 0.5
    assert torch.allclose(vmap(if2where.convert(newton))(p), p.sqrt())
    bounded = if2where.convert(newton, max_iterations=30)
    assert "any_active" not in bounded.source
    assert torch.allclose(vmap(bounded)(p), p.sqrt())


# --- modules ------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x):
        h = self.linear(x)
        if h.sum() > 0:
            return torch.sqrt(h.abs() + 1)
        return h


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.rest = torch.nn.Sequential(Block(), torch.nn.Tanh(), Block())
        self.act = elsewhere.Leaky()
        self.weight = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, x):
        y = self.rest(self.first(x)).sum()
        if self.training and y > self.weight:
            y = y * self.weight
        return self.act(y)


ROWS = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3


def test_module_with_submodules() -> None:
    torch.manual_seed(0)
    net = Net()
    converted = if2where.convert(net)
    assert isinstance(converted, Net)
    assert type(net) is Net
    assert "where" not in inspect.getsource(type(net.first).forward)
    names, parameters = zip(*net.named_parameters(), strict=True)
    assert [(n, id(p)) for n, p in converted.named_parameters()] == [
        (n, id(p)) for n, p in zip(names, parameters, strict=True)
    ]
    loop = torch.stack([net(row) for row in ROWS])
    mapped = vmap(converted)(ROWS)
    assert torch.allclose(loop, mapped)
    want = torch.autograd.grad(loop.square().sum(), parameters)
    got = torch.autograd.grad(mapped.square().sum(), parameters)
    for name, a, b in zip(names, want, got, strict=True):
        assert torch.allclose(a, b), name
    net.eval()
    assert torch.allclose(vmap(converted)(ROWS), torch.stack([net(row) for row in ROWS]))
    assert "torch.where" in converted.source


def test_container_of_modules() -> None:
    layers = torch.nn.Sequential(Block(), Block())
    equal(lambda x: layers(x), if2where.convert(layers), ROWS)


def test_functional_call() -> None:
    torch.manual_seed(0)
    net = Net()
    parameters = dict(net.named_parameters())

    def loss(parameters, x):
        return functional_call(net, parameters, (x,))

    per_sample = if2where.vmap(grad(loss), in_dims=(None, 0))(parameters, ROWS)
    for k, row in enumerate(ROWS):
        one = grad(loss)(parameters, row)
        for name, value in one.items():
            assert torch.allclose(per_sample[name][k], value), name


def test_slots_are_refused() -> None:
    class Slotted:
        __slots__ = ("k",)

        def helper(self, x):
            if x > 0:
                return x
            return -x

        def method(self, x):
            return self.helper(x)

    with pytest.raises(TypeError, match="__slots__"):
        if2where.convert(Slotted().method)


# --- what holds functions -----------------------------------------------------------------------


class Config(NamedTuple):
    threshold: float = 0.5


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Point:
    a: Any

    def folded(self):
        if self.a > 1:
            return self.a
        return self.a * self.a


class Holder(torch.nn.Module):
    """Submodules that are registered, and such as only a list or dict holds."""

    def __init__(self) -> None:
        super().__init__()
        self.registered = torch.nn.ModuleList([Block(), Block()])
        self.loose = [elsewhere.Leaky(), elsewhere.Leaky()]
        self.named = {"leaky": elsewhere.Leaky()}
        self.config = Config()
        self.register_buffer("shift", torch.tensor(0.25, dtype=torch.float64))

    def forward(self, x):
        for block in self.registered:
            x = block(x)
        y = x.sum() - self.shift
        for act in self.loose:
            y = act(y)
        if y > self.config.threshold:
            y = y * 2
        return self.named["leaky"](y)


def pairs(x):
    if x > 0:
        pair = Pair(x, x * 2)
    else:
        pair = Pair(-x, x)
    return pair.a + pair.b * 3


def method_of_a_new_object(x):
    return Point(x * 2).folded()


INNER = make(1.0)[0]


def by_default(x, stages=(soft, INNER)):
    for stage in stages:
        x = stage(x)
    return x


def by_callback(x):
    return applied(soft, x) + applied(lambda z: z if z > 0 else z * 3, x)


def applied(function, x):
    return function(x) + 1


@pytest.mark.parametrize("function", [pairs, method_of_a_new_object, by_default, by_callback])
def test_held_functions(function: Any) -> None:
    equal(function, if2where.convert(function), X)


def test_modules_in_containers() -> None:
    torch.manual_seed(3)
    holder = Holder()
    equal(lambda x: holder(x), if2where.convert(holder), ROWS)


def test_module_copies() -> None:
    converted = if2where.convert(Block())
    copied = copy.deepcopy(converted)
    assert torch.equal(vmap(copied)(ROWS), vmap(converted)(ROWS))
    assert copied.linear.weight is not converted.linear.weight


def test_compiled() -> None:
    converted = if2where.convert(by_name)
    compiled = torch.compile(vmap(converted), backend="eager", fullgraph=True)
    assert torch.allclose(compiled(X), vmap(converted)(X))
    with pytest.raises(TypeError, match="convert the function first"):
        if2where.convert(torch.compile(by_name, backend="eager"))


def uses_skipped(x):
    if x > 0:
        return skipped(x)
    return x


def skipped(x):  # if2where: skip
    return x.exp() if x.dim() == 0 else x


def test_skipped_helper_is_called_as_it_is() -> None:
    converted = if2where.convert(uses_skipped)
    equal(uses_skipped, converted, X)
    assert converted.diff().count("@@") == 2


PACKAGE = """
CALLS = []


def counted(x):
    CALLS.append(1)
    return x * 2


def noisy(x):
    import random

    return x * random.random()


def bent(x):
    if x > 0:
        return x
    return -x
"""


def test_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_for_the_test.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(folder))
    import installed_for_the_test as package

    def converts(x):
        return package.bent(x) * 2

    def keeps_count(x):
        if x > 0:
            return package.counted(x)
        return x

    def draws(x):
        if x > 0:
            return package.noisy(x)
        return x

    equal(converts, if2where.convert(converts), X)
    equal(keeps_count, if2where.convert(keeps_count), X)
    with pytest.raises(if2where.ConversionRefused, match="IW104"):
        if2where.convert(draws)


# --- where the source is ------------------------------------------------------------------------

TEXT = "def f(x):\n    if x > 0:\n        return x\n    return -x\n"


def test_executed_text_that_is_registered() -> None:
    name = "<registered for the test>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(TEXT, name, "exec"), space)
    equal(space["f"], if2where.convert(space["f"]), X)  # torch is nowhere in its globals
    assert "torch" not in space


def test_no_source() -> None:
    space: dict[str, Any] = {}
    exec(compile(TEXT, "<not registered>", "exec"), space)
    with pytest.raises(if2where.SourceUnavailable, match=r"no source for '<not registered>'.*linecache"):
        if2where.convert(space["f"])


def test_source_that_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "stale.py"
    file.write_text(TEXT)
    module = types.ModuleType("stale")
    exec(compile(TEXT, str(file), "exec"), module.__dict__)
    file.write_text(TEXT.replace("x > 0", "x > 1"))
    with pytest.raises(if2where.SourceUnavailable, match="import it again"):
        if2where.convert(module.f)


def failing(x):
    if x > 0:
        y = x.no_such_method()
    else:
        y = x
    return y


def test_source_shows() -> None:
    converted = if2where.convert(root_or_pass)
    linecache.checkcache()
    source = inspect.getsource(converted)
    assert source == converted.source
    assert source.startswith("def root_or_pass(x, y):\n")
    assert "torch.where" in source
    assert converted.__code__.co_filename.startswith(f"<if2where {__name__}.root_or_pass #")
    with pytest.raises(AttributeError) as error:
        if2where.vmap(failing)(X)
    text = "".join(traceback.format_exception(error.value))
    assert "    y = torch.where(x > 0, x.no_such_method(), x)\n" in text
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert frame.lineno == 2
    assert inspect.getsource(if2where.convert(Scale(1.0).bent)).startswith("    def bent(self, x):\n")


def test_debugger_shows_the_source(tmp_path: Path) -> None:
    script = tmp_path / "debugged.py"
    script.write_text(f"import if2where, torch\n{TEXT}g = if2where.convert(f)\nbreakpoint()\ng(torch.ones(()))\n")
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        input="step\nstep\nlist\nquit\n",
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "<if2where __main__.f #1>" in done.stdout
    assert "    return torch.where(x > 0, x, -x)" in done.stdout


def test_diff() -> None:
    assert if2where.convert(sloped).diff().splitlines()[2:] == [
        "@@ -1,4 +1,2 @@",
        " def sloped(x):",
        "-    if x > 0:",
        "-        return x * SLOPE",
        "-    return x",
        "+    return torch.where(x > 0, x * SLOPE, x)",
    ]


# --- refusals -----------------------------------------------------------------------------------


def printing(x):
    if x > 0:
        print(x)
    return x


def calls_printing(x):
    if x > 1:
        return printing(x)
    return x


def test_refused() -> None:
    with pytest.raises(if2where.ConversionRefused) as error:
        if2where.convert(calls_printing)
    line = printing.__code__.co_firstlineno + 2
    assert f"{__file__}:{line}:9: IW101 " in str(error.value)
    assert {d.function for d in error.value.diagnostics} == {"printing", "calls_printing"}
    mapped = if2where.vmap(printing)
    with pytest.raises(if2where.ConversionRefused, match="IW101"):
        mapped(X)


def checked(x):
    if x < -100:
        raise ValueError
    return x


def test_options() -> None:
    with pytest.raises(if2where.ConversionRefused):
        if2where.convert(checked)
    converted = if2where.convert(checked, checks="drop")
    assert converted.refusals == ()
    assert [n.function for n in converted.notes] == ["checked"]
    assert torch.equal(vmap(converted)(X), X)


@pytest.mark.parametrize("what", [3, int, torch.nn.Linear, None])
def test_not_a_function(what: Any) -> None:
    if what is None:
        assert callable(if2where.convert(what))
        return
    with pytest.raises(TypeError, match="cannot convert"):
        if2where.convert(what)


# --- in_dims and examples -----------------------------------------------------------------------


def compared(x, limit):
    if limit > 0:
        return x
    return -x


def test_in_dims_say_what_is_batched() -> None:
    assert if2where.convert(compared, in_dims=(0, None)) is compared
    equal(compared, if2where.convert(compared, in_dims=(None, 0)), X[0], Y, in_dims=(None, 0))


def by_field(parameters, x):
    if x > parameters["limit"]:
        return x * parameters["scale"][0]
    return x


def test_containers() -> None:
    parameters = {"limit": Y, "scale": (torch.tensor(3.0, dtype=torch.float64), None)}
    dims = ({"limit": 0, "scale": (None, None)}, 0)
    loop = [by_field({**parameters, "limit": y}, x) for x, y in zip(X, Y, strict=True)]
    for converted in (
        if2where.convert(by_field, in_dims=dims),
        if2where.convert(by_field, in_dims=dims, example_inputs=(parameters, X)),
    ):
        assert torch.equal(vmap(converted, dims)(parameters, X), torch.stack(loop))


def optional(x, bias=None, mode="plain"):
    if bias is not None and bias > 0:
        x = x + bias
    if mode == "plain":
        return x
    if x > 0:
        return x
    return -x


def test_kinds_come_from_the_arguments() -> None:
    mapped = if2where.vmap(optional)
    assert torch.equal(mapped(X), X)
    assert torch.equal(mapped(X, Y), torch.where(Y > 0, X + Y, X))
    assert torch.equal(mapped(X, mode="folded"), X.abs())
    assert if2where.convert(optional, example_inputs=(X,)) is not optional


# --- vmap ---------------------------------------------------------------------------------------


def test_vmap_takes_what_torchs_takes() -> None:
    assert list(inspect.signature(if2where.vmap).parameters)[1:] == list(inspect.signature(vmap).parameters)[1:]
    pairs = torch.stack([X, Y])
    want = torch.stack([root_or_pass(a, b) for a, b in zip(X, Y, strict=True)])
    assert torch.equal(if2where.vmap(root_or_pass)(X, Y), want)
    assert torch.equal(if2where.vmap(root_or_pass, chunk_size=4)(X, Y), want)
    rows = if2where.vmap(lambda p: root_or_pass(p[0], p[1]) * p, in_dims=1, out_dims=1)(pairs)
    assert torch.equal(rows, want * pairs)
    drawn = if2where.vmap(lambda x: torch.rand(()) if x > 0 else x, randomness="different")(X)
    assert drawn.unique().numel() == X.numel()


def test_vmap_nests() -> None:
    grid = X[:16].reshape(4, 4)
    assert torch.equal(if2where.vmap(if2where.vmap(sloped))(grid), torch.where(grid > 0, grid * SLOPE, grid))
    inner = if2where.vmap(compared, in_dims=(0, None))
    outer = if2where.vmap(lambda row, y: inner(row, y) if y.shape == () else row)
    assert torch.equal(outer(grid, Y[:4]), torch.where(Y[:4, None] > 0, grid, -grid))
    slope = vmap(grad(if2where.convert(sloped)))(X)
    assert torch.equal(slope, torch.where(X > 0, SLOPE, 1.0).double())


def test_decorators() -> None:
    @if2where.convert
    def bare(x):
        if x > 0:
            return x
        return -x

    @if2where.convert(in_dims=(0, None))
    def with_dims(x, limit):
        if x > limit:
            return x
        return -x

    @if2where.vmap
    def mapped(x):
        if x > 0:
            return x
        return -x

    @if2where.vmap(in_dims=(0, None))
    def mapped_with_dims(x, limit):
        if x > limit:
            return x
        return -x

    assert torch.equal(vmap(bare)(X), X.abs())
    assert torch.equal(vmap(with_dims, (0, None))(X, 0.0), X.abs())
    assert torch.equal(mapped(X), X.abs())
    assert torch.equal(mapped_with_dims(X, 0.0), X.abs())
    assert mapped.__name__ == "mapped"


class Decorated:
    @if2where.convert
    def method(self, x):
        if x > self.limit:
            return x
        return -x

    @if2where.convert
    @staticmethod
    def static(x):
        if x > 0:
            return x
        return -x

    limit = 0.0


def test_decorated_in_its_class() -> None:
    assert torch.equal(vmap(Decorated().method)(X), X.abs())
    assert torch.equal(vmap(Decorated.static)(X), X.abs())


# --- kept conversions ---------------------------------------------------------------------------


def test_converted_once() -> None:
    assert if2where.convert(root_or_pass) is if2where.convert(root_or_pass)
    assert if2where.convert(root_or_pass, in_dims=(0, None)) is not if2where.convert(root_or_pass)
    scale = Scale(1.0)
    assert if2where.convert(scale.plain) is if2where.convert(scale.plain)
    assert if2where.convert(make(1.0)[0]) is not if2where.convert(make(2.0)[0])


def helper_of_cell(x):
    if x > 0:
        return x
    return -x


def uses_cell(x):
    return helper_of_cell(x) * 2


def other_helper(x):
    if x > 1:
        return x * 10
    return x


def test_a_helper_that_is_defined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = if2where.vmap(uses_cell)
    first = if2where.convert(uses_cell)
    assert torch.equal(mapped(X), X.abs() * 2)
    monkeypatch.setitem(globals(), "helper_of_cell", other_helper)
    assert torch.equal(mapped(X), torch.where(X > 1, X * 20, X * 2))
    assert if2where.convert(uses_cell) is not first
    equal(uses_cell, if2where.convert(uses_cell), X)


def test_import_needs_no_torch() -> None:
    code = "import sys, if2where; assert 'torch' not in sys.modules; if2where.pipeline; if2where.convert"
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    code = code.replace("if2where.pipeline;", "import if2where.pipeline;")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; assert callable(if2where.convert)"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
