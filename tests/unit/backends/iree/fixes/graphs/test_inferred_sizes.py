"""Views with a size to infer beside one that varies: IREE gave them another number of rows."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import inferred_sizes
from tests.canaries import canary
from tests.programs.through import check

SIZES = {"x": {0: Dim("n", min=2, max=12)}}
CALLS = [(torch.randn(size),) for size in (5, 2, 9)]


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.repeat(2 * x.shape[0]).view(-1, 2 * x.shape[0]) * 2


class Filled(nn.Module):
    """The relative shift of attention: filled up to whole rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = x.repeat(2 * x.shape[0])
        width = 2 * x.shape[0] - 1
        filled = torch.cat([whole, whole.new_zeros(-whole.shape[0] % width)])
        return filled.view(1, -1, width)[:, : x.shape[0], 1:]


def test_numbers_are_eagers() -> None:
    check(Rows(), *CALLS, dynamic_shapes=SIZES)
    check(Filled(), *CALLS, dynamic_shapes=SIZES)


@canary(inferred_sizes.FIX)
def test_iree_infers_sizes_without() -> None:
    # Of `Rows` it infers so many that the process may end.
    check(Filled(), CALLS[0], dynamic_shapes=SIZES)
