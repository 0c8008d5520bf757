"""Covariances and correlations in a program: weights, corrections, one row, one value, complex numbers."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.correlation import corrcoef, cov
from tests.unit.passes.legal import Runner, check, legal, model

ROWS = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
COUNTS = torch.tensor([1, 0, 2, 1, 3, 1])
SHARES = torch.tensor([0.5, 1.0, 0.0, 2.0, 0.25, 1.0])
OPERANDS = [
    ROWS,
    ROWS[0],
    ROWS[:1],
    ROWS[0, 0],
    ROWS[:, :1],
    ROWS.to(torch.complex64) * 1j,
    COUNTS.reshape(2, 3),
]


@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.parametrize("x", OPERANDS, ids=lambda x: f"{x.dtype}{list(x.shape)}")
def test_equals_eager(x):
    torch.testing.assert_close(cov(x), torch.cov(x), equal_nan=True)
    torch.testing.assert_close(corrcoef(x), torch.corrcoef(x), equal_nan=True)


@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.parametrize("correction", [0, 1, 2, 99])
def test_weights_equal_eager(correction):
    for weights in ({"fweights": COUNTS}, {"aweights": SHARES}, {"fweights": COUNTS, "aweights": SHARES}):
        wanted = torch.cov(ROWS, correction=correction, **weights)
        torch.testing.assert_close(cov(ROWS, correction=correction, **weights), wanted, equal_nan=True)


def test_a_program_asserts_what_eager_refuses():
    def forward(model, x, counts):
        return torch.cov(x, fweights=counts), torch.corrcoef(x)

    rows = torch.export.Dim("rows", min=2, max=9)
    made = model(forward)
    options = {"dynamic_shapes": {"x": {0: rows}, "counts": None}}
    check(made, (ROWS, COUNTS), (ROWS[:2] * 2, COUNTS + 1), **options)
    run = Runner(legal(made, (ROWS, COUNTS), **options))
    for bad in (COUNTS - 1, COUNTS * 0):
        run((ROWS, bad))
        assert not all(run.asserts.values())
