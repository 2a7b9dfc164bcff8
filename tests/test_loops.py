"""``any_active`` and converted loops under the transforms that they meet."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NEWTON = """
import torch


def f(p):
    x = p
    while abs(x * x - p) > 1e-12 * p:
        x = 0.5 * (x + p / x)
    return x


g = torch.func.vmap(f)
"""


def converted() -> object:
    from if2where.pipeline import convert_source
    from tests.execution import load

    return load(convert_source(NEWTON).text, "newton").f


def test_under_transforms() -> None:
    f = converted()
    p = torch.linspace(0.5, 9.0, 12, dtype=torch.float64)
    root = p.sqrt()
    assert torch.allclose(torch.func.vmap(f)(p), root)
    assert torch.allclose(torch.func.vmap(torch.func.vmap(f))(p.reshape(3, 4)), root.reshape(3, 4))
    assert torch.allclose(torch.func.vmap(torch.func.grad(f))(p), 0.5 / root)
    assert torch.allclose(torch.func.vmap(f, chunk_size=5)(p), root)
    value, tangent = torch.func.jvp(torch.func.vmap(f), (p,), (torch.ones_like(p),))
    assert torch.allclose(tangent, 0.5 / value)
    assert torch.allclose(torch.func.vmap(torch.func.hessian(f))(p), -0.25 * p**-1.5)
    with torch.no_grad():
        assert torch.allclose(torch.func.vmap(f)(p), root)


def test_any_active() -> None:
    from if2where import any_active

    assert any_active(True) is True
    assert any_active(torch.tensor([False, True])) is True
    assert any_active(torch.zeros(3, dtype=torch.bool)) is False


def test_under_compile() -> None:
    """A graph break where torch cannot go on, and no error."""
    f = converted()
    p = torch.linspace(0.5, 9.0, 12, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.func.vmap(f)(x) + 1, backend="aot_eager")
    assert torch.allclose(compiled(p), p.sqrt() + 1)
    assert torch.allclose(compiled(2 * p), (2 * p).sqrt() + 1)
