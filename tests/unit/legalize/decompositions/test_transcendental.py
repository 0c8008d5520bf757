"""sin, cos and tanh against float64, over the arguments that models have."""

from __future__ import annotations

import pytest
import torch

from aotpipe.legalize.decompositions import transcendental
from tests.unit.legalize.decompositions.agree import check_op

ARGUMENTS = torch.cat(
    [
        torch.linspace(-30, 30, 4001),
        torch.arange(0.0, 9000.0, 3.7),
        torch.logspace(-12, 0, 500),
        -torch.logspace(-12, 0, 500),
    ]
)


@pytest.mark.parametrize("name", ["sin", "cos", "tanh"])
def test_close_to_float64(name: str) -> None:
    got = getattr(transcendental, name)(ARGUMENTS).double()
    want = getattr(torch, name)(ARGUMENTS.double())
    error = (got - want).abs()
    assert error.max() < 3e-7
    if name == "tanh":
        # Relative, however small the argument: no cancellation.
        assert (error / want.abs().clamp(min=1e-30)).max() < 5e-7


@pytest.mark.parametrize("name", ["sin", "cos", "tanh"])
def test_special_values(name: str) -> None:
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    got, want = getattr(transcendental, name)(special), getattr(torch, name)(special)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert torch.equal(torch.signbit(got[:2]), torch.signbit(want[:2]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("op", ["sin", "cos", "tanh"])
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype)
