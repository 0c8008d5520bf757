"""Functions of each element, at the ends of their domains, by both backends."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.passes.decompositions import pointwise
from tests.programs import on_xla, through

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
