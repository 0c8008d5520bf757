"""How far a quantized model is from the model in floats."""

from __future__ import annotations

import numpy as np
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Canonical
from aotpipe.model.spec import as_spec
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
