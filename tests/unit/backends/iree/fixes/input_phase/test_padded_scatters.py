"""A scatter and the padding of what it gives are two kernels."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from aotpipe.backends.iree.fixes.input_phase import padded_scatters
from tests.canaries import canary, check_compiled

CALL = torch.ones(4, 4), torch.tensor([1.0, 3.0, 2.0, 0.0])


class Padded(nn.Module):
    def forward(self, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.index_put((v.argmax()[None],), v)
        image = F.conv2d(y[None, None], torch.ones(1, 1, 3, 3), padding=1)
        return F.pad(y, (1, 1)), F.pad(y, (0, 0, 2, 1), value=2.0), image, y * 2


class Alone(nn.Module):
    def forward(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.pad(x.index_put((v.argmax()[None],), v), (1, 1))


def test_a_row_is_written_and_padded() -> None:
    for model in (Padded(), Alone()):
        check_compiled(model, CALL, (torch.ones(4, 4), torch.arange(4.0)))


def test_it_is_where_sizes_vary() -> None:
    rows = {0: Dim("rows", min=4, max=9)}
    calls = ((torch.ones(n, 4), CALL[1]) for n in (5, 4, 9))
    check_compiled(Padded(), *calls, dynamic_shapes={"x": rows})


@canary(padded_scatters.FIX)
def test_iree_compiles_both_as_one_without() -> None:
    check_compiled(Alone(), CALL)
