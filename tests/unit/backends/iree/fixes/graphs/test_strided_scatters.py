"""Scatters into columns: IREE refused the program."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import strided_scatters
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import check, legal

ROWS = {"x": {0: Dim("rows", min=2, max=12)}}
CALLS = [(torch.randn(rows, 4),) for rows in (6, 2, 9)]


class Window(nn.Module):
    """The mask of attention within a sliding window, as a loop over its rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        mask = torch.full((rows, rows), -1.0)
        for row in range(rows):
            mask[row, max(0, row - 2) : row + 1] = 0.0
        return mask + x.sum(1)


class Columns(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        order = x[:, 0].argsort()
        whole = x.clone()
        whole[:, 1:3][order[:1]] = 5.0
        return [whole, x[:, 1:].scatter_add(0, order[:, None].expand(-1, 3), x[:, 1:] * 2)]


class Grams(nn.Module):
    """Rows of one of two tables of as many rows as an input, as a loop over them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grams = torch.zeros(2, x.shape[0], 8)
        for row in range(x.shape[0] - 1):
            grams[1, row, :8] = x[row : row + 2].flatten()
        return grams


def test_numbers_are_eagers() -> None:
    check(Grams(), *CALLS, dynamic_shapes=ROWS)
    check(Window(), *CALLS, dynamic_shapes=ROWS)
    check(Columns(), *CALLS, dynamic_shapes=ROWS)


@canary(strided_scatters.FIX)
def test_iree_scatters_into_columns_without() -> None:
    program = legal(Window(), CALLS[0], dynamic_shapes=ROWS)
    compile_once(importer.lower(program), "iree-cpu-host")
