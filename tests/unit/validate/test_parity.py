"""Judging answers: each kind of difference is a failed case that says where and what."""

from __future__ import annotations

import numpy as np

from aotpipe.runtime.goldens import Golden
from aotpipe.validate.parity import describe, judge


def _golden(**changes: object) -> Golden:
    fields: dict[str, object] = {
        "entry_point": "forward",
        "case": "seed 0",
        "reset": True,
        "inputs": {},
        "outputs": {"y": np.array([1.0, 2.0], np.float32)},
        "allowed": {"y": (0.1, 0.0)},
        "eager_error": {"y": 0.01},
    }
    return Golden(**{**fields, **changes})  # type: ignore[arg-type]


def test_an_answer_within_its_tolerance_passes() -> None:
    parity = judge([(_golden(), {"y": np.array([1.05, 2.0], np.float32)})])
    assert parity.passed
    assert parity.calls == 1
    (case,) = parity.cases
    assert 0.4 < case.ratio < 0.6
    assert case.eager_abs_error == 0.01


def test_the_worst_element_is_described_with_both_values() -> None:
    parity = judge([(_golden(), {"y": np.array([1.0, 2.5], np.float32)})])
    assert not parity.passed
    assert parity.worst is not None
    text = describe(parity.worst)
    assert "`y` of forward (seed 0) at [1]" in text
    assert "is 2.5, eager gives 2;" in text
    assert "5 times the allowed error" in text


def test_a_missing_an_extra_and_a_misshapen_output_fail() -> None:
    good = {"y": np.array([1.0, 2.0], np.float32)}
    for answer, words in (
        ({}, "does not give it"),
        ({**good, "z": good["y"]}, "eager does not give it"),
        ({"y": good["y"][:1]}, "shape is (1,), not (2,)"),
        ({"y": good["y"].astype(np.float64)}, "dtype is float64, not float32"),
        ({"y": good["y"] * np.nan}, "is nan"),
    ):
        parity = judge([(_golden(), answer)])
        assert not parity.passed
        assert parity.worst is not None
        assert words in describe(parity.worst)


def test_unsure_elements_are_counted_in_a_note() -> None:
    golden = _golden(
        outputs={"y": np.array([3, 4])}, allowed={}, unsure={"y": np.array([False, True])}, eager_error={}
    )
    (case,) = judge([(golden, {"y": np.array([3, 9])})]).cases
    assert case.passed
    assert case.note.startswith("1 elements")
    (case,) = judge([(golden, {"y": np.array([2, 4])})]).cases
    assert not case.passed


def test_the_rule_is_in_words() -> None:
    assert "8 times eager's own error" in judge(()).rule
    assert "3 times eager's own error" in judge((), multiple=3).rule
