"""Every fixture: the text that comes out, and that it runs under vmap as the original runs in a loop.

A fixture with ``FAULT = "what is wrong"`` shows what the converter does not do yet: it must go on failing, and
the line goes, with ``after.py`` written, when it no longer does.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from if2where.module import Source, decode, encode
from tests.fixture import CASES, Fixture, constants, convert, fixtures, outside_functions

ALL = fixtures()
CONVERTED = [f for f in ALL if f.expect == "convert"]
SOUND = [f for f in CONVERTED if "FAULT" not in f.constants]
REFUSED = [f for f in ALL if f.expect == "refuse"]
RUNNING = [f for f in ALL if f.expect != "refuse"]

SEEDS = (0, 1)
BATCH = 16


def ids(items: list[Fixture]) -> list[str]:
    return [f.name for f in items]


def with_faults(items: list[Fixture]) -> list[Any]:
    """The fixtures as parameters, those with a known fault marked to fail."""
    return [
        pytest.param(
            f,
            id=f.name,
            marks=[pytest.mark.xfail(strict=True, reason=f.constants["FAULT"])] if "FAULT" in f.constants else [],
        )
        for f in items
    ]


def test_there_are_enough() -> None:
    assert len(SOUND) >= 130
    assert len(REFUSED) >= 40


def test_each_trap_has_a_fixture() -> None:
    covered = {t for f in ALL for t in f.constants.get("TRAPS", ())}
    # 15 is the second conversion of every fixture; 22 is test_scale.
    assert covered >= {*range(1, 35)} - {15, 22}


@pytest.mark.parametrize("fixture", SOUND, ids=ids(SOUND))
def test_text(fixture: Fixture) -> None:
    result = fixture.convert()
    assert result.refusals == ()
    assert result.converted
    after = decode((fixture.folder / "after.py").read_bytes(), "after.py")
    assert result.text == after.text
    assert encode(fixture.source, result.text) == (fixture.folder / "after.py").read_bytes()


@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
def test_second_conversion_changes_nothing(fixture: Fixture) -> None:
    once = fixture.convert().text
    assert convert(Source("again.py", once)).text == once


@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
def test_only_functions_change(fixture: Fixture) -> None:
    before, after = fixture.source.text, fixture.convert().text
    assert outside_functions(before) == outside_functions(after)
    comments = [line.split("#", 1)[1] for line in before.splitlines() if "#" in line]
    assert [c for c in comments if c not in after] == []


def without_functions(text: str) -> tuple[list[str], dict[str, str]]:
    """The text's lines with a placeholder for each function or lambda that stands outside of others; and those."""
    lines = text.split("\n")
    spans: list[tuple[str, int, int]] = []

    def collect(body: list[ast.stmt], owner: str) -> None:
        for stmt in body:
            if isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([stmt.lineno, *(d.lineno for d in stmt.decorator_list)])
                spans.append((owner + stmt.name, first, stmt.end_lineno or first))
            elif isinstance(stmt, ast.ClassDef):
                collect(stmt.body, f"{owner}{stmt.name}.")
            elif any(isinstance(n, ast.Lambda) for n in ast.walk(stmt)):
                spans.append((f"{owner}lambda {stmt.lineno}", stmt.lineno, stmt.end_lineno or stmt.lineno))

    collect(ast.parse(text).body, "")
    functions = {}
    for name, first, last in reversed(spans):
        functions[name] = "\n".join(lines[first - 1 : last])
        lines[first - 1 : last] = [f"<{name.split()[0]}>"]
    return lines, functions


