"""The op whose value is wrong while its operands are right is found, whatever the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.tools.bisect.search import search


@st.composite
def graphs(draw: st.DrawFn) -> dict[int, list[int]]:
    """Up to 60 values, each computed from some before it; the last is the result."""
    count = draw(st.integers(2, 60))
    return {
        value: draw(st.lists(st.integers(0, value - 1), min_size=1, max_size=3, unique=True)) if value else []
        for value in range(count)
    }


def tainted(parents: Mapping[int, Sequence[int]], faults: set[int]) -> set[int]:
    """What is wrong where some values are computed wrong: they, and all that comes of them."""
    found: set[int] = set()
    for value in sorted(parents):
        if value in faults or found & set(parents[value]):
            found.add(value)
    return found


@given(graphs(), st.data(), st.integers(1, 8))
def test_a_faulty_value_is_found_that_no_other_made_wrong(
    parents: dict[int, list[int]], data: st.DataObject, width: int
):
    faults = set(data.draw(st.lists(st.sampled_from(sorted(parents)), min_size=1, max_size=3)))
    wrong = tainted(parents, faults)
    result = max(wrong)
    found = search(
        sorted(parents), parents, result, lambda asked: {each: each in wrong for each in asked}, width=width
    )
    assert found.culprit in faults
    assert not wrong & set(parents[found.culprit])
    assert found.cures == ()


def test_a_chain_takes_few_programs():
    parents = {value: [value - 1] if value else [] for value in range(1000)}
    found = search(range(1000), parents, 999, lambda asked: {each: each >= 417 for each in asked}, width=24)
    assert found.culprit == 417
    assert found.trials <= 5


@pytest.mark.parametrize("fails", [False, True], ids=["right", "no program"])
def test_what_cures_the_fault_or_cannot_be_asked_is_passed_by(fails: bool):
    """A fault of fusing 30 with 31 is seen only where 30 is no result."""
    parents = {value: [value - 1] if value else [] for value in range(60)}

    def trial(asked: Sequence[int]) -> dict[int, bool] | None:
        if 30 in asked:
            return None if fails else dict.fromkeys(asked, False)
        return {each: each >= 31 for each in asked}

    found = search(range(60), parents, 59, trial, width=8)
    assert found.culprit == 31
    assert found.cures == (() if fails else (30,))
