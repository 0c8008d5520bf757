"""Powers: equal to eager on torch's own samples and for exponents below zero."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends.iree.decompositions import powers
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["pow", "__rpow__", "square"]


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS, count=2)


def test_whole_powers_wrap_around_and_vanish() -> None:
    values = torch.tensor([0, 1, -1, 2, -3, 10, 2**40])
    base, exponent = torch.meshgrid(values, torch.tensor([0, 1, 2, 5, 64, 70]), indexing="ij")
    assert torch.equal(powers.pow_tensor(base, exponent), torch.pow(base, exponent))
    negative = powers.pow_tensor(torch.tensor([1, -1, -1, 2, -3]), torch.tensor([-2, -2, -3, -1, -5]))
    assert negative.tolist() == [1, 1, -1, 0, 0]
