"""`and`, `or`, `not` and their kin on Python's values: the answers and what is computed are Python's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.operators import operators as ops
from tests.unit.canonicalize.trace.agree import check

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


def asked_for_truth_alone(x):
    seen: list[Any] = []
    name = None
    found = 0
    if x.sum() > 0 and seen:
        found += 1
    if not (x.max() > 1 or seen or name):
        found += 2
    while found < 9 and (x.sum() > found or name) and not (seen and x.sum() > 0):
        found += 4
    return found + (1 if seen and x.sum() else 10), x.sum() and 3


def test_where_truth_alone_is_asked_for_operands_may_be_of_any_kind():
    check(asked_for_truth_alone, *((torch.tensor(each),) for each in ([1.0, 0.5], [-1.0, 0.5], [3.0, 9.0])))


def test_only_the_branch_that_is_taken_is_computed():
    assert ops.choose(1, lambda: "then", _fails) == "then"
    assert ops.choose([], _fails, lambda: "other") == "other"
