"""The verification finds what is wrong, names what was not run, and passes what is right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")

import if2where  # noqa: E402
from if2where.cli import main  # noqa: E402
from if2where.testing import assert_vmap_equivalent  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

WEIGHT = torch.tensor(2.0, dtype=torch.float64)


def decay(x, rate):
    if x > 0:
        out = torch.sqrt(x) * rate * WEIGHT
    elif rate > 1:
        out = rate / x
    else:
        out = 2 * x
    return out


def far(v):
    if v.sum() > 1e7:
        return v
    return -v


def clipped(x):
    if x > 1:
        x.mul_(0.5)
    return x + 1


def both():
    x = torch.tensor([1.0, -1.0, 0.0, 4.0, -2.0, 0.25], dtype=torch.float64)
    return x, torch.tensor([2.0, 3.0, 0.5, 0.25, 0.5, 1.5], dtype=torch.float64)


def test_equal() -> None:
    found = if2where.verify(decay, second_order=True, forward_mode=True, nested=True)
    assert found.ok, found
    assert found.samples >= 64
    assert "`WEIGHT`" in str(found)
    assert all(t.true and t.false for t in found.tests)
    assert [t.text for t in found.tests] == ["x > 0", "rate > 1"]
    assert found.raise_for_mismatch() is found
    assert json.loads(json.dumps(found.to_dict()))["ok"] is True
    assert WEIGHT.requires_grad is False


def test_runs_repeat() -> None:
    assert str(if2where.verify(decay, seed=3)) == str(if2where.verify(decay, seed=3))


def naive(x, rate):
    return torch.where(x > 0, torch.sqrt(x) * rate * WEIGHT, torch.where(rate > 1, rate / x, 2 * x))


def test_a_bare_where_fails_by_its_gradients() -> None:
    found = if2where.verify(decay, both(), batched=naive)
    assert not found.ok
    assert "gradient by argument 0" in {d.what for d in found.differences}
    assert all(d.what.startswith("gradient by") for d in found.differences)
    assert found.worst is not None
    with pytest.raises(if2where.VerificationError, match="nan where the loop has"):
        found.raise_for_mismatch()


WRONG = {
    "a side swapped": lambda x, r: torch.where(
        x > 0, 2 * x, torch.where(r > 1, r / torch.where(x == 0, 1, x), torch.sqrt(torch.where(x > 0, x, 1)))
    ),
    "a comparison flipped": lambda x, r: torch.where(
        x >= 0,
        torch.sqrt(torch.where(x > 0, x, 1)) * r * WEIGHT,
        torch.where(r > 1, r / torch.where(x == 0, 1, x), 2 * x),
    ),
    "a dtype lost": lambda x, r: torch.where(
        x > 0,
        torch.sqrt(torch.where(x > 0, x, 1)) * r * WEIGHT,
        torch.where(r > 1, r / torch.where(x == 0, 1, x), 2 * x),
    ).float(),
    "a captured tensor cut off": lambda x, r: torch.where(
        x > 0,
        torch.sqrt(torch.where(x > 0, x, 1)) * r * WEIGHT.detach(),
        torch.where(r > 1, r / torch.where(x == 0, 1, x), 2 * x),
    ),
    "a dimension grown": lambda x, r: torch.where(x > 0, x, r).reshape(1),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    found = if2where.verify(decay, both(), converted=WRONG[name])
    assert found.differences


def test_a_version_that_raises() -> None:
    found = if2where.verify(decay, both(), converted=lambda x, r: x if x > 0 else r)
    assert not found.ok
    assert "raises RuntimeError" in str(found)
    assert "data-dependent control flow" in found.differences[0].got or "vmap" in found.differences[0].got


def test_an_argument_that_is_not_updated() -> None:
    x = torch.tensor([0.5, 2.0, -1.0, 3.0], dtype=torch.float64)
    found = if2where.verify(clipped, (x,), converted=lambda x: torch.where(x > 1, 0.5 * x, x) + 1)
    assert {d.what for d in found.differences} == {"argument 0 after the call"}
    assert x.tolist() == [0.5, 2.0, -1.0, 3.0]


def test_a_side_that_no_sample_takes() -> None:
    found = if2where.verify(far)
    assert not found.ok
    assert found.differences == ()
    assert [(t.text, t.missing) for t in found.unexercised] == [("v.sum() > 1e7", "true")]
    assert "no sample took the true side" in str(found)
    line = found.unexercised[0].line
    assert if2where.verify(far, allow_unexercised=[line]).ok
    assert not if2where.verify(far, allow_unexercised=[line + 1]).ok
    assert if2where.verify(far, allow_unexercised=True).ok


def summed(x, w):
    if x @ w > 0.3:
        return x.sum()
    return -x.sum()


def test_a_boundary_is_searched() -> None:
    """Samples far from the test on either side do not tell `x > 0.3` from `x > 0.31`: those beside it do."""

    def near(x):
        if x > 0.3:
            return x * x
        return -x

    x = torch.tensor([-2.0, 2.0], dtype=torch.float64)
    assert if2where.verify(near, (x,)).ok
    other = if2where.verify(near, (x,), converted=lambda x: torch.where(x > 0.30001, x * x, -x))
    assert [d.what for d in other.differences][:1] == ["output 0"]


def test_a_flip_by_rounding_is_told_apart() -> None:
    def step(x):
        if x > 0.1 + 0.2:
            return torch.ones_like(x)
        return torch.zeros_like(x)

    x = torch.tensor([0.3, 0.1 + 0.2, 1.0, -1.0], dtype=torch.float64)
    found = if2where.verify(step, (x,), converted=lambda x: torch.where(x > 0.3, 1.0, 0.0).to(x.dtype))
    assert found.flips == (1,)
    assert found.differences == ()


def test_nothing_to_run_on() -> None:
    def needs_a_table(table: dict):
        return table["x"]

    with pytest.raises(if2where.NoInputs):
        if2where.verify(needs_a_table, converted=needs_a_table)


def test_in_a_test_suite() -> None:
    assert_vmap_equivalent(decay)
    with pytest.raises(AssertionError, match="gradient by argument 0"):
        assert_vmap_equivalent(decay, both(), batched=naive)


# --- the command ----------------------------------------------------------------------------

FILE = """\
import torch


