"""Tests of the build count what its store spares, so that each has a store of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache() -> None:
    """Gives every test of this folder a store of its own."""
