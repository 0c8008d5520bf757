"""Views of several dims that vary: the result had other elements or fewer, without a word."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import dynamic_views
from tests.canaries import canary
from tests.programs.through import check, legal

ROWS, COLUMNS = Dim("rows", min=1, max=9), Dim("columns", min=1, max=9)
SIZES = ((3, 4), (1, 5), (4, 1), (2, 2))


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape[:2]
        return (x.view(rows, columns * 2, 8) + 1).view(rows * columns, 16)


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows, columns = x.shape[:2]
        between = x.relu()
        return [
            between.view(rows * columns * 2, 8),
            between.view(4, rows * columns, 4),
            between.view(2, 2, rows * columns * 4),
            (between.view(rows * 2, columns * 8) + 1).view(rows * columns, 4, 4),
            between.view(1, rows, columns, 2, 8).view(rows * columns, 16),
            between.view(rows, columns, 16, 1).view(rows * columns * 16),
        ]


class Attention(nn.Module):
    """As torch.nn.MultiheadAttention, and as torchaudio calls it: the first dim is the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("module", [Split(), Views(), Attention()])
def test_numbers_are_eagers(module: nn.Module) -> None:
    run(module)


def test_joins_alone_stay_as_they_are() -> None:
    class Joined(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 16) + 1

    [entry] = legal(Joined(), (torch.randn(3, 4, 16),), dynamic_shapes={"x": {0: ROWS, 1: COLUMNS}}).entries
    before = str(entry.graph.graph)
    dynamic_views.FIX.apply.rewrite([entry.graph])
    assert str(entry.graph.graph) == before


@canary(dynamic_views.FIX)
def test_iree_splits_dims_right_without() -> None:
    run(Split())


def run(module: nn.Module) -> None:
    calls = [(torch.randn(*sizes, 16),) for sizes in SIZES]
    check(module, *calls, dynamic_shapes={"x": {0: ROWS, 1: COLUMNS}})
