"""The speculation table: it has every public torch operation, and none is milder than it is measured."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pytest

from if2where.ops import table

if TYPE_CHECKING:
    from if2where.ops.probe import Measurement

CLASSES = ("total", "product", "partial", "faulting", "effect")

#: Listed more mildly than measured.
MILDER = {
    "torch.div": "raises only for integers with a rounding mode; what else it does needs the guard of a partial one",
    "torch.native_batch_norm": "a running variance below zero",
    "functional.batch_norm": "a running variance below zero",
}

#: The safe values do not make every call of torch's own data harmless.
NOT_SAFE = {
    "torch.index_reduce": "the second derivative of a product over an index raises, or overflows, near zero",
    "torch.scatter_reduce": "the second derivative of a product over an index raises, or overflows, near zero",
    "torch.histogram": "a density over bins that hold no point",
    "torch.histogramdd": "a density over a range that holds no point",
    "torch.repeat_interleave": "torch's data gives the size of the result, which the safe counts do not add up to",
    "linalg.tensorinv": "the matrix is the operand reshaped: no safe value is written for it",
    "linalg.tensorsolve": "the matrix is the operand reshaped: no safe value is written for it",
}


def test_classes() -> None:
    rows = [*table._OPERATIONS.items(), *((n, row) for (_, n), row in table._IN_NAMESPACE.items())]
    assert len(rows) > 900
    for name, row in rows:
        assert row.speculation in CLASSES, name
        assert row.why, name
        assert bool(row.operands) == (row.speculation in ("partial", "faulting")), name


def test_unlisted() -> None:
    assert table.lookup("no_such_operation") is None
    assert table.lookup("no_such_operation_") is None
    assert table.lookup("__add__") is None
    assert table.lookup("sqrt__") is None


def test_in_place() -> None:
    twin, row = table.lookup("sqrt"), table.lookup("sqrt_")
    assert twin is not None
    assert row is not None
    assert (row.speculation, row.operands, row.in_place) == ("partial", twin.operands, True)
    assert not twin.in_place


@pytest.mark.parametrize(
    ("name", "namespace", "position", "keyword"),
    [
        ("polygamma", None, 1, "input"),
        ("polygamma", "Tensor", 0, "input"),
        ("polygamma", "torch.special", 1, "input"),
        ("embedding", "torch.nn.functional", 0, "input"),
        ("embedding", "torch", 1, "indices"),
        ("lu_solve", "torch", 1, "LU_data"),
        ("lu_solve", "torch.linalg", 0, "LU"),
        ("svd", "torch", 0, "input"),
        ("svd", "torch.linalg", 0, "A"),
        ("take", None, 1, "index"),
    ],
)
def test_operand(name: str, namespace: str | None, position: int, keyword: str) -> None:
    row = table.lookup(name, namespace)
    assert row is not None
    assert (row.operands[0].position, row.operands[0].keyword) == (position, keyword)


def test_names_that_mean_two_things() -> None:
    by_namespace = {n: table.lookup("cond", n) for n in (None, "torch", "torch.linalg")}
    assert {n: row and row.speculation for n, row in by_namespace.items()} == {
        None: "partial",
        "torch": "effect",
        "torch.linalg": "partial",
    }


def test_power() -> None:
    assert table.power(2).speculation == table.power(0).speculation == table.power(3.0).speculation == "product"
    assert table.power(-1).speculation == table.power(0.5).speculation == table.power(None).speculation == "partial"


def public() -> list[tuple[str, str]]:
    """Each public function or method of torch, with its namespace."""
    import torch
    import torch.nn.functional as functional

    spaces: dict[str, Any] = {
        "torch": torch,
        "Tensor": torch.Tensor,
        "functional": functional,
        "special": torch.special,
        "linalg": torch.linalg,
        "fft": torch.fft,
    }
    found: list[tuple[str, str]] = []
    for space, owner in spaces.items():
        for name in sorted({*dir(owner), *getattr(owner, "__all__", ())}):
            value = getattr(owner, name, None)
            if not name.startswith("_") and callable(value) and not isinstance(value, type | types.ModuleType):
                found.append((space, name))
    return found


@pytest.mark.torch
def test_every_public_operation_is_classified() -> None:
    pytest.importorskip("torch")
    names = public()
    assert len(names) > 1400
    assert [f"{s}.{n}" for s, n in names if table.lookup(n, s) is None or table.lookup(n) is None] == []


@pytest.mark.torch
def test_operands_are_named_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    compared, wrong = 0, []
    for space, prefix in (("torch", ""), ("special", "special_"), ("linalg", "linalg_")):
        for name in dir(torch if space == "torch" else getattr(torch, space)):
            row = table.lookup(name, space)
            schemas = torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}")
            if row is None or row.in_place or not schemas:
                continue
            calls = [["input" if a.name == "self" else a.name for a in s.arguments] for s in schemas]
            for operand in row.operands:
                compared += 1
                named = [c.index(operand.keyword) for c in calls if operand.keyword in c]
                if not named or operand.position not in (table.KEYWORD_ONLY, *named):
                    wrong.append((space, name, operand, calls[0]))
    assert compared > 170
    assert wrong == []


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str], Measurement]:
    """Each operation of torch's test data at the edges (half a minute)."""
    pytest.importorskip("torch")
    pytest.importorskip("expecttest", reason="torch's test data imports it")
    from if2where.ops.probe import measure_all

    return measure_all()


