"""Functions defined in the cells of a notebook, in a real Jupyter kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CELLS = [
    "import torch\nimport if2where",
    "def helper(x):\n    if x > 1:\n        return torch.sqrt(x)\n    return x * x",
    """\
def f(x, y):
    if x > y:
        return helper(x)
    return y.sin()
""",
    """\
x = torch.linspace(-2.0, 3.0, 11, dtype=torch.float64)
y = torch.zeros((), dtype=torch.float64)
got = if2where.vmap(torch.func.grad(f), in_dims=(0, None))(x, y)
want = torch.stack([torch.func.grad(f)(v, y) for v in x])
values = if2where.vmap(f, in_dims=(0, None))(x, y)
loop = torch.stack([f(v, y) for v in x])
print(torch.equal(got, want), torch.equal(values, loop))
""",
    """\
import inspect
print(inspect.getsource(if2where.convert(f, in_dims=(0, None))))
""",
    "def helper(x):\n    return torch.where(x > 1, 10.0, 20.0)",
    "print(torch.equal(if2where.vmap(f, in_dims=(0, None))(x, y), torch.stack([f(v, y) for v in x])))",
    """\
def bad(x):
    if x > 0:
        z = x.no_such_method()
    else:
        z = x
    return z
""",
    "if2where.vmap(bad)(x)",
]


def outputs(cell: dict) -> str:
    return "".join(o.get("text", "") + "\n".join(o.get("traceback", [])) for o in cell["outputs"])


def test_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in ["%colors nocolor", *CELLS]])
    NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=True).execute()
    shown = [outputs(cell) for cell in notebook.cells[1:]]
    assert shown[3] == "True True\n"
    assert shown[4].startswith("def f(x, y):\n    x_gt_y = x > y\n    return torch.where(x_gt_y, helper(")
    assert shown[6] == "True\n"
    assert "<if2where __main__.bad #" in shown[8]
    assert "z = torch.where(x > 0, x.no_such_method(), x)" in shown[8]
    assert [s for s in (*shown[:3], shown[5], shown[7]) if s] == []
