"""Factorizations equal eager's on torch's own samples, of known and of dynamic sizes."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op
from tests.unit.passes.legal import Runner, legal, model

OPS = [
    "cholesky_inverse",
    "cholesky_solve",
    "geqrf",
    "linalg_cholesky_ex",
    "linalg_det",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_qr",
    "linalg_slogdet",
    "linalg_solve_ex",
    "linalg_solve_triangular",
    "lu_unpack",
    "ormqr",
    "triangular_solve",
]
QUICK = ["linalg_cholesky_ex", "linalg_qr", "linalg_solve_ex"]


@pytest.mark.parametrize("op", sweep(OPS, quick=0, always=QUICK))
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32")


def test_dynamic_sizes_and_a_matrix_that_has_no_factor() -> None:
    def forward(self, a, b):
        return torch.cholesky_solve(b, torch.linalg.cholesky(a)), torch.linalg.solve(a, b)

    def inputs(batch, n):
        x = torch.randn(batch, n, n, generator=torch.Generator().manual_seed(n))
        return [x @ x.mT + torch.eye(n), x[..., :2]]

    batch, n = Dim("batch", min=1, max=8), Dim("n", min=2, max=16)
    runner = Runner(
        legal(model(forward), inputs(3, 6), dynamic_shapes=({0: batch, 1: n, 2: n}, {0: batch, 1: n}))
    )
    for a, b in (inputs(3, 6), inputs(2, 9)):
        for found, wanted in zip(runner([a, b]).values(), forward(None, a, b), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
        assert all(runner.asserts.values())
    a[1, 3] = 0
    runner([a, b])
    failed = [text.split(" (")[0] for text, holds in runner.asserts.items() if not holds]
    assert "linalg.cholesky: a matrix is not positive definite" in failed


def test_a_factorization_stops_where_it_fails() -> None:
    a = torch.diag(torch.tensor([4.0, 1.0, -1.0, 9.0, 1.0, 1.0]))
    runner = Runner(legal(model(lambda self, a: torch.linalg.cholesky_ex(a)), [a]))
    factor, info = runner([a]).values()
    assert info == 3
    torch.testing.assert_close(factor.diagonal()[:3], torch.tensor([2.0, 1.0, -1.0]))
