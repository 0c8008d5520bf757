"""Gathers from what lies apart in memory: IREE refused the program."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import strided_gathers
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import check, legal

ROWS = Dim("rows", min=1, max=9)
CALLS = [(torch.randn(rows, 4),) for rows in (3, 1, 7)]


class Flipped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 1::2].flip([1]) * 2


class Gathered(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        order = x[:, 1].argsort()
        return [x[:, 0][order] * 2, x.t()[:, order], x[:, 3].sort().values + 1]


def test_numbers_are_eagers() -> None:
    check(Flipped(), *CALLS, dynamic_shapes={"x": {0: ROWS}})
    check(Gathered(), *CALLS, dynamic_shapes={"x": {0: ROWS}})


@canary(strided_gathers.FIX)
def test_iree_lowers_strided_gathers_without() -> None:
    program = legal(Flipped(), CALLS[0], dynamic_shapes={"x": {0: ROWS}})
    compile_once(importer.lower(program), "iree-cpu-host")
