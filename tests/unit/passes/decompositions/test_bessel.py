"""Bessel functions beside eager's, at 0, at the borders of the ranges and at what is no number."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.passes.decompositions.bessel import DECOMPOSITIONS
from tests.unit.passes.legal import check, model, targets

ODD = [0.0, -0.0, 1e-7, 2.0, 5.0, 8.0, -8.0, 100.0, 1000.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("op", DECOMPOSITIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_eager(op, dtype):
    x = torch.cat([torch.linspace(-40, 40, 801, dtype=dtype), torch.tensor(ODD, dtype=dtype)])
    rtol = 1e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(DECOMPOSITIONS[op](x), op(x), rtol=rtol, atol=rtol / 10, equal_nan=True)


def test_takes_integers_and_nothing():
    def forward(model, x, counts, none):
        return (
            torch.special.bessel_j1(x),
            torch.special.modified_bessel_k0(counts),
            torch.special.bessel_y0(none),
        )

    inputs = (torch.tensor(3.0), torch.tensor([1, 2, 30]), torch.zeros(0))
    assert not {name for name in targets(check(model(forward), inputs)) if "bessel" in name}
