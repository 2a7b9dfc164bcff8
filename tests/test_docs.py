"""The examples in the documentation are run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.mark.parametrize("name", ["library.md"])
def test_examples(name: str) -> None:
    result = doctest.testfile(str(DOCS / name), module_relative=False, globs={"__name__": "__main__"})
    assert result.attempted > 10
    assert result.failed == 0
