"""Sine, cosine and tangent of every size of argument, against float64, and in compiled programs."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends.iree.decompositions import trigonometry
from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

SIZES = torch.cat(
    [
        torch.linspace(0, 30, 4001),
        torch.arange(0.0, 9000.0, 3.7),
        torch.logspace(-12, 38, 20001),
        # Next to a multiple of pi / 2, and the largest there is.
        torch.tensor([1.57079637, 16367173 * 2.0**72, 3.4028235e38, 0.5, 0.78, 0.785]),
    ]
)
ARGUMENTS = torch.cat([SIZES, -SIZES])
NAMES = ["sin", "cos", "tan"]


@pytest.mark.parametrize("name", NAMES)
def test_close_to_float64(name: str) -> None:
    got = getattr(trigonometry, name)(ARGUMENTS).double()
    want = getattr(torch, name)(ARGUMENTS.double())
    # A tangent's slope is 1 + tan**2.
    scale = 1 + want * want if name == "tan" else torch.ones_like(want)
    assert ((got - want).abs() / scale).max() < 3e-7


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    got, want = getattr(trigonometry, name)(special), getattr(torch, name)(special)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert torch.equal(torch.signbit(got[:2]), torch.signbit(want[:2]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize("op", NAMES)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=NAMES)


class Waves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), x.cos(), x[0].sin(), torch.sin(torch.full((), 1e6)) + x[:2]


def test_program() -> None:
    x = torch.tensor([1e6, 0.0, 0.3, -0.7, 0.9, 2.0, -4096.5, 3e20, -3.4e38, torch.inf, torch.nan])
    check(Waves(), (x,))
