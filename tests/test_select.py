"""Which functions are in scope, and which of their parameters are batched."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pytest

from if2where.module import Source, SourceError, decode, parse_module
from if2where.select import Selection, Target, evident, might_matter, select

F = "def f(a, b, c=1):\n    return a\n"
HEAD = "import functools, torch, functorch, if2where\nfrom functools import partial\nfrom torch import func\n"
SITE = Path(sysconfig.get_paths()["purelib"])


def chosen(text: str, **options: Any) -> Selection:
    return select(parse_module(Source("a.py", text)), **options)


def batched(text: str) -> dict[str, list[str]]:
    return {t.function.qualname: [n for n, s in t.batched.items() if s == "batched"] for t in chosen(text).targets}


def only(text: str, **options: Any) -> Target:
    (target,) = chosen(text, **options).targets
    return target


def names(selection: Selection) -> list[str]:
    return [t.function.qualname for t in selection.targets]


# --- spellings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "import torch\ntorch.vmap(f)",
        "import torch as th\nth.func.vmap(f)",
        "import torch.func as F\nF.vmap(f)",
        "import torch.func\ntorch.func.vmap(f)",
        "from torch import func\nfunc.vmap(f)",
        "from torch.func import vmap as v\nv(f)",
        "from torch.func import *\nvmap(f)",
        "from functorch import vmap\nvmap(f)",
        "import if2where\nif2where.vmap(f)",
        "from if2where import convert\nconvert(f)",
        "try:\n    from torch.func import vmap\nexcept ImportError:\n    from functorch import vmap\nvmap(f)",
        "import torch\nvmap = torch.func.vmap\nvmap(f)",
        "import torch\nvmap: object = torch.func.vmap\nvmap(f)",
        "import torch\nvmap = torch.vmap if hasattr(torch, 'vmap') else None\nvmap(f)",
        "import torch\nv = torch\nw = v.func\nw.vmap(f)",
        "def main():\n    from torch.func import vmap\n    return vmap(f)",
        "def main():\n    import torch as t\n    v = t.vmap\n    return v(f)",
        "import torch\ng = torch.vmap(func=f)",
        "import functools, torch\nv = functools.partial(torch.vmap)\nv(f)",
        "import functools as ft, torch\nft.partial(torch.vmap, out_dims=0)(f)",
        "import torch\ng = f\ntorch.vmap(g)",
        "import torch\nf = torch.vmap(f)",
        "import torch\nfor g in (f, abs):\n    torch.vmap(g)",
        "import torch\ntorch.vmap(f if f else abs)",
        "import torch\ng, h = f, 1\ntorch.vmap(g)",
        "import torch\ndef run(fn=f):\n    return torch.vmap(fn)",
        "import torch\ndef give():\n    return f\ntorch.vmap(give())",
    ],
)
def test_spellings(call: str) -> None:
    assert batched(F + call + "\n") == {"f": ["a", "b"]}


@pytest.mark.parametrize(
    "wrapped",
    [
        "torch.func.grad(f)",
        "torch.func.grad_and_value(f, argnums=(0, 1))",
        "torch.func.jacrev(f)",
        "torch.func.jacfwd(torch.func.jacrev(f))",
        "torch.func.hessian(f)",
        "torch.func.vjp(f)",
        "torch.func.jvp(f)",
        "torch.func.linearize(f)",
        "torch.utils.checkpoint.checkpoint(f)",
        "partial(torch.utils.checkpoint.checkpoint, f, use_reentrant=False)",
        "torch.compile(f)",
        "torch.compile(f, mode='reduce-overhead')",
        "torch.compile(mode='reduce-overhead')(f)",
        "torch.no_grad()(f)",
        "torch.jit.script(f)",
        "torch.vmap(torch.vmap(f))",
        "func.grad(torch.compile(partial(f)))",
    ],
)
def test_wrappers(wrapped: str) -> None:
    assert batched(f"{HEAD}{F}torch.vmap({wrapped})\n") == {"f": ["a", "b"]}


@pytest.mark.parametrize(
    "text",
    [
        # a parameter, a local name and another library's vmap are not torch's
        f"import torch\n{F}def run(f):\n    return torch.vmap(f)\n",
        f"from jax import vmap\n{F}vmap(f)\n",
        f"def vmap(f):\n    return f\n{F}vmap(f)\n",
        f"import torch\n{F}def main():\n    torch = object()\n    return torch.vmap(f)\n",
        f"def one():\n    from torch import vmap\n\n\ndef two():\n    from jax import vmap\n    return vmap(f)\n\n\n{F}",
        # a value that a wrapper computed, not a function
        f"import torch\n{F}torch.vmap(len(f))\n",
        f"s = 'torch.vmap(f)'\n{F}",
    ],
)
def test_what_is_not_vmapped(text: str) -> None:
    assert chosen(text, scope="vmapped").targets == ()


def test_decorators() -> None:
    text = HEAD + (
        "from torch import vmap\nrows = partial(torch.vmap, in_dims=(None, 0))\n"
        "@vmap\ndef f(x): ...\n"
        "@torch.vmap\n@torch.no_grad()\ndef f2(x): ...\n"
        "@partial(vmap, in_dims=(0, None))\ndef g(x, y): ...\n"
        "@functools.partial(torch.func.vmap, in_dims=(None, -1))\ndef h(x, y): ...\n"
        "@rows\ndef k(x, y): ...\n"
        "@if2where.convert\ndef m(x, y): ...\n"
        "@if2where.vmap(in_dims=(0, None))\ndef n(x, y): ...\n"
    )
    assert batched(text) == {
        "f": ["x"],
        "f2": ["x"],
        "g": ["x"],
        "h": ["y"],
        "k": ["y"],
        "m": ["x", "y"],
        "n": ["x"],
    }


def test_a_decorated_method_counts_its_object_in_in_dims() -> None:
    text = HEAD + (
        "class A:\n    @partial(torch.vmap, in_dims=(None, 0, None))\n    def f(self, x, y): ...\n"
        "    @staticmethod\n    @partial(torch.vmap, in_dims=(0, None))\n    def g(x, y): ...\n"
        "    @torch.vmap\n    def h(self, x): ...\n"
    )
    assert batched(text) == {"A.f": ["x"], "A.g": ["x"], "A.h": ["x"]}


# --- in_dims --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.vmap(f)", ["a", "b"]),
        ("torch.vmap(f, in_dims=(0, None))", ["a"]),
        ("torch.vmap(f, [0, None])", ["a"]),
        ("torch.vmap(f, (None, 0, 0))", ["b", "c"]),
        ("torch.vmap(f, in_dims=(-1, None))", ["a"]),
        ("torch.vmap(f, in_dims=-1)(x, y)", ["a", "b"]),
        ("torch.vmap(f)(x, 3)", ["a"]),
        ("torch.vmap(f)(x, -3.0)", ["a"]),
        ("torch.vmap(f)(x, y, z)", ["a", "b", "c"]),
        ("torch.vmap(f)(x, y, c=z)", ["a", "b"]),  # keywords are passed on as they are
        ("torch.vmap(f)(*xs)", ["a", "b"]),
        ("g = torch.vmap(f)\ng(x, y, z)", ["a", "b", "c"]),
        ("g = torch.vmap(f)\ng(x, 1)\ng(x, y)", ["a", "b"]),
        ("def main():\n    g = torch.vmap(f)\n    return g(x, 'mean')", ["a"]),
        ("torch.vmap(f, in_dims=DIMS)", ["b"]),
        ("torch.vmap(f, in_dims=(0,) + (None,) * 2)", ["a"]),
        ("torch.vmap(f, in_dims=(*DIMS, 0))", ["b", "c"]),
        ("torch.vmap(f, in_dims=dims())", ["a", "b"]),
        ("torch.vmap(f, in_dims=(dim, None))", ["a"]),
        ("torch.vmap(partial(f, 1))", ["b"]),
        ("torch.vmap(partial(f, 1), in_dims=(0, None))", ["b"]),
        ("torch.vmap(partial(f, b=1))", ["a"]),
        ("torch.vmap(partial(partial(f, 1), c=2))(x)", ["b"]),
        ("torch.vmap(partial(torch.func.grad(f), 1))", ["b"]),
        ("v = partial(torch.vmap, in_dims=(0, None))\nv(f)", ["a"]),
        ("v = partial(torch.vmap, in_dims=(0, None))\nv(f, in_dims=(None, 0))", ["b"]),
        ("torch.vmap(torch.vmap(f, in_dims=(0, None)), in_dims=(None, 0))", ["a", "b"]),
        ("torch.vmap(torch.vmap(f, in_dims=(0, None)), in_dims=(0, None))", ["a"]),
        ("torch.vmap(f, (0, None))\ntorch.vmap(f, (None, 0))", ["a", "b"]),
        ("torch.vmap(partial(torch.utils.checkpoint.checkpoint, f, 1), in_dims=(0,))", ["b"]),
        ("torch.vmap(partial(torch.func.jvp, f), in_dims=((0, None), None))", ["a"]),
    ],
)
def test_in_dims(call: str, expected: list[str]) -> None:
    assert batched(f"{HEAD}DIMS = (None, 0)\n{F}{call}\n") == {"f": expected}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.vmap(f, in_dims=({'x': 0, 'y': None}, 0))", {"x": 0, "y": None}),
        ("torch.vmap(f, in_dims=([0, (None, 1)], 0))", [0, (None, 1)]),
        ("torch.vmap(f, in_dims=({'x': dim}, 0))", {"x": 0}),
        ("torch.vmap(f, in_dims=({'x': 0, 'y': None}, 0))\ntorch.vmap(f, in_dims=({'x': None, 'y': 0}, 0))", "all"),
        ("torch.vmap(f, in_dims=({'x': None, 'y': None}, 0))\ntorch.vmap(f)", "all"),
        ("torch.vmap(f, in_dims=({'x': 0}, 0))\ntorch.vmap(f, in_dims=(None, 0))", {"x": 0}),
    ],
)
def test_nested_in_dims_are_kept(call: str, expected: Any) -> None:
    spec = only(f"{HEAD}{F}{call}\n").batched["a"]
    assert spec == ({"x": 0, "y": 0} if expected == "all" else expected)


def test_stars_and_keywords() -> None:
    text = f"{HEAD}def f(x, *rest, k, **more): ...\n"
    assert batched(text + "torch.vmap(f)\n") == {"f": ["x", "rest"]}
    assert batched(text + "torch.vmap(f, in_dims=(0,))\n") == {"f": ["x"]}
    assert batched(text + "torch.vmap(f, in_dims=(0, None))\n") == {"f": ["x"]}
    assert batched(text + "torch.vmap(f, in_dims=(None, None, 0))\n") == {"f": ["rest"]}
    assert batched(text + "torch.vmap(f)(x, k=y)\n") == {"f": ["x"]}


# --- what is passed -------------------------------------------------------------------------


def test_lambdas_methods_and_instances() -> None:
    text = """
