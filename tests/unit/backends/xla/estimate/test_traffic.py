"""What has to be moved: arguments as far as they are looked at, and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aotpipe.backends.xla.estimate import traffic

TABLE = np.ones((1000, 8), np.float32)
PLACES = np.zeros(4, np.int32)


def least(function: Callable[..., Any], *arguments: Any) -> int:
    module = jax.jit(function, keep_unused=True).lower(*arguments).compiler_ir("stablehlo")
    with module.context:
        return traffic.least(module)


@pytest.mark.parametrize(
    ("function", "elements"),
    [
        (lambda table, places: table + places.sum().astype(np.float32), 8000 + 4 + 8000),
        # The rows that are taken, and no others.
        (lambda table, places: table[places], 4 * 8 + 4 + 4 * 8),
        (lambda table, places: table.astype(np.float16)[:2].astype(np.float32) + places[:1], 16 + 1 + 16),
        (lambda table, places: (table[places], table @ table.T), 8000 + 4 + 4 * 8 + 1000 * 1000),
        # What is not read, and what is read in a function of its own.
        (lambda table, places: places, 4 + 4),
        (lambda table, places: jnp.take(table, places, axis=0, mode="clip"), 4 * 8 + 4 + 4 * 8),
    ],
)
def test_each_element_that_is_looked_at_counts_once(function: Callable[..., Any], elements: int) -> None:
    assert least(function, TABLE, PLACES) == 4 * elements


def test_a_byte_is_the_least_that_is_moved() -> None:
    assert least(lambda flags: flags, np.ones(6, np.bool_)) == 12