def good(x, y):
    if x > y:
        return torch.log(x - y)
    return y


def one_sided(x):
    if x > 1e9:
        return x
    return -x


def endless(x):
    while True:
        x = x + 1
    return x


def crashing(x):
    import os

    os._exit(3)


A = [torch.func.vmap(f) for f in ()]
B = torch.func.vmap(good)
C = torch.func.vmap(one_sided)
"""


def run(tmp_path: Path, *args: str) -> tuple[int, str]:
    path = tmp_path / "model.py"
    path.write_text(FILE)
    target, *rest = args
    result = CliRunner().invoke(main, ["verify", f"{path}{target}", *rest])
    return result.exit_code, result.output


def test_command(tmp_path: Path) -> None:
    code, out = run(tmp_path, "")
    assert code == 1
    assert "good (on made-up inputs): equal in" in out
    assert "one_sided (on made-up inputs): NOT VERIFIED" in out
    assert run(tmp_path, "::good", "--second-order")[0] == 0
    assert run(tmp_path, "::one_sided", "--allow-unexercised")[0] == 0
    code, out = run(tmp_path, "::good", "--output-format", "json")
    assert json.loads(out)[0]["status"] == "equal"


def test_command_outlives_the_code_that_it_runs(tmp_path: Path) -> None:
    code, out = run(tmp_path, "::endless", "--timeout", "6")
    assert code == 1
    assert "did not end within 6 s" in out
    code, out = run(tmp_path, "::crashing")
    assert code == 1
    assert "status 3" in out


def test_command_says_what_it_cannot_find(tmp_path: Path) -> None:
    assert run(tmp_path, "::absent")[0] == 2
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "no.py")]).exit_code == 2


def test_import_is_light() -> None:
    import subprocess

    code = "import sys, if2where; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