import torch


class Model:
    def step(self, x, y):
        return x

    @staticmethod
    def pure(x):
        return x

    @classmethod
    def made(cls, x):
        return x

    def __call__(self, x):
        return torch.vmap(self.step)(x, x)


model = Model()
torch.vmap(lambda u, v: u, in_dims=(None, 0))
torch.vmap(model.step, in_dims=(0, None))
torch.vmap(Model.pure)
torch.vmap(Model.made)
torch.vmap(model)
named = lambda w: w
torch.vmap(named)
"""
    found = batched(text)
    assert found == {
        "Model.step": ["x", "y"],
        "Model.pure": ["x"],
        "Model.made": ["x"],
        "Model.__call__": ["x"],
        "<lambda>": ["v"],
        "named": ["w"],
    }


def test_through_the_class_the_object_counts() -> None:
    text = "import torch\nclass A:\n    def f(self, x, y): ...\ntorch.vmap(A.f, in_dims=(None, 0, None))\n"
    assert batched(text) == {"A.f": ["x"]}


@pytest.mark.parametrize(
    "use",
    [
        "torch.vmap(Net())",
        "net = Net().to('cpu').eval()\ntorch.vmap(net)",
        "net = torch.compile(Net())\ntorch.vmap(net)",
        "def main():\n    net = Net()\n    return torch.vmap(net)",
        "def main(net: Net):\n    return torch.vmap(net)",
        "def main(net: 'Net | None'):\n    return torch.vmap(net.forward)",
        "def main(net: Net | None):\n    return torch.vmap(net.forward)",
        "class Run:\n    def __init__(self):\n        self.net = Net()\n    def go(self):\n        return torch.vmap(self.net)",
        "def make():\n    net = Net()\n    return net\ntorch.vmap(make())",
        "class Sub(Net):\n    pass\ntorch.vmap(Sub())",
        "class Sub(Net):\n    def go(this):\n        return torch.vmap(this.forward)",
        "class Sub(Net):\n    def go(self):\n        return torch.vmap(super().forward)",
        "net = Net()\ntorch.vmap(lambda q, z: torch.func.functional_call(net, q, (z,)), in_dims=(None, 0))",
        "net = Net()\ntorch.vmap(partial(torch.func.functional_call, net), in_dims=(None, 0))",
        "net = Net()\ntorch.vmap(torch.func.functional_call, in_dims=(None, None, 0))(net, p, (x,))",
    ],
)
def test_modules(use: str) -> None:
    text = f"{HEAD}class Net(torch.nn.Module):\n    def forward(self, x): ...\n{use}\n"
    assert batched(text)["Net.forward"] == ["x"]


def test_what_a_target_hands_on() -> None:
    text = f"{HEAD}{F}torch.vmap(lambda u, w: torch.func.jvp(f, (w, u), (w, u)), in_dims=(0, None))\n"
    assert batched(text)["f"] == ["b"]
    text = f"{HEAD}{F}torch.vmap(lambda u: torch.func.vjp(lambda s: f(s, 1), u)[0])\n"
    assert batched(text) == {"<lambda>": ["u"], "<lambda>.<locals>.<lambda>": ["s"]}
    text = f"{HEAD}{F}def g(u):\n    u2 = u + 1\n    return torch.func.vjp(f, u2, 3)\ntorch.vmap(g)\n"
    assert batched(text)["f"] == ["a"]
    text = f"{HEAD}{F}torch.func.vjp(f, u, v)\n"
    assert chosen(text, scope="vmapped").targets == ()


def test_subclasses_that_override_are_candidates() -> None:
    text = (
        "import torch\nclass A:\n    def go(self):\n        return torch.vmap(self.step)\n    def step(self, x): ...\n"
        "class B(A):\n    def step(self, y): ...\n"
    )
    assert batched(text) == {"A.step": ["x"], "B.step": ["y"]}


def test_lexical_scope() -> None:
    text = """
