"""One number of a tensor is put into others, however many dims it is seen with."""

from __future__ import annotations

import torch

from aotpipe.backends.iree.fixes.graphs import single_numbers
from tests.canaries import canary
from tests.programs.through import check

X = torch.tensor([1.0, 2.0, 3.0, 4.0])
Y = torch.tensor([[5.0], [6.0]])


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[0].view(1, 1), y])


class Placed(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined = torch.cat([y, x[3].view(1, 1)])
        return (
            *(torch.cat([x[:1].view(1, 1), y]), torch.cat([y[1].view(1, 1, 1), y.view(2, 1, 1)])),
            *(joined.roll(1, 0), joined[2:], torch.cat([x[0][None, None], y])[0] + 1),
            *(torch.stack([x[0].view(1, 1), y[:1]]), torch.cat([x[:1].unsqueeze(0), y, x[1:2].unsqueeze(1)])),
            y.index_put((torch.tensor([1]),), x[0].view(1, 1)),
        )


def test_a_number_is_put_into_a_tensor_of_more_dims() -> None:
    check(Joined(), (X, Y))
    check(Placed(), (X, Y))


@canary(single_numbers.FIX)
def test_iree_compile_refuses_it_without() -> None:
    check(Joined(), (X, Y))
