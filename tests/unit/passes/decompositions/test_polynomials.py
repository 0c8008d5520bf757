"""Orthogonal polynomials beside eager's: any degree, at the ends of the interval and at what is no number."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.passes.decompositions.polynomials import DECOMPOSITIONS
from tests.unit.passes.legal import check, model, targets

DEGREES = [-3.0, 0.0, 1.0, 2.0, 2.7, 4.0, 5.0, 7.0, 9.0, 20.0, 130.0, math.inf, math.nan]
ODD = [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("op", [op for op in DECOMPOSITIONS if op._overloadname == "default"], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_eager(op, dtype):
    x = torch.cat([torch.linspace(-3, 3, 61, dtype=dtype), torch.tensor(ODD, dtype=dtype)]).unsqueeze(1)
    n = torch.tensor([DEGREES], dtype=dtype)
    rtol = 1e-4 if dtype == torch.float32 else 1e-7
    torch.testing.assert_close(DECOMPOSITIONS[op](x, n), op(x, n), rtol=rtol, atol=rtol / 10, equal_nan=True)


def test_takes_numbers_integers_and_nothing():
    def forward(model, x, n, none):
        special = torch.special
        return (
            special.hermite_polynomial_h(x, 3),
            special.legendre_polynomial_p(0.3, n),
            special.laguerre_polynomial_l(none, n[:1]),
            special.chebyshev_polynomial_t(n, n),
        )

    inputs = (torch.tensor([-0.5, 2.0]), torch.tensor([1, 0, 5]), torch.zeros(0))
    found = check(model(forward), inputs, (inputs[0] * 2, inputs[1] + 7, inputs[2]))
    assert not {name for name in targets(found) if "polynomial" in name}