import torch


def f(x):
    return x


class C:
    def f(self, z):
        return z

    def use(self):
        return torch.vmap(f)


def main():
    def f(y):
        return y

    return torch.vmap(f)
"""
    assert batched(text) == {"f": ["x"], "main.<locals>.f": ["y"]}


def test_every_binding_is_a_candidate() -> None:
    text = (
        "import torch\nif flag:\n    def f(x): ...\nelse:\n    def f(y): ...\n"
        "def main():\n    global g\n    g = lambda u: u\n    torch.vmap(g)\ng = lambda v: v\ntorch.vmap(f)\n"
    )
    found = [[n for n, s in t.batched.items() if s == "batched"] for t in chosen(text).targets]
    assert sorted(found) == [["u"], ["v"], ["x"], ["y"]]


def test_at_is_the_place_of_the_first_call() -> None:
    target = only("import torch\ndef f(x): ...\ns = 'é', torch.vmap(f)\ntorch.vmap(f)\n")
    assert target.at == (3, 10)
    assert target.reason == "vmapped"
    assert only("import torch\n@torch.vmap\ndef f(x): ...\n").at == (2, 2)
    assert only("def f(x): ...  # if2where: convert\n").at is None


# --- marks, names and scopes ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, n: int, k=2):  # if2where: convert\n    return x\n",
        "# if2where: convert\ndef f(x, n: int, k=2):\n    return x\n",
        "@cache  # if2where: convert\n@other\ndef f(x, n: int, k=2):\n    return x\n",
        "def f(\n    x,\n    n: int,\n    k=2,\n):  # if2where: convert\n    return x\n",
        "def f(x, n: int, k=2) -> dict[\n    str, int  # a: b\n]:  # if2where: convert\n    return x\n",
    ],
)
def test_marks(text: str) -> None:
    target = only(text)
    assert (target.reason, target.batched) == ("marked", {"x": "batched", "n": "unbatched", "k": "unbatched"})


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    # if2where: convert\n    return x\n",
        "a = 1  # if2where: convert\ndef f(x):\n    return x\n",
        "def f(x):\n    return '# if2where: convert'\n",
    ],
)
def test_marks_elsewhere_mean_nothing(text: str) -> None:
    assert chosen(text, scope="vmapped").targets == ()


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("", "batched"),
        (": torch.Tensor", "batched"),
        (": 'Tensor | None'", "batched"),
        (": Float[Tensor, '3']", "batched"),
        (": int", "unbatched"),
        (": Optional[float]", "unbatched"),
        (": 'str'", "unbatched"),
        (": tuple[int, ...]", "unbatched"),
        (": Callable[[Tensor], Tensor]", "unbatched"),
        (": nn.Module", "unbatched"),
        (": torch.dtype | None", "unbatched"),
        (": Tensor = ZERO", "batched"),
    ],
)
def test_marked_parameters(annotation: str, expected: str) -> None:
    text = f"class C:\n    def f(self, x{annotation}):  # if2where: convert\n        return x\n"
    assert only(text).batched == {"self": "unbatched", "x": expected}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("def f(x):  # if2where: skip\n    return x\n\n\ndef g(x): ...\n", ["g"]),
        ("@wrapped  # if2where: skip\ndef f(x):\n    def inner(x): ...\n\n\ndef g(x): ...\n", ["g"]),
        ("class C:  # if2where: skip\n    def f(self, x): ...\n\n\ndef g(x): ...\n", ["g"]),
        ("# if2where: skip\nclass C(\n    B,\n):\n    def f(self, x): ...\n\n\ndef g(x): ...\n", ["g"]),
        ("if 1:\n    f = lambda x: x  # if2where: skip\n    g = lambda x: x\n", ["g"]),
        ('"""Text."""\n\nimport torch\n\n# if2where: skip\n\n\ndef f(x): ...\n\n\ndef g(x): ...\n', []),
        ("import torch  # if2where: skip\n\n\ndef f(x): ...\n\n\ndef g(x): ...\n", ["f", "g"]),
        ("def f(x): ...\n\n\n# if2where: skip\n\n\ndef g(x): ...\n", ["f", "g"]),
    ],
)
def test_skips(text: str, left: list[str]) -> None:
    calls = "import torch\ntorch.vmap(f)\ntorch.vmap(g)\ntorch.vmap(C().f)\n"
    selection = chosen(text + calls)
    assert names(selection) == left
    assert bool(selection.skipped) == (left != ["f", "g"])


def test_skipped_lines() -> None:
    text = (
        "def f(x):  # if2where: skip\n    pass\n\n\ndef g(x):\n    if x > 0:  # if2where: skip\n        x = 1\n"
        "    # if2where: skip\n    if x > 1:\n        x = 2\n    return x\n"
    )
    assert chosen(text).skipped_lines == {6, 8, 9}


def test_named_functions() -> None:
    text = "import torch\nclass C:\n    def f(self, x): ...\n    def g(self, x): ...\ndef h(x): ...\ntorch.vmap(h)\n"
    named = chosen(text, functions=("C.f", "nothing"))
    assert [(t.function.qualname, t.reason) for t in named.targets] == [("C.f", "named")]
    assert named.unmatched == ("nothing",)
    assert names(chosen(text, functions=("g",))) == ["C.g"]
    assert only(text, functions=("h",)).reason == "vmapped"
    inner = "def out():\n    def f(x): ...\n"
    assert names(chosen(inner, functions=("out.f",))) == ["out.<locals>.f"]


def test_scopes() -> None:
    plain = "import torch\n\n\ndef f(x):\n    return torch.sin(x)\n\n\ndef g(n):\n    return n + 1\n"
    assert chosen(plain).scope == "all"
    assert names(chosen(plain)) == ["f"]
    assert chosen(plain, scope="vmapped").targets == ()
    assert chosen(plain + "\ntorch.vmap(g)\n").scope == "vmapped"
    assert names(chosen(plain + "\ntorch.vmap(g)\n", scope="all")) == ["g", "f"]
    # a file that maps what it cannot name has said what it wants
    assert chosen(plain + "\nfrom other import h\ntorch.vmap(h)\n").scope == "vmapped"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x: Tensor, n): ...", {"x": "batched", "n": "unknown"}),
        ("def f(x: Float[Tensor, ''], k: int): ...", {"x": "batched", "k": "unbatched"}),
        ("def f(x: Tensor | float): ...", {"x": "unknown"}),
        ("def f(x, n=1): return torch.sin(x) + n", {"x": "batched", "n": "unbatched"}),
        ("def f(x): return th.exp(x)", {"x": "batched"}),
        ("def f(x): return sin(x)", {"x": "batched"}),
        ("def f(x): return x.sqrt()", {"x": "batched"}),
        ("f = lambda x: torch.linalg.norm(x)", {"x": "batched"}),
        ("def f(n): return torch.zeros(n)", None),
        ("def f(n): return torch.nn.Linear(n, n)", None),
        ("def f(n): return math.sin(n)", None),
        ("def f(fn: Callable[[Tensor], Tensor]): ...", None),
        ("def f(): return torch.sin(1)", None),
    ],
)
def test_evidence(code: str, expected: dict[str, str] | None) -> None:
    targets = chosen("import math, torch, torch as th\nfrom torch import sin\n" + code + "\n").targets
    assert [t.batched for t in targets] == ([] if expected is None else [expected])
    assert [t.reason for t in targets] == ["all"] * len(targets)


def test_evident_asks_one_function() -> None:
    sure, not_sure = parse_module(Source("a.py", "def f(x):\n    return torch.sin(x)\ndef g(x): ...\n")).functions
    assert evident(sure.node)
    assert not evident(not_sure.node)


def test_might_matter() -> None:
    assert might_matter("from torch import vmap", "vmapped")
    assert might_matter("x = 1  # if2where: convert", "vmapped")
    assert not might_matter("import torch", "vmapped")
    assert might_matter("import torch", "all")
    assert might_matter("import torch", "auto")
    assert not might_matter("import numpy", "all")


# --- any module -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "import torch\na0 = torch.vmap\n" + "".join(f"a{k + 1} = a{k}\n" for k in range(3000)) + "a3000(a0)\n",
        "import torch\nf = torch.vmap(f)\ng = h\nh = g\ntorch.vmap(g)\ntorch.vmap(g.a)\ntorch.vmap(h())\n",
        "import torch\nclass A(B): ...\nclass B(A):\n    def f(self): return torch.vmap(self.f)\n",
        "import torch\ntorch.vmap()\ntorch.vmap(*a, **k)\ntorch.vmap(f, in_dims={**a})(1)\ntorch.vmap(torch.vmap)\n",
        "import torch\nx = f'{torch.vmap(lambda a: a)}'\n",
        "import torch\ntorch.vmap(f, in_dims=(0,) * 10**9)\ndef f(a, b): ...\n",
        "import torch\nd = (d, d)\ntorch.vmap(f, in_dims=d)\ndef f(a, b): ...\n",
        "import torch\ntorch" + ".a" * 900 + "(torch.vmap)\n",
        "",
        "# if2where: skip",
        "\x0c\nimport torch\x0c\ndef f(x): ...  # if2where: convert\n",
    ],
)
def test_odd_modules(text: str) -> None:
    selection = chosen(text)
    assert selection.scope in ("vmapped", "all")


def test_time_is_linear() -> None:
    import time

    def took(n: int) -> float:
        body = "".join(
            f"class C{k}:\n    def f(self, x):  # if2where: convert\n        return torch.vmap(self.g)(x)\n"
            f"    def g(self, x): return x\ndef f{k}(x): ...\ntorch.vmap(f{k})\ntorch.vmap(C{k}().f)\n"
            for k in range(n)
        )
        module = parse_module(Source("a.py", "import torch\n" + body))
        module.pragmas  # noqa: B018 - read once, before the clock starts
        times = []
        for _ in range(3):
            start = time.perf_counter()
            found = select(module)
            times.append(time.perf_counter() - start)
            assert len(found.targets) == 3 * n
        return min(times)

    assert took(1600) < 16 * took(200) + 0.1  # eight times the work


def test_real_packages() -> None:
    """Whatever is installed is read without a crash; the files with vmap in them, and a sample of the others."""
    read = 0
    for package in ("torch", "functorch", "libcst", "click", "rich"):
        for k, path in enumerate(sorted((SITE / package).rglob("*.py"))):
            data = path.read_bytes()
            if k % 20 and (b"vmap" not in data or len(data) > 200_000):
                continue
            try:
                module = parse_module(decode(data, str(path)))
            except SourceError:
                continue  # syntax newer than this Python
            for scope in ("vmapped", "all"):
                assert select(module, scope).scope == scope
            read += 1
    assert read >= 3