@pytest.mark.torch
def test_enough_is_measured(measured: dict[tuple[str, str], Measurement]) -> None:
    assert len(measured) > 500
    assert sum(m.evaluations > 10 for m in measured.values()) > 450
    assert sum(m.differentiable for m in measured.values()) > 300


@pytest.mark.torch
@pytest.mark.parametrize(
    ("place", "speculation"),
    [
        (("torch", "add"), "total"),
        (("torch", "sum"), "total"),
        (("torch", "sigmoid"), "total"),
        (("torch", "tanh"), "total"),
        (("torch", "mul"), "product"),
        (("torch", "matmul"), "product"),
        (("torch", "softmax"), "product"),
        (("torch", "sqrt"), "partial"),
        (("torch", "atan2"), "partial"),
        (("torch", "exp"), "partial"),
        (("linalg", "vector_norm"), "partial"),
        (("linalg", "eigh"), "partial"),
        (("linalg", "inv"), "faulting"),
        (("torch", "gather"), "faulting"),
        (("torch", "remainder"), "faulting"),
        (("Tensor", "uniform_"), "effect"),
    ],
)
def test_the_probe_sees(measured: dict[tuple[str, str], Measurement], place: tuple[str, str], speculation: str) -> None:
    from if2where.ops.probe import classify

    assert classify(measured[place]) == speculation


@pytest.mark.torch
def test_none_is_milder_than_measured(measured: dict[tuple[str, str], Measurement]) -> None:
    from if2where.ops.probe import ORDER, classify

    milder = {}
    for (namespace, name), seen in measured.items():
        row, found = table.lookup(name, namespace), classify(seen)
        assert row is not None, seen.called
        if row.speculation == "effect":
            continue
        if found == "effect" or ORDER.index(row.speculation) < ORDER.index(found):
            milder[seen.called] = f"{row.speculation}, measured {found}: {seen}"
    assert {k: v for k, v in milder.items() if k not in MILDER} == {}
    assert set(milder) == set(MILDER)


@pytest.mark.torch
def test_safe_values_are_safe(measured: dict[tuple[str, str], Measurement]) -> None:
    from if2where.ops.probe import classify, measure_safe

    tried, harmful = 0, {}
    for namespace, name in measured:
        row = table.lookup(name, namespace)
        if row is None or not row.operands:
            continue
        tried += 1
        seen = measure_safe((namespace, name), row)
        if classify(seen) not in ("total", "product") or not seen.evaluations:
            harmful[seen.called] = seen
    assert tried > 150
    assert {k: v for k, v in harmful.items() if k not in NOT_SAFE} == {}
    assert set(harmful) == set(NOT_SAFE)
