"""Reductions over what is repeated along a dim that varies: IREE refused the program."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import broadcast_reductions
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary, compile_once
from tests.programs.through import check, legal

ROWS = Dim("rows", min=1, max=9)
CALLS = [(torch.randn(rows, 4),) for rows in (3, 1, 7)]


class Uniform(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.zeros(x.shape[0], dtype=torch.int64) != 1).sum()


class Repeated(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        labels = torch.zeros(x.shape[0], dtype=torch.int64)
        chosen = (x[:, 0] > 0).long()[:, None].expand(-1, 8)
        return [
            F.cross_entropy(x, labels),
            chosen.ne(1).sum(),
            torch.arange(32.0).reshape(4, 8).gather(0, chosen),
            (x[:, :1].expand(-1, 8).exp() > 1).any(1),
            (labels[None].expand(3, -1) == 0).all(1),
        ]


def test_numbers_are_eagers() -> None:
    check(Uniform(), *CALLS, dynamic_shapes={"x": {0: ROWS}})
    check(Repeated(), *CALLS, dynamic_shapes={"x": {0: ROWS}})


@canary(broadcast_reductions.FIX)
def test_iree_takes_the_stack_without() -> None:
    program = legal(Uniform(), CALLS[0], dynamic_shapes={"x": {0: ROWS}})
    compile_once(importer.lower(program), "iree-cpu-host")
