"""Elementwise steps as text and as ops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotpipe.backends.iree.kernels import steps
from aotpipe.backends.iree.kernels.steps import Step, Steps
from tests.unit.backends.iree.kernels.running import computed

EACH = Steps(
    (
        Step("add", ("v0", "c0")),
        Step("sigmoid", ("v1",)),
        Step("lt", ("v2", 0.5)),
        Step("where", ("v3", "v1", 2.0)),
        Step("minimum", ("v4", "v0")),
        Step("relu", ("v5",)),
    ),
    channels=1,
)


def test_steps_are_read_as_they_are_written() -> None:
    assert Steps.parse(str(EACH), 1, 0) == EACH


@pytest.mark.parametrize("value", [1, 0.5, -2.0, -3.4028234663852886e38])
def test_a_number_is_an_operand(value: float) -> None:
    assert steps.is_number(value)


@pytest.mark.parametrize("value", [True, 1e39, float("inf"), float("nan"), "v0", None])
def test_others_are_none(value: object) -> None:
    assert not steps.is_number(value)


def test_they_compute_what_torch_does() -> None:
    lines, last = steps.emitted(EACH, {"v0": "%x", "c0": "%y"}, "tensor<5xf32>", "f32", "s")
    body = "\n".join(lines)
    text = f"""
!v = tensor<5xf32>
util.func private @call(%x: !v, %y: !v) -> !v {{
  {body}
  util.return {last} : !v
}}
"""
    x = np.array([-2.0, -0.5, 0.0, 1.0, np.nan], np.float32)
    y = np.array([1.0, 0.25, 0.5, -3.0, 1.0], np.float32)
    total = torch.from_numpy(x + y)
    chosen = torch.where(total.sigmoid() < 0.5, total, 2.0)
    want = torch.minimum(chosen, torch.from_numpy(x)).relu()
    [got] = computed(text, [[x, y]])
    torch.testing.assert_close(torch.from_numpy(got), want, equal_nan=True)
