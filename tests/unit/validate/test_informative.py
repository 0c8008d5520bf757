"""What calls say nothing of: constants, empty outputs, and arrays that no input changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aotpipe.runtime.goldens import Golden
from aotpipe.validate.informative import described, uninformative


def _goldens(*outputs: Any, allowed: tuple[float, float] = (0.0, 0.0), unsure: Any = None) -> list[Golden]:
    return [
        Golden(
            entry_point="forward",
            case=f"seed {number}",
            reset=True,
            inputs={"x": np.array([number])},
            outputs={"y": np.asarray(output)},
            allowed={"y": allowed},
            unsure={} if unsure is None else {"y": np.asarray(unsure)},
        )
        for number, output in enumerate(outputs)
    ]


def _why(*outputs: Any, **options: Any) -> str:
    return uninformative(_goldens(*outputs, **options)).get(("forward", "y"), "")


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        (([0.0, 0.0], [0.0, -0.0]), "is 0.0 in every call"),
        (([False], [False, False]), "is False in every call"),
        ((3, 3), "is 3 in every call"),
        (([np.nan], [np.nan]), "is nan in every call"),
        (([np.inf], [np.inf]), "is inf in every call"),
        (([1 + 2j], [1 + 2j]), "is (1+2j) in every call"),
        (([], []), "is empty in every call"),
        (([], [7, 7]), "is 7 in every call"),
        (([1, 2], [1, 2]), "is the same in every call, whatever the inputs are"),
        ((np.ones(2, ml_dtypes.bfloat16), np.ones(1, ml_dtypes.bfloat16)), "is 1.0 in every call"),
    ],
)
def test_what_a_constant_would_pass_says_nothing(outputs: tuple[Any, ...], why: str) -> None:
    assert _why(*outputs) == why


@pytest.mark.parametrize(
    "outputs",
    [
        ([0.0], [1.0]),
        ([True, False], [True, False], [True, True]),
        ([0.0, 0.0], [0.0, np.nan]),
        ([np.inf], [-np.inf]),
        ([], [1, 2]),
        ([1, 2], [1, 2, 3]),
        ([1, 2],),
        (2**53, 2**53 + 1),
    ],
)
def test_what_varies_says_something(outputs: tuple[Any, ...]) -> None:
    assert _why(*outputs) == ""


def test_a_constant_is_one_within_the_tolerance() -> None:
    assert _why([1.0, 1.0 + 1e-7], [1.0], allowed=(1e-6, 0.0)) == "is 1.0 in every call"
    assert _why([1.0, 1.0 + 1e-5], [1.0], allowed=(1e-6, 0.0)) == ""


def test_what_is_not_compared_does_not_count() -> None:
    assert _why([0, 5], [0, 9], unsure=[False, True]) == "is 0 in every call"
    assert (
        _why([4, 5], [8, 9], unsure=[True, True]) == "is in every call what eager disagrees with itself about"
    )


def test_one_array_from_calls_that_are_alike_says_something() -> None:
    one, other = _goldens([1, 2], [1, 2])
    assert uninformative([one, one]) == {}
    assert uninformative([one, other]) != {}


def test_outputs_are_named_and_of_many_the_first() -> None:
    reasons = {("forward", f"y.{number}"): "is 0 in every call" for number in range(6)}
    said = described(reasons)
    assert said.startswith("`y.0` of forward is 0 in every call; `y.1` of forward")
    assert said.endswith("`y.3` of forward is 0 in every call; and 2 more")
    assert described({}) == "it gives nothing that could be compared"
