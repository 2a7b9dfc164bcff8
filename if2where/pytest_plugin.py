"""The pytest fixture ``assert_vmap_equivalent``, there wherever the package is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def assert_vmap_equivalent() -> Callable[..., Any]:
    """``if2where.testing.assert_vmap_equivalent``, without an import of it."""
    from if2where import testing

    return testing.assert_vmap_equivalent
