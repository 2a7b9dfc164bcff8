"""Every fixture: the text that comes out, and that it runs under vmap as the original runs in a loop."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from if2where.module import Source, decode, encode
from tests.fixture import CASES, Fixture, constants, convert, fixtures, outside_functions

ALL = fixtures()
CONVERTED = [f for f in ALL if f.expect == "convert"]
REFUSED = [f for f in ALL if f.expect == "refuse"]


def ids(items: list[Fixture]) -> list[str]:
    return [f.name for f in items]


def test_there_are_enough() -> None:
    assert len(CONVERTED) >= 60
    assert len(REFUSED) >= 15


def test_each_trap_has_a_fixture() -> None:
    covered = {t for f in ALL for t in f.constants.get("TRAPS", ())}
    # 15 is the second conversion of every fixture; 22 is test_scale; 28 and 31 have none yet.
    assert covered >= {*range(1, 35)} - {15, 22, 28, 31}


@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
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


@pytest.mark.parametrize("fixture", REFUSED, ids=ids(REFUSED))
def test_refusals(fixture: Fixture) -> None:
    result = fixture.convert()
    assert result.text == fixture.source.text
    found = [f"{d.line}:{d.col} {d.code.name}" for d in result.refusals]
    assert found == (fixture.folder / "refusals.txt").read_text().split("\n")[:-1]


@pytest.mark.parametrize("name", [f.name for f in ALL if f.expect == "untouched"])
def test_untouched(name: str) -> None:
    result = Fixture(name).convert()
    assert result.text == Fixture(name).source.text
    assert result.refusals == ()


@pytest.mark.torch
@pytest.mark.parametrize("fixture", CONVERTED, ids=ids(CONVERTED))
def test_runs_as_the_loop(fixture: Fixture) -> None:
    pytest.importorskip("torch")
    from tests.execution import compare, load

    original, converted = load(fixture.source.text, "fixture_before"), load(fixture.convert().text, "fixture_after")
    entry = fixture.constants["ENTRY"]
    for seed in (0, 1):
        found = compare(
            getattr(original, entry),
            getattr(converted, entry),
            original.make_inputs(seed, 16),
            fixture.constants["IN_DIMS"],
            gradients=fixture.constants.get("GRAD", True),
            second_order=True,
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
        found = compare(fn, fn, original.make_inputs(0, 16), fixture.constants["IN_DIMS"], gradients=False)
    except Exception:
        return
    assert found, "plain vmap already runs it rightly"


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
