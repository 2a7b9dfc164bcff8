"""The figures of ``bench``, the same function with ``torch.cond``, the curves and the page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from if2where.cli import main
from if2where.quickstart import EXAMPLE
from tests.browser import browse, needs_browser

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SINC = """\
import torch


def sinc(x: torch.Tensor) -> torch.Tensor:
    if x.abs() < 0.5:
        return 1 - x * x / 6
    return torch.sin(x) / x


def verify_inputs(seed, batch):
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(batch, generator=g, dtype=torch.float64) - 1,)


batched = torch.vmap(sinc)
"""


# --- functions for torch.cond ---------------------------------------------------------------


def two_returns(x, y):
    if x > y:
        return x * y
    return x - y


def assigns(x, y):
    a = x * 2
    if x > 0:
        c = a + y
        b = c * c
    else:
        b = y
    return a + b


def chain(x, y):
    if x > 1:
        z = x * y
    elif x > 0:
        z = x + y
    else:
        z = x - y
    return z * z


def nested(x, y):
    if x > 0:
        if y > 0:
            return x * y
        x = x + 1
    return x / (y * y + 1)


def passes(x, y):
    if x > 0:
        y = y + 1
    return x * y


CONDITIONAL = [two_returns, assigns, chain, nested, passes]


@pytest.mark.parametrize("fn", CONDITIONAL, ids=lambda f: f.__name__)
def test_cond_is_the_same_function(fn: Callable[..., torch.Tensor]) -> None:
    from if2where.runtime.cond import with_cond

    x = torch.tensor([-1.5, -0.5, 0.0, 0.5, 1.5, 2.5])
    y = torch.tensor([1.0, -1.0, 2.0, -2.0, 0.5, -0.5])
    want = torch.stack([fn(a, b) for a, b in zip(x, y)])
    torch.testing.assert_close(torch.vmap(with_cond(fn))(x, y), want)


def loops(x, y):
    for _ in range(3):
        x = x + y
    return x


def ternary(x, y):
    return x if x > y else y


def both(x, y):
    if x > 0 and y > 0:
        x = x + y
    return x


def number(x, y):
    if x > y:
        return 1.0
    return x


@pytest.mark.parametrize("fn", [loops, ternary, both, number, lambda x, y: x], ids=lambda f: f.__name__)
def test_cond_is_refused_with_a_reason(fn: Callable[..., torch.Tensor]) -> None:
    from if2where.runtime.cond import NoCond, with_cond

    with pytest.raises(NoCond, match=r"line \d+|number|plain"):
        with_cond(fn)


# --- figures --------------------------------------------------------------------------------


def test_every_way_is_measured() -> None:
    import if2where

    x = torch.linspace(-2, 2, 8)
    found = if2where.bench(two_returns, (x, x.flip(0)), sizes=(1, 20), ways=("loop", "converted", "torch.cond"))
    assert [(t.way, t.samples) for t in found.timings] == [
        (way, n) for way in ("loop", "converted", "torch.cond") for n in (1, 20)
    ]
    for t in found.timings:
        assert t.forward is not None
        assert t.forward > 0, t
        # torch.cond has no gradient under vmap in some releases of torch: then it says so.
        assert t.note or (t.backward is not None and t.memory is not None and t.memory > 0), t
    assert found.speedup() == found.speedup(20)
    loop, converted = found.of("loop", 1), found.of("converted", 1)
    assert loop is not None
    assert converted is not None
    assert loop.forward is not None
    assert found.speedup(1) == loop.forward / converted.forward  # type: ignore[operator]
    assert json.loads(json.dumps(found.to_dict()))["timings"][0]["way"] == "loop"
    assert str(found).splitlines()[0] == "two_returns"


def test_what_cannot_run_is_said() -> None:
    import if2where

    x = torch.linspace(-2, 2, 8)
    found = if2where.bench(ternary, (x, x.flip(0)), sizes=(2,), ways=("converted", "torch.cond"))
    assert found.timings[1].note.startswith("cannot be written: line ")
    assert found.speedup() is None
    # Nothing that is differentiated: the time of a backward pass is not made up.
    whole = if2where.bench(both, (torch.arange(4), torch.arange(4)), sizes=(4,), ways=("loop", "converted"))
    assert all(t.backward is None and t.forward for t in whole.timings)


def test_a_slow_way_is_not_run_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import if2where
    from if2where.runtime import bench as module

    monkeypatch.setattr(module, "SLOW", 0.0)
    x = torch.linspace(-2, 2, 8)
    found = if2where.bench(both, (x, x), sizes=(1, 4, 9), ways=("loop",))
    assert [t.forward is None for t in found.timings] == [False, True, True]
    assert "not run" in found.timings[1].note


# --- curves ---------------------------------------------------------------------------------


def test_curves_go_through_the_branch_points() -> None:
    from if2where.runtime import compare
    from if2where.runtime.curves import curves

    def f(x, y):
        if x > 0.25:
            return x * x + y
        return 3 * x - y

    import if2where

    batch = compare.batch_of((torch.linspace(-1, 1, 9), torch.zeros(9)), 0)
    along_x, along_y = curves(f, if2where.convert(f), batch)
    assert (along_x.name, along_y.name) == ("x", "y")
    assert along_y.branch_points == []
    (at,) = along_x.branch_points
    step = along_x.points[1] - along_x.points[0]
    assert abs(at - 0.25) <= step
    assert along_x.values == pytest.approx(along_x.converted_values)
    slopes = [2 * p if p > 0.25 else 3.0 for p in along_x.points]
    assert along_x.gradients == pytest.approx(slopes)
    assert along_x.converted_gradients == pytest.approx(slopes)


def test_points_where_the_original_raises_are_gaps() -> None:
    from if2where.runtime import compare
    from if2where.runtime.curves import curves

    def f(x):
        assert x < 1
        return 2 * x

    batch = compare.batch_of((torch.linspace(0, 2, 9),), 0)
    (curve,) = curves(f, lambda x: 2 * x, batch)
    assert all(math.isnan(v) == (p >= 1) for p, v in zip(curve.points, curve.values))


# --- the command ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "sinc.py").write_text(SINC)
    command = ["bench", str(folder / "sinc.py"), "--sizes", "1,30", "--way", "loop", "--way", "converted"]
    result = CliRunner().invoke(main, [*command, "--report", str(folder / "r.html")])
    assert result.exit_code == 0, result.output
    assert re.search(r"^ +30  converted +[\d.]+ [mu]s", result.stdout, re.MULTILINE)
    return folder / "r.html"


def test_the_page_holds_everything_and_fetches_nothing(report: Path) -> None:
    text = report.read_text()
    assert "Equal in" in text
    assert "torch.sin(x)" in text
    assert "x.abs() &lt; 0.5" in text
    assert text.count("<svg") == 2
    assert "gradient by x" in text or "<path" in text
    # Namespaces and a doctype are names, not places from which something is fetched.
    fetched = re.findall(r"""(?:src|href)\s*=\s*["'](?!#)([^"']*)""", text)
    assert fetched == []
    assert "<script" not in text
    assert "@import" not in text
    assert "url(http" not in text


@needs_browser
def test_a_browser_shows_the_page(report: Path) -> None:
    shot = report.parent / "shot.png"
    browse(report, report.parent / "profile", f"--screenshot={shot}", "--window-size=1100,1600")
    from matplotlib.image import imread

    pixels = imread(str(shot))
    # Something is drawn from top to bottom, in the colours of both curves.
    assert len({tuple(p) for p in pixels[::7, ::7].reshape(-1, pixels.shape[2]).tolist()}) > 20


def test_bench_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(EXAMPLE)

    def run(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["bench", *args])
        return result.exit_code, result.output

    assert run(f"{file}::nothing")[0] == 2
    assert run(str(file), "--sizes", "1,x")[0] == 2
    assert run(str(file), "--sizes", "0")[0] == 2
    file.write_text(EXAMPLE.replace("root = -t", "print(t)\n        root = -t"))
    status, said = run(str(file), "--sizes", "1")
    assert status == 1
    assert "IW101" in said
