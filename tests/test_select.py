"""Which functions are in scope, and which of their parameters are batched."""

from __future__ import annotations

from typing import Any

import pytest

from if2where.module import Source, parse_module
from if2where.select import Selection, select

F = "def f(a, b, c=1):\n    return a\n"


def chosen(text: str, **options: Any) -> Selection:
    return select(parse_module(Source("a.py", text)), **options)


def batched(text: str) -> dict[str, list[str]]:
    return {t.function.qualname: [n for n, s in t.batched.items() if s == "batched"] for t in chosen(text).targets}


@pytest.mark.parametrize(
    "call",
    [
        "import torch\ntorch.vmap(f)",
        "import torch as th\nth.func.vmap(f)",
        "import torch.func as F\nF.vmap(f)",
        "from torch import func\nfunc.vmap(f)",
        "from torch.func import vmap as v\nv(f)",
        "from functorch import vmap\nvmap(f)",
        "import torch\nvmap = torch.func.vmap\nvmap(f)",
        "import torch\ng = torch.vmap(func=f)",
        "from torch.func import vmap, grad\nvmap(grad(f))",
        "from torch.func import vmap, jacrev\nvmap(vmap(jacrev(f)))",
        "import functools, torch\nv = functools.partial(torch.vmap)\nv(f)",
        "import torch\ng = f\ntorch.vmap(g)",
        "import torch\ntorch.vmap(torch.compile(f))",
    ],
)
def test_spellings(call: str) -> None:
    assert batched(F + call + "\n") == {"f": ["a", "b"]}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.vmap(f, in_dims=(0, None))", ["a"]),
        ("torch.vmap(f, (None, 0, 0))", ["b", "c"]),
        ("torch.vmap(f, in_dims=-1)(x, y)", ["a", "b"]),
        ("torch.vmap(f)(x, 3)", ["a"]),
        ("torch.vmap(f, in_dims=DIMS)", ["b"]),
        ("torch.vmap(f, in_dims=dims())", ["a", "b"]),
        ("torch.vmap(partial(f, 1))", ["b"]),
        ("torch.vmap(partial(f, b=1))", ["a"]),
    ],
)
def test_in_dims(call: str, expected: list[str]) -> None:
    text = f"import torch\nfrom functools import partial\nDIMS = (None, 0)\n{F}{call}\n"
    assert batched(text) == {"f": expected}


def test_nested_in_dims_are_kept() -> None:
    target = chosen(f"import torch\n{F}torch.vmap(f, in_dims=({{'x': 0, 'y': None}}, 0))\n").targets[0]
    assert target.batched["a"] == {"x": 0, "y": None}


def test_decorators() -> None:
    text = (
        "import torch\nfrom functools import partial\nfrom torch import vmap\n\n\n@vmap\ndef f(x):\n    return x\n\n\n"
        "@partial(torch.func.vmap, in_dims=(0, None))\ndef g(x, y):\n    return x\n"
    )
    assert batched(text) == {"f": ["x"], "g": ["x"]}


def test_lambdas_methods_and_instances() -> None:
    text = """
import torch


class Model:
    def step(self, x, y):
        return x

    @staticmethod
    def pure(x):
        return x

    def __call__(self, x):
        return torch.vmap(self.step)(x, x)


model = Model()
torch.vmap(lambda u, v: u, in_dims=(None, 0))
torch.vmap(model.step, in_dims=(0, None))
torch.vmap(Model.pure)
torch.vmap(model)
"""
    found = batched(text)
    assert found["Model.step"] == ["x", "y"]
    assert found["Model.pure"] == ["x"]
    assert found["Model.__call__"] == ["x"]
    assert found["<lambda>"] == ["v"]


def test_lexical_scope() -> None:
    text = """
import torch


def f(x):
    return x


def main():
    def f(y):
        return y

    return torch.vmap(f)
"""
    assert batched(text) == {"main.<locals>.f": ["y"]}


def test_marks_and_names() -> None:
    marked = "def f(x, n: int, k=2):  # if2where: convert\n    return x\n"
    assert batched(marked) == {"f": ["x"]}
    skipped = "import torch\n\n\ndef f(x):  # if2where: skip\n    return x\n\n\ntorch.vmap(f)\n"
    assert chosen(skipped).targets == ()
    whole = "# if2where: skip\nimport torch\n\n\ndef f(x):\n    return x\n\n\ntorch.vmap(f)\n"
    assert chosen(whole).targets == ()
    named = chosen("class C:\n    def f(self, x):\n        return x\n", functions=("C.f", "g"))
    assert [t.function.qualname for t in named.targets] == ["C.f"]
    assert named.unmatched == ("g",)


def test_scopes() -> None:
    plain = "import torch\n\n\ndef f(x):\n    return torch.sin(x)\n\n\ndef g(n):\n    return n + 1\n"
    assert chosen(plain).scope == "all"
    assert [t.function.qualname for t in chosen(plain).targets] == ["f"]
    assert chosen(plain, scope="vmapped").targets == ()
    assert chosen(plain + "\ntorch.vmap(g)\n").scope == "vmapped"
