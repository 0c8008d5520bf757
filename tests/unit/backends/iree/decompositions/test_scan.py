"""Sorts and scans as the compiler takes them: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "topk", "argsort", "msort"]


# Of each kind one: the others are these with another function, or what sorts with another result.
QUICK = ["cumsum", "cummax", "logcumsumexp", "topk"]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", sweep(OPS, quick=0, always=QUICK))
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=QUICK if op in QUICK else OPS)


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cumprod(0), x[0].cumprod(-1), torch.linalg.vander(x[:, 0])


def test_program_of_integers() -> None:
    check(Products(), (torch.randint(-4, 5, (5, 6)),))
