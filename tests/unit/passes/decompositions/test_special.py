"""zeta, ndtri and Ai beside eager's: at the borders of the ranges, at poles and at what is no number."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.passes.decompositions.special import airy_ai, ndtri, zeta
from tests.unit.passes.legal import check, model, targets

ODD = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, 2.09, -2.09, 103.9, 1e10, 0.1353, 0.8647]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def near(found, wanted):
    rtol = 2e-5 if wanted.dtype == torch.float32 else 1e-11
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol / 4, equal_nan=True)


@DTYPES
def test_quantiles_equal_eager(dtype):
    small = torch.logspace(-300 if dtype == torch.float64 else -37, 0, 200, dtype=dtype)
    y = torch.cat([torch.linspace(0, 1, 1001, dtype=dtype), small, torch.tensor(ODD, dtype=dtype)])
    near(ndtri(y), torch.special.ndtri(y))


@DTYPES
def test_airy_equals_eager(dtype):
    x = torch.cat([torch.linspace(-20, 12, 1601, dtype=dtype), torch.tensor(ODD, dtype=dtype)])
    near(airy_ai(x), torch.special.airy_ai(x))


@DTYPES
def test_zeta_equals_eager(dtype):
    # Around a base of -5.5 the large terms cancel.
    odd = [1.0001, 3.3, 40.0, 200.0, 1000.0, 1e-3, -40.5, -41.0, math.inf, -0.0, math.nan]
    values = torch.cat([torch.linspace(-12, 12, 49, dtype=dtype), torch.tensor(odd, dtype=dtype)])
    x, q = torch.meshgrid(values, values, indexing="ij")
    found, wanted = zeta(x, q), torch.special.zeta(x, q)
    near(found, wanted)
    assert found.dtype == wanted.dtype


def test_takes_numbers_integers_and_nothing():
    def forward(model, x, n, none):
        special = torch.special
        return (
            special.zeta(x, 2),
            special.zeta(3.0, n),
            special.zeta(none, n[:1]),
            special.ndtri(n.clamp(max=1)),
            special.ndtri(none),
            special.airy_ai(n),
            special.airy_ai(none),
        )

    inputs = (torch.tensor([1.5, 2.0]), torch.tensor([1, 0, 5]), torch.zeros(0))
    found = check(model(forward), inputs, (inputs[0] * 2, inputs[1] + 7, inputs[2]))
    assert not {name for name in targets(found) if "special" in name}
