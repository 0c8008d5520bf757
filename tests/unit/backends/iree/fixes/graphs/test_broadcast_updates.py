"""Updates at as many places as a run finds: where it found none, the first row was written."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe import Dim
from aotpipe.backends.iree.fixes.graphs import broadcast_updates
from tests.canaries import canary
from tests.programs.through import check

ROWS = Dim("rows", min=2, max=9)
CALLS = [(sign * torch.arange(1.0, 1 + rows * 4).reshape(rows, 4),) for rows in (3, 5) for sign in (1, -1)]


class Zeroed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[(x[:, 1] > 4).nonzero()[:, 0]] = 0.0
        return out


class Repeated(nn.Module):
    """A row, a column, and what is added."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        places = (x[:, 1] > 4).nonzero()[:, 0]
        column = x[:, :1].index_select(0, places)
        more = torch.full((4,), 2.0)
        return [
            x.index_put((places,), more),
            x.index_put((places,), column),
            x.index_put((places,), more, accumulate=True),
            x.index_put((places, torch.full((1,), 2)), torch.full((1,), 7.0)),
        ]


def test_numbers_are_eagers() -> None:
    check(Zeroed(), *CALLS, dynamic_shapes={"x": {0: ROWS}})
    check(Repeated(), *CALLS, dynamic_shapes={"x": {0: ROWS}})


@canary(broadcast_updates.FIX)
def test_iree_writes_to_no_place_without() -> None:
    check(Zeroed(), *CALLS, dynamic_shapes={"x": {0: ROWS}})
