"""Several indices of sizes that vary, which IREE's importer does not broadcast."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import dynamic_indices
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import check, legal

ROWS, COLUMNS = Dim("rows", min=1, max=9), Dim("columns", min=1, max=9)
SHAPES = {"x": {0: ROWS, 1: COLUMNS}}
CALLS = [(torch.randn(*sizes, 4),) for sizes in ((3, 5), (1, 2), (6, 1))]


class Ranks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = x[0, 0, :].argmax() * 0
        return x[row, torch.arange(x.shape[1]), torch.arange(x.shape[1]) % 4]


class Grid(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape[:2]
        down = torch.arange(rows)[:, None].expand(rows, columns)
        across = torch.arange(columns)[None].expand(rows, columns)
        return x.permute(2, 0, 1)[:, down, across]


class Grids(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows, columns = x.shape[:2]
        down = torch.arange(rows)[:, None].expand(rows, columns)
        across = torch.arange(columns)[None].expand(rows, columns)
        return [
            x[down.flip(0), across],
            x.permute(2, 0, 1)[:, down, across.flip(1) - columns],
            x[down[:, :1], :, across % 4],
            x[down, across, (down + across) % 4],
        ]


def test_numbers_are_eagers() -> None:
    check(Ranks(), *CALLS, dynamic_shapes=SHAPES)
    check(Grids(), *CALLS, dynamic_shapes=SHAPES)


@canary(dynamic_indices.FIX)
def test_iree_broadcasts_indices_without() -> None:
    compile_once(importer.lower(legal(Grid(), CALLS[0], dynamic_shapes=SHAPES)), "iree-cpu-host")
