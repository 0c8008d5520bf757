"""Reductions that are broadcast along two dims at once: off the diagonal they were zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx, nn

from aotpipe.backends.iree.fixes.graphs import outer_reductions
from tests.canaries import canary
from tests.programs.through import Together, check, legal

Function = Callable[[torch.Tensor], torch.Tensor]


def outer(s: torch.Tensor) -> torch.Tensor:
    return s[:, None] + s[None, :]


OUTER: list[Function] = [
    lambda x: outer(x.sum(-1)),
    lambda x: x.sum(-1)[:, None] * x.sum(-1)[None, :],
    lambda x: (x.amax(-1) * 2)[:, None] - (x.amax(-1) * 3).exp()[None, :],
    lambda x: (x.sum(-1)[:, None] + torch.arange(5.0)) * x.sum(-1)[None, :],
    lambda x: (s := x.sum(-1, keepdim=True)) + s.transpose(0, 1),
    lambda x: (s := x.square().sum(-1))[:, None] + s[None, :] - 2 * (x @ x.T),
    lambda x: (s := x.reshape(5, 2, 4).sum(-1))[:, :, None] + s[:, None, :],
]
OTHERS: list[Function] = [
    lambda x: x - x.sum(-1, keepdim=True) * x.amax(-1, keepdim=True),
    lambda x: (s := x.reshape(2, 2, 10).sum(-1)) + s.T,
    lambda x: x.softmax(-1) + x.sum(0),
    lambda x: outer(x[:, 0]),
]


class Net(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def taken_apart(function: Function) -> list[fx.Node]:
    [entry] = legal(Net(function), (torch.randn(5, 8),)).entries
    return [source for node in entry.graph.graph.nodes for source in outer_reductions.own_buffers(node)]


@pytest.mark.parametrize("function", OUTER)
def test_one_operand_gets_a_buffer(function: Function) -> None:
    assert taken_apart(function)


@pytest.mark.parametrize("function", OTHERS)
def test_others_do_not(function: Function) -> None:
    assert not taken_apart(function)


def test_numbers_are_eagers() -> None:
    check(Together(Net(function) for function in [*OUTER, *OTHERS]), (torch.randn(5, 8),))


@canary(outer_reductions.FIX)
def test_iree_sums_right_without() -> None:
    check(Net(OUTER[0]), (torch.randn(5, 8),))
