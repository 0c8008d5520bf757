"""How far a quantized model is from the model in floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Canonical
from aotpipe.model.spec import as_spec
from aotpipe.model.torch_arrays import to_numpy
from aotpipe.runtime.goldens import Golden
from aotpipe.validate.accuracy import accuracy


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if x.isnan().any():
            raise ValueError("no number")
        self.total += x
        return self.total.clone(), x.sum()


def _original() -> Canonical:
    return canonicalize(as_spec(Counting().eval(), args=(torch.ones(3),), name="counting"))


def _golden(x: list[float], total: list[float], *, reset: bool = False) -> Golden:
    outputs = {"output.0": np.array(total, np.float32), "output.1": np.array(sum(x), np.float32)}
    return Golden(
        entry_point="forward",
        case="example",
        reset=reset,
        inputs={"x": np.array(x, np.float32)},
        outputs=outputs,
        allowed={},
    )


def _said(*goldens: Golden) -> list[str]:
    return [finding.message for finding in accuracy(_original(), {}, goldens)]


def test_the_same_answers_are_alike():
    names = _original().entries[0].output_names
    assert names == ("output.0", "output.1")
    first, second = _said(_golden([1, 2, 3], [1, 2, 3], reset=True), _golden([3, 0, 0], [4, 2, 3]))
    assert first.startswith("`output.0` beside the model in floats: cosine similarity 1.000000")
    assert first.endswith("relative error 0, the same largest element in 100.0% of 2 rows")
    assert second.endswith("relative error 0")


def test_another_largest_element_is_counted():
    [first, _] = _said(_golden([1, 2, 3], [1, 3, 2], reset=True), _golden([3, 0, 0], [4, 2, 3]))
    assert "the same largest element in 50.0% of 2 rows" in first


def test_what_follows_a_refused_call_is_left_out_up_to_a_reset():
    wrong = [9.0, 0.0, 0.0]
    [first, _] = _said(
        _golden([float("nan"), 0, 0], wrong, reset=True),
        _golden([1, 2, 3], wrong),
        _golden([1, 2, 3], [1, 2, 3], reset=True),
    )
    assert "100.0% of 1 rows" in first


def test_a_model_that_takes_no_call_says_nothing():
    assert _said(_golden([float("nan"), 0, 0], [0, 0, 0], reset=True)) == []


def test_answers_that_are_no_numbers_are_no_agreement():
    nan = float("nan")
    [first, _] = _said(_golden([1, 2, 3], [nan, nan, nan], reset=True))
    assert "3 of 3 elements are not finite alike" in first


def test_a_difference_from_zeros_is_no_agreement():
    [first, _] = _said(_golden([0, 0, 0], [1, 0, 0], reset=True))
    assert "cosine similarity 0.000000, relative error inf" in first


def test_an_output_of_another_shape_is_said_to_be_left_out():
    [first, _] = _said(_golden([1, 2, 3], [1, 2], reset=True))
    assert first.endswith(
        "1 calls could not be compared: that of the model in floats has shape (3,), this one has shape (2,)"
    )
    [first, _] = _said(_golden([1, 2, 3], [1, 2, 3], reset=True), _golden([0, 0, 0], [1, 2]))
    assert "relative error 0," in first
    assert "; 1 calls could not be compared" in first


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_floats_of_every_kind_are_compared(dtype: torch.dtype):
    class Typed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(dtype)

    original = canonicalize(as_spec(Typed().eval(), args=(torch.ones(3),), name="typed"))
    outputs = {"output": to_numpy(torch.ones(3, dtype=dtype) * 2)}
    golden = replace(_golden([1, 1, 1], [1, 1, 1], reset=True), outputs=outputs)
    [finding] = accuracy(original, {}, [golden])
    assert "cosine similarity 1.000000, relative error 1" in finding.message