@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
def test_every_other_byte_is_kept(fixture: Fixture) -> None:
    """But for an import that the conversion needs, on a line of its own."""
    result = fixture.convert()
    before, functions = without_functions(fixture.source.text)
    after, changed = without_functions(result.text)
    needed = ("import torch", "import torch as _torch", "from if2where import any_active")
    for line in needed:
        places = [k for k, x in enumerate(after) if x.rstrip("\r") == line]
        if places and line not in [x.rstrip("\r") for x in before]:
            del after[places[0]]
    for name in [n for n in changed if n not in functions]:
        # A second version of a helper, behind the helper itself.
        assert re.fullmatch(r"(.*)_(masked|batched)", name), name
        place = next(
            k for k, line in enumerate(after) if line.strip() == f"<{name.rsplit('.', 1)[-1]}>" or line == f"<{name}>"
        )
        start = place
        while not after[start - 1].strip():
            start -= 1
        del after[start : place + 1]
    assert after == before
    names = {name.rsplit(".", 1)[-1] for name in result.converted}
    untouched = [n for n in functions if n.rsplit(".", 1)[-1] not in names and not n.startswith("lambda")]
    assert [n for n in untouched if functions[n] != changed[n]] == []


@pytest.mark.parametrize("fixture", with_faults(REFUSED))
def test_refusals(fixture: Fixture) -> None:
    result = fixture.convert()
    assert result.text == fixture.source.text
    found = [f"{d.line}:{d.col} {d.code.name}" for d in result.refusals]
    assert found == (fixture.folder / "refusals.txt").read_text().split("\n")[:-1]
    if "REFUSALS" in fixture.constants:
        assert {line.split()[1] for line in found} == set(fixture.constants["REFUSALS"])


@pytest.mark.parametrize("name", [f.name for f in ALL if f.expect == "untouched"])
def test_untouched(name: str) -> None:
    result = Fixture(name).convert()
    assert result.text == Fixture(name).source.text
    assert result.refusals == ()


def run(fixture: Fixture) -> list[tuple[Any, ...]]:
    """The inputs that every check of a fixture uses."""
    from tests.execution import load

    module = load(fixture.source.text, "fixture_before")
    return [module.make_inputs(seed, BATCH) for seed in SEEDS]


@pytest.mark.torch
@pytest.mark.parametrize("fixture", RUNNING, ids=ids(RUNNING))
def test_original_runs_in_the_loop(fixture: Fixture) -> None:
    pytest.importorskip("torch")
    from tests.execution import load, run_loop

    fn = getattr(load(fixture.source.text, "fixture_before"), fixture.constants["ENTRY"])
    for inputs in run(fixture):
        outs, _, _ = run_loop(fn, inputs, fixture.constants["IN_DIMS"])
        assert outs
        assert all(len(out) == BATCH for out in outs)


@pytest.mark.torch
@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
def test_inputs_take_both_sides(fixture: Fixture) -> None:
    """A side that no sample takes is not compared by anything."""
    pytest.importorskip("torch")
    from tests.execution import one_sided_tests

    dims = fixture.constants["IN_DIMS"]
    assert one_sided_tests(fixture.source.text, fixture.constants["ENTRY"], run(fixture), dims) == []


@pytest.mark.torch
@pytest.mark.parametrize("fixture", with_faults(CONVERTED))
def test_runs_as_the_loop(fixture: Fixture) -> None:
    pytest.importorskip("torch")
    from tests.execution import compare, load

    original, converted = load(fixture.source.text, "fixture_before"), load(fixture.convert().text, "fixture_after")
    entry = fixture.constants["ENTRY"]
    for inputs in run(fixture):
        found = compare(
            getattr(original, entry),
            getattr(converted, entry),
            inputs,
            fixture.constants["IN_DIMS"],
            gradients=fixture.constants.get("GRAD", True),
            second_order=True,
            forward_mode=True,
            per_sample=fixture.constants.get("PER_SAMPLE", True),
        )
        assert found == []


@pytest.mark.torch
@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
def test_original_needs_it(fixture: Fixture) -> None:
    """Plain vmap refuses the original, or answers otherwise than the loop: else the fixture shows nothing."""
    pytest.importorskip("torch")
    from tests.execution import compare, load

    original = load(fixture.source.text, "fixture_before")
    fn = getattr(original, fixture.constants["ENTRY"])
    try:
        found = compare(fn, fn, original.make_inputs(0, BATCH), fixture.constants["IN_DIMS"], gradients=False)
    except Exception:
        return
    assert found, "plain vmap already runs it rightly"


