"""What follows from a condition holds for every number for which the condition does."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.passes.ranges.conditions import is_whole, of_condition
from aotpipe.passes.ranges.intervals import ANY, Interval, Space
from tests.unit.passes.ranges.programs import Program, aten

SPACE = Space(lambda _: (None, None))
RELATIONS = ["lt", "le", "gt", "ge", "eq", "ne"]


def _sides(argument: object) -> Interval:
    return Interval(argument, argument) if isinstance(argument, int | float) else ANY


@given(st.sampled_from(RELATIONS), st.integers(-5, 5), st.integers(-9, 9), st.booleans())
def test_a_comparison_bounds_its_side(relation: str, limit: int, value: int, negated: bool) -> None:
    program = Program()
    x = program.input(())
    condition = program.call(getattr(aten, relation).Scalar, x, limit)
    if negated:
        condition = program.call(aten.logical_not.default, condition)
    truth = getattr(operator, relation)(value, limit) is not negated
    found = of_condition(condition, truth, _sides, SPACE).get(x, ANY)
    assert found.low is None or found.low <= value
    assert found.high is None or value <= found.high


def test_whole_numbers_are_a_step_apart() -> None:
    program = Program()
    x = program.input(())
    less = program.call(aten.lt.Scalar, x, 5)
    assert of_condition(less, True, _sides, SPACE) == {x: Interval(None, 4)}
    assert of_condition(less, False, _sides, SPACE) == {x: Interval(5, None)}


def test_a_float_that_is_not_less_may_be_nan() -> None:
    program = Program()
    x = program.input((), dtype=torch.float32)
    less = program.call(aten.lt.Scalar, x, 5.0)
    assert of_condition(less, True, _sides, SPACE) == {x: Interval(None, 5.0)}
    assert of_condition(less, False, _sides, SPACE) == {}


@pytest.mark.parametrize(("joined", "truth"), [("logical_and", True), ("logical_or", False)])
def test_both_sides_of_a_connective(joined: str, truth: bool) -> None:
    program = Program()
    x = program.input(())
    low, high = program.call(aten.ge.Scalar, x, 2), program.call(aten.le.Scalar, x, 7)
    if not truth:
        low, high = program.call(aten.lt.Scalar, x, 2), program.call(aten.gt.Scalar, x, 7)
    condition = program.call(getattr(aten, joined).default, low, high)
    assert of_condition(condition, truth, _sides, SPACE) == {x: Interval(2, 7)}
    assert of_condition(condition, not truth, _sides, SPACE) == {}


def test_whole_floats() -> None:
    program = Program()
    x = program.input((), dtype=torch.float32)
    assert is_whole(program.call(aten.floor.default, x))
    assert is_whole(program.call(aten._to_copy.default, program.input(()), dtype=torch.float32))
    assert not is_whole(x)
    assert is_whole(2.0)
    assert not is_whole(2.5)
