"""Functions of each element, at the ends of their domains, by both backends."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.backends import Ruleset, legalization
from aotpipe.passes.decompositions import pointwise
from tests.programs import on_xla, through
from tests.unit.backends.iree.decompositions.agree import check_op
from tests.unit.passes import legal

ENDS = torch.tensor([0.0, -0.0, 0.5, -0.5, 0.49999997, 1e-30, 1e30, math.inf, -math.inf, math.nan])
WIDE = torch.cat([torch.linspace(-30, 30, 4001), torch.logspace(-8, 6, 400), ENDS])


class SphericalBessel(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.spherical_bessel_j0(x)


def test_spherical_bessel_j0_is_close_to_float64() -> None:
    got = pointwise.spherical_bessel_j0(WIDE).double()
    want = torch.special.spherical_bessel_j0(WIDE.double())
    torch.testing.assert_close(got, want, equal_nan=True, rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    "x", [torch.arange(-3, 4), torch.tensor(0.25), torch.zeros(0)], ids=["int", "0d", "empty"]
)
def test_spherical_bessel_j0_has_eagers_dtype_and_shape(x: torch.Tensor) -> None:
    torch.testing.assert_close(pointwise.spherical_bessel_j0(x), torch.special.spherical_bessel_j0(x))


@pytest.mark.parametrize("backend", [through, on_xla], ids=["iree", "xla"])
def test_spherical_bessel_j0_builds(backend: object) -> None:
    backend.check(SphericalBessel(), (WIDE,))


class Parts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        powers = torch.ldexp(x, torch.arange(x.numel()) * 7 % 320 - 160)
        return *torch.frexp(x), *torch.frexp(x[3]), torch.where(powers.abs() < 1e-37, 0.0, powers)


@pytest.mark.parametrize("backend", [through, on_xla], ids=["iree", "xla"])
def test_frexp_builds(backend: object) -> None:
    backend.check(Parts(), (WIDE,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_frexp_is_exact(dtype: torch.dtype) -> None:
    subnormal = torch.tensor([1e-40, -3e-42, 1e-310, 6e-8, 6.1e-5], dtype=torch.float64)
    x = torch.cat([WIDE.double(), subnormal]).to(dtype)
    torch.testing.assert_close(pointwise.frexp(x), tuple(torch.frexp(x)), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_ldexp_is_exact(dtype: torch.dtype) -> None:
    # A power of 2 may overflow where the product does not.
    exponents = torch.tensor([0, 1, -1, 7, -24, 100, -100, 200, -300, 1100, 2**40, 2**32 + 1, -(2**31)])
    x = WIDE.to(dtype).reshape(-1, 1)
    for counts in (exponents, exponents.to(torch.int32), exponents[:5].to(torch.int8)):
        operands = [each.contiguous() for each in torch.broadcast_tensors(x, counts)]
        wanted = torch.ldexp(*operands)
        torch.testing.assert_close(pointwise.ldexp(x, counts), wanted, rtol=0, atol=0, equal_nan=True)
    whole = torch.tensor([3, 2**30 + 1, -5])
    torch.testing.assert_close(pointwise.ldexp(whole, exponents[:3]), torch.ldexp(whole, exponents[:3]))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_polygamma(n: int) -> None:
    arguments = torch.linspace(0.3, 40, 500)
    want = torch.polygamma(n, arguments.double())
    got = pointwise.polygamma(n, arguments).double()
    assert ((got - want).abs() / want.abs()).max() < 1e-5


OPS = ["polar", "float_power", "polygamma_polygamma_n_1"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


BITS = ["__rand__", "__ror__", "__rxor__"]


@pytest.mark.parametrize("op", BITS)
def test_operators_on_bits(op: str) -> None:
    check_op(op, "int64", among=BITS)


@pytest.mark.parametrize("rules", ["torch", "stablehlo"])
def test_every_backend_has_them(rules: Ruleset) -> None:
    assert pointwise.DECOMPOSITIONS.keys() <= legalization(rules).decompositions().keys()


def test_rrelu_draws_nothing_in_eval_mode() -> None:
    legal.check(legal.model(lambda self, x: torch.nn.functional.rrelu(x, 0.1, 0.3)), (WIDE[:4001],))