WRONG = {
    "value": ("x * y", "x * y + 1e-6", "output 0"),
    "dtype": ("x * y", "(x * y).float().double().float()", "torch.float32"),
    "shape": ("x * y", "(x * y).reshape(1)", "shape"),
    "argument": ("x.mul_(y)", "x * y", "batched argument 0"),
    "gradient": ("x * y", "x * y.detach()", "derivative 1"),
    "NaN gradient": ("torch.sqrt(x) if x > 0 else 0 * x", "torch.where(x > 0, torch.sqrt(x), 0 * x)", "derivative 1"),
    "second derivative": ("x**3", "3 * (x * x).detach() * x - 2 * (x**3).detach()", "derivative 2"),
    "NaN on the way": (
        "torch.sqrt(x) if x > 0 else 0 * x",
        "torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, x.detach())), 0 * x)",
        "NaN on the way",
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("what", WRONG)
def test_compare_finds(what: str) -> None:
    """The comparison that all fixtures rest on sees each kind of difference, and none where there is none."""
    torch = pytest.importorskip("torch")
    from tests.execution import compare, load

    right, wrong, expected = WRONG[what]
    head = "import torch\ndef f(x, y): return "
    original, converted = load(head + right, "right").f, load(head + wrong, "wrong").f
    inputs = (torch.linspace(-1, 1, 5, dtype=torch.float64), torch.linspace(1, 2, 5, dtype=torch.float64))
    found = compare(original, converted, inputs, (0, 0), second_order=True)
    assert any(expected in line for line in found), found
    if " if " not in right:
        assert compare(original, original, inputs, (0, 0), second_order=True, forward_mode=True, per_sample=True) == []


@pytest.mark.torch
def test_compare_finds_wrong_transforms() -> None:
    """A function that is wrong under one transform only: in forward mode, and under grad inside of vmap."""
    torch = pytest.importorskip("torch")
    from tests.execution import compare

    rules: dict[str, Any] = {
        "generate_vmap_rule": True,
        "forward": staticmethod(lambda x: 2 * x),
        "setup_context": staticmethod(lambda ctx, inputs, output: None),
        "backward": staticmethod(lambda ctx, slope: 2 * slope),
        "jvp": staticmethod(lambda ctx, tangent: 3 * tangent),
    }
    twice: Any = type("Twice", (torch.autograd.Function,), rules)

    def nested(x: Any) -> Any:
        wrapped = torch._C._functorch.is_gradtrackingtensor(x) or torch._C._functorch.maybe_get_level(x) > 1
        return x.detach() * 2 if wrapped else 2 * x

    inputs = (torch.linspace(-1, 1, 5, dtype=torch.float64),)
    found = compare(lambda x: 2 * x, twice.apply, inputs, (0,), forward_mode=True)
    assert [line.split(":")[0] for line in found] == ["jvp of output 0"]
    found = compare(lambda x: 2 * x, nested, inputs, (0,), per_sample=True)
    assert [line.split(":")[0] for line in found] == ["vmap(grad) by argument 0"]


@pytest.mark.torch
def test_one_sided_tests_are_found() -> None:
    torch = pytest.importorskip("torch")
    from tests.execution import one_sided_tests

    text = "def f(x):\n    if x > 0 and not x > 5:\n        return x\n    return -x if x < 3 else x\n"
    assert one_sided_tests(text, "f", [(torch.tensor([-1.0, 2.0]),)], (0,)) == ["2:22 always False", "4:18 always True"]
    assert one_sided_tests(text, "f", [(torch.tensor([-1.0, 2.0, 9.0]),)], (0,)) == []


def case_sources() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.py")):
        text = path.read_text()
        known = constants(text)
        vmapped = f"{text}\n\nBATCHED = torch.func.vmap({known['ENTRY']}, in_dims={known['IN_DIMS']!r})\n"
        found.append(pytest.param(Source(path.name, vmapped), id=path.stem))
    return found


@pytest.mark.parametrize("source", case_sources())
def test_real_world_shapes(source: Source) -> None:
    """Text outside the functions is kept, and a second conversion changes nothing."""
    result = convert(source)
    if result.refusals:
        assert result.text == source.text
        return
    assert outside_functions(source.text) == outside_functions(result.text)
    ast.parse(result.text)
    assert convert(Source(source.path, result.text)).text == result.text
