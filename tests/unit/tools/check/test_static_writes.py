"""What code says that it writes and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotpipe.tools.check import static_writes


class Box:
    def __init__(self) -> None:
        self.table: dict[str, int] = {}

    def put(self, x: int) -> None:
        self.table["x"] = x
        self.last, other = x, 3
        other += 1


def of(*functions: Callable[..., Any]) -> dict[Any, Any]:
    return {function.__code__: function.__globals__ for function in functions}


def test_attributes_of_self_that_are_written():
    found = list(static_writes.self_writes(of(Box.put)))
    assert [(each.name, each.place.expression) for each in found] == [
        ("table", 'self.table["x"]'),
        ("last", "self.last"),
    ]


def test_draws_of_numpy():
    def call() -> Any:
        return np.random.rand() + np.random.default_rng(3).normal() + np.sin(1.0)

    found = [each.name for each in static_writes.numpy_draws(of(call))]
    assert found == ["np.random.rand", "np.random.default_rng"]
