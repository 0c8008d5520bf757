"""Numbers beside float64 keep their bits: `0.1 - x` was off by 1e-9."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.fixes.graphs import double_numbers
from tests.canaries import canary
from tests.programs.through import check


class Less(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x, x + 1)
        return 0.1 - x, 0.1 - x.float(), 3 - x, torch.rsub(x, 0.7, alpha=3), (0.1 - z).imag, (0.1 - z).real


X = torch.linspace(-2, 2, 7, dtype=torch.float64)


def test_a_number_less_a_float64() -> None:
    check(Less(), (X,))


@canary(double_numbers.FIX)
def test_iree_takes_a_number_for_a_float64_without() -> None:
    check(Less(), (X,))
