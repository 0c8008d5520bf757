"""What every backend's runner does around a call, over a program that is a function of numpy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import (
    AssertionViolated,
    BundleCorrupt,
    InputError,
    InputShape,
    MissingWeight,
    ProgramCrashed,
    RunnerClosed,
)
from aotpipe.runtime.input_checks import Checker
from aotpipe.runtime.runner import BaseRunner, Entry, first_line, require_state

SIGNATURE = Signature(
    inputs=(TensorSpec("x", "float32", (2,)),),
    outputs=(TensorSpec("y", "float32", (2,)),),
    state=(TensorSpec("total", "float32", (2,)),),
)
START = {"total": np.array([1, 2], np.float32)}


class Adder(BaseRunner[Entry]):
    """Adds its inputs up; asserts that they are not negative."""

    def _call(self, entry: Entry, arrays: list[Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        total = self._state["total"] + arrays[0]
        entry.require_results(3)
        entry.require([bool((arrays[0] >= 0).all())])
        self._state["total"] = total
        return {"y": total.copy()}

    def _placed(self, name: str, array: Array) -> Any:
        return array.copy()


def adder(*names: str) -> Adder:
    entries = {
        name: Entry(name, Checker(SIGNATURE), ("x is not negative",)) for name in names or ("forward",)
    }
    return Adder(entries=entries, initial_state=START, device="numpy")


def call(value: float) -> dict[str, Array]:
    return {"x": np.full(2, value, np.float32)}


def test_state_outlives_calls_and_goes_back():
    with adder("first", "second") as runner:
        assert runner.infer(call(1), entry_point="first")["y"].tolist() == [2, 3]
        assert runner.infer(call(1), entry_point="second")["y"].tolist() == [3, 4]
        runner.reset()
        assert runner.infer(call(0), entry_point="first")["y"].tolist() == [1, 2]


def test_what_fails_leaves_the_state():
    runner = adder()
    with pytest.raises(AssertionViolated, match="x is not negative"):
        runner.infer(call(-1))
    with pytest.raises(InputShape):
        runner.infer({"x": np.zeros(3, np.float32)})
    assert runner.infer(call(0))["y"].tolist() == [1, 2]


def test_an_unknown_entry_point_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="no entry point is called 'decod'") as found:
        adder("prefill", "decode").infer(call(1), entry_point="decod")
    assert found.value.hint == "pass entry_point='decode'"
    for name in (3, []):
        with pytest.raises(InputError, match="no entry point is called"):
            adder("only").infer(call(1), entry_point=name)
    with pytest.raises(InputError, match="'forward'"):
        _ = adder("prefill", "decode").signature
    assert adder("only").signature is SIGNATURE


def test_a_closed_runner_refuses_everything():
    runner = adder()
    runner.close()
    for use in (lambda: runner.infer(call(1)), runner.reset, lambda: runner.signature):
        with pytest.raises(RunnerClosed, match="closed"):
            use()


def test_results_that_are_not_the_signatures_are_a_crash():
    entry = Entry("forward", Checker(SIGNATURE), ())
    entry.require_results(2)
    entry.require_results(3, extra=1)
    with pytest.raises(ProgramCrashed, match="gave 3 results in 'forward', its signature has 2"):
        entry.require_results(3)


def test_every_state_has_an_initial_value_that_fits():
    require_state({"forward": SIGNATURE}, START)
    with pytest.raises(MissingWeight, match="'total' is missing"):
        require_state({"forward": SIGNATURE}, {})
    with pytest.raises(BundleCorrupt, match=r"float64\[2\]"):
        require_state({"forward": SIGNATURE}, {"total": np.zeros(2)})
    with pytest.raises(BundleCorrupt, match=r"float32\[3\]"):
        require_state({"forward": SIGNATURE}, {"total": np.zeros(3, np.float32)})


def test_a_failure_in_one_line():
    assert first_line(ValueError("\n  one\ntwo")) == "one"
    assert first_line(ValueError("")) == "ValueError"


def test_a_fork_does_not_wait_for_a_thread_that_it_does_not_have():
    """Another thread of the parent may have held the lock."""
    runner = adder()
    runner._process = -1
    with runner._lock:
        for use in (lambda: runner.infer(call(1)), runner.reset):
            with pytest.raises(ProgramCrashed, match="made before the process forked"):
                use()
        runner.close()
