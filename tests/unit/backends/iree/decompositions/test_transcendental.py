"""Functions against float64, over the arguments that models have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aotpipe.backends.iree.decompositions import transcendental
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op

ARGUMENTS = torch.cat(
    [
        torch.linspace(-30, 30, 4001),
        torch.arange(0.0, 9000.0, 3.7),
        torch.logspace(-12, 0, 500),
        -torch.logspace(-12, 0, 500),
    ]
)


NAMES = ["tanh", "atan", "sinh", "asinh", "atanh", "exp2", "log10"]
CIRCULAR = ["sin", "cos", "tan"]
OPS = [*NAMES, "atan2", "nn_functional_elu", "nn_functional_gelu"]


def ours(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return transcendental.DECOMPOSITIONS[getattr(torch.ops.aten, name).default]


@pytest.mark.parametrize("name", NAMES)
def test_close_to_float64(name: str) -> None:
    got = ours(name)(ARGUMENTS).double()
    want = getattr(torch, name)(ARGUMENTS.double())
    shown = want.abs() < 1e38
    error = ((got - want).abs() / want.abs().clamp(min=1.0))[shown]
    assert error.max() < 6e-7
    if name in ("tanh", "atan", "sinh", "asinh", "atanh"):
        # Relative, however small the argument: no cancellation.
        assert ((got - want).abs() / want.abs().clamp(min=1e-30))[shown].max() < 6e-7
    assert torch.equal(got.isnan(), want.isnan())


@pytest.mark.parametrize("name", [*NAMES, *CIRCULAR])
def test_special_values(name: str) -> None:
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    got, want = ours(name)(special), getattr(torch, name)(special)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert torch.equal(torch.signbit(got[:2]), torch.signbit(want[:2]))


@pytest.mark.parametrize("dtype", sweep(["float32", "float16", "float64", "bfloat16"], quick=2))
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


def test_atan2_in_every_quadrant_and_at_its_edges() -> None:
    edges = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1.0, -1.0, 0.3, -7.0, torch.inf, -torch.inf, torch.nan])
    y, x = torch.meshgrid(edges, edges, indexing="ij")
    got, want = transcendental.atan2(y, x), torch.atan2(y, x)
    torch.testing.assert_close(got, want, rtol=3e-7, atol=0.0, equal_nan=True)
    known = ~want.isnan()
    assert torch.equal(torch.signbit(got[known]), torch.signbit(want[known]))


def test_gelu_of_far_arguments() -> None:
    x = torch.tensor([-1000.0, -20.0, -5.3, 0.0, 5.3, 1000.0])
    want = torch.nn.functional.gelu(x, approximate="tanh")
    assert torch.allclose(transcendental.gelu(x, approximate="tanh"), want, rtol=1e-6, atol=2e-7)


def test_whole_numbers() -> None:
    for name in NAMES:
        op = getattr(torch.ops.aten, name).default
        x = torch.tensor([0, 1])
        torch.testing.assert_close(transcendental.DECOMPOSITIONS[op](x), op(x))


SIZES = torch.cat(
    [
        torch.linspace(0, 30, 4001),
        torch.arange(0.0, 9000.0, 3.7),
        torch.logspace(-12, 38, 20001),
        # Next to a multiple of pi / 2, and the largest there is.
        torch.tensor([1.57079637, 16367173 * 2.0**72, 3.4028235e38, 0.5, 0.78, 0.785]),
    ]
)


@pytest.mark.parametrize("name", CIRCULAR)
def test_arguments_of_every_size(name: str) -> None:
    arguments = torch.cat([SIZES, -SIZES])
    got = ours(name)(arguments).double()
    want = getattr(torch, name)(arguments.double())
    # A tangent's slope is 1 + tan**2.
    scale = 1 + want * want if name == "tan" else torch.ones_like(want)
    assert ((got - want).abs() / scale).max() < 3e-7


@pytest.mark.parametrize("dtype", sweep(["float32", "float16", "bfloat16", "float64", "int64"], quick=2))
@pytest.mark.parametrize("op", CIRCULAR)
def test_circular_functions_equal_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=CIRCULAR)


class Waves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), x.cos(), x[0].sin(), torch.sin(torch.full((), 1e6)) + x[:2]


def test_program_of_waves() -> None:
    x = torch.tensor([1e6, 0.0, 0.3, -0.7, 0.9, 2.0, -4096.5, 3e20, -3.4e38, torch.inf, torch.nan])
    check(Waves(), (x,))
