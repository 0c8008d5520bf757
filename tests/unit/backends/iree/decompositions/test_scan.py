"""Sorts and scans as the compiler takes them: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "topk", "argsort", "msort"]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cumprod(0), x[0].cumprod(-1), torch.linalg.vander(x[:, 0])


def test_program_of_integers() -> None:
    check(Products(), (torch.randint(-4, 5, (5, 6)),))
