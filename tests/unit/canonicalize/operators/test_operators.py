"""On Python values every operator is Python's own."""

from __future__ import annotations

import operator

import pytest
import torch

from aotpipe.canonicalize.operators import operators as ops


def test_a_function_is_the_one_that_the_user_has():
    assert ops.call(range, 3) == range(3)
    assert ops.call(lambda *bounds, last=0: [*bounds, last], 3, last=4) == [3, 4]


def test_in_place_operators_keep_what_they_write():
    x = torch.zeros(2)
    assert ops.augmented("Add", x, 1) is x
    items = [1]
    assert ops.augmented("Add", items, [2]) is items
    assert ops.augmented("FloorDiv", 7, 2) == 3


@pytest.mark.parametrize(
    "name", ["Add", "Sub", "Mult", "Div", "FloorDiv", "Mod", "Pow", "LShift", "RShift", "BitOr"]
)
def test_augmented_is_the_operator_of_that_name(name: str):
    plain = {"Mult": "mul", "Div": "truediv", "BitOr": "or_"}.get(name, name.lower())
    assert ops.augmented(name, 7, 2) == getattr(operator, plain)(7, 2)


def test_asserts():
    ops.require(1, "x")
    with pytest.raises(AssertionError, match=r"^$"):
        ops.require(0, "x")
    with pytest.raises(AssertionError, match="why"):
        ops.require(0, "x", lambda: "why")
