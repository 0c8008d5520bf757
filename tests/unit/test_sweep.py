"""Which cases of a sweep the quick run takes."""

from __future__ import annotations

import pytest

from tests.sweep import examples, sweep


def quick(cases: list[object]) -> list[object]:
    return [case for case in cases if not isinstance(case, type(pytest.param())) or not case.marks]


def test_the_first_and_the_last_are_taken_and_no_case_is_lost() -> None:
    cases = sweep(range(10), quick=4)
    assert quick(cases) == [0, 3, 6, 9]
    assert len(cases) == 10
    assert all(case.marks == (pytest.mark.slow,) for case in cases if case not in [0, 3, 6, 9])


def test_all_are_taken_where_they_are_few_and_the_first_where_one_is() -> None:
    assert sweep("ab", quick=5) == ["a", "b"]
    assert quick(sweep("abc", quick=1)) == ["a"]


def test_a_case_may_always_be_taken() -> None:
    named = pytest.param("d", id="by id")
    assert quick(sweep(["a", "b", "c", named, "e"], quick=2, always=["c", "by id"])) == ["a", "c", named, "e"]


def test_a_case_that_is_always_taken_must_be_there() -> None:
    with pytest.raises(AssertionError, match=r"no case is \['misspelt'\]"):
        sweep(["a", "b"], quick=0, always=["a", "misspelt"])


def test_each_profile_takes_its_number_of_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for profile, count in (("quick", 4), ("nightly", 20)):
        monkeypatch.setenv("HYPOTHESIS_PROFILE", profile)
        assert examples(quick=4, nightly=20).max_examples == count


def test_arguments_and_marks_are_kept() -> None:
    first, second = sweep([pytest.param(1, 2), pytest.param(3, 4, id="x", marks=pytest.mark.skip)], quick=1)
    assert first.values == (1, 2)
    assert (second.values, second.id) == ((3, 4), "x")
    assert list(second.marks) == [pytest.mark.skip, pytest.mark.slow]
