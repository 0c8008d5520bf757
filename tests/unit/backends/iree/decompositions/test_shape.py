"""Views and reshapes as the compiler takes it: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["squeeze", "squeeze_multiple", "unbind", "narrow_copy", "roll", "unflatten"]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


class Bits(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = torch.full((), 1, dtype=torch.int32)
        return x.view(torch.int32) + 1, x[0].view(torch.int32), x + one.view(torch.float32)


def test_program_reads_bits() -> None:
    check(Bits(), (torch.randn(4),))
