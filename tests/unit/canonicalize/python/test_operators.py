"""On Python values every operator is Python's own."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.python import operators as ops

VALUES = st.sampled_from([0, 1, -2, 2.5, "", "a", None, [], [1], (), True, False])


def _fails() -> Any:
    pytest.fail("computed though it is not reached")


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_and_or_give_the_operand_that_decides(values: list[Any]):
    functions = [lambda value=value: value for value in values]
    reached = next((i for i, value in enumerate(values) if not value), len(values) - 1)
    assert ops.and_(*functions[: reached + 1], *[_fails] * (not values[reached])) is values[reached]
    reached = next((i for i, value in enumerate(values) if value), len(values) - 1)
    assert ops.or_(*functions[: reached + 1], *[_fails] * bool(values[reached])) is values[reached]
    assert ops.not_(values[0]) is (not values[0])


@given(st.lists(st.integers(0, 3), min_size=2, max_size=4))
def test_chains_of_comparisons(values: list[int]):
    def less(a: int, b: int) -> bool:
        return a < b

    parts: list[Any] = [lambda: values[0]]
    for value in values[1:]:
        parts += [less, lambda value=value: value]
    assert ops.compare(*parts) == all(a < b for a, b in pairwise(values))


def test_only_the_branch_that_is_taken_is_computed():
    assert ops.choose(1, lambda: "then", _fails) == "then"
    assert ops.choose([], _fails, lambda: "other") == "other"


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


def test_real_tensors_are_python_values_also_while_staging():
    with ops.staging(torch.nn.Linear(1, 1)):
        assert not ops.is_staged(torch.tensor(True))
        assert ops.and_(lambda: torch.tensor(1), lambda: 5) == 5
