"""`and`, `or`, `not` and their kin on Python's values: the answers and what is computed are Python's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.python import logic as ops

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
