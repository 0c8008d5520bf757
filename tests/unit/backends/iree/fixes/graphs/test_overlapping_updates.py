"""Updates by what is made of the tensor that is updated have eager's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.backends.iree.fixes.graphs import overlapping_updates
from aotpipe.model.spec import Dim
from tests.canaries import canary
from tests.programs.through import Together, check, legal

X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
I = torch.tensor([1, 2, 3])  # noqa: E741  # an index


class Applied(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> Any:
        return self.function(x, x @ x.T, i)


def shifted_in_turn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Any:
    y[1:] = y[:-1] * 2 + y[1:]
    y[:, 2:] = y[:, :-2].sin()
    return y, x, i


UPDATES = {
    "moved": lambda x, y, i: torch.slice_scatter(y, y[:-1].clone(), 0, 1),
    "columns": lambda x, y, i: torch.slice_scatter(y, y[:, :-2].clone(), 1, 2),
    "computed": lambda x, y, i: torch.slice_scatter(y, y[:-1] * 3, 0, 1),
    "computed twice": lambda x, y, i: torch.slice_scatter(x * 2, (x * 2)[:-1], 0, 1),
    "backwards": lambda x, y, i: torch.slice_scatter(y, y[:-1].flip(0), 0, 1),
    "from the end": lambda x, y, i: torch.slice_scatter(y, y[:3] * 2, 0, -3),
    "one row": lambda x, y, i: torch.select_scatter(y, y[2].flip(0) * 2, 0, 2),
    "the last column": lambda x, y, i: torch.select_scatter(y, y.flip(0)[:, 1] * 2, 1, -1),
    "with steps": lambda x, y, i: torch.slice_scatter(y, y[0:4:2].clone(), 0, 2, 6, 2),
    "by an index": lambda x, y, i: (y.index_copy(0, i, y[:3]), y),
    "added": lambda x, y, i: y.index_add(0, i, y[:3]),
    "scattered": lambda x, y, i: y.scatter(0, i[:, None].expand(3, 7), y[:3]),
    "of the very tensor": lambda x, y, i: (
        y.index_add(1, y[0].argsort(), y),
        y.index_put((y[1].argsort(),), y),
        y.scatter(0, y.argsort(0), y),
        y.index_copy(1, y[2].argsort(), y),
    ),
    "of what is found to be it": lambda x, y, i: (
        y.index_add(1, y[0].argsort(), torch.where(y > 0, y, y)),
        y.index_add(1, y[0].argsort(), torch.maximum(y, y) * 1 + 0),
    ),
    "in turn": shifted_in_turn,
    "in whole": lambda x, y, i: torch.slice_scatter(y, y * 2, 0),
}


def test_updates_of_one_program_read_what_was_there_before() -> None:
    check(Together(Applied(update) for update in UPDATES.values()), (X, I))


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_an_update_reads_what_was_there_before(name: str) -> None:
    check(Applied(UPDATES[name]), (X, I))


def differences(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1:] = y[1:] - y[:-1]
    return y


OF_A_DIM = {
    "differences": differences,
    "computed": lambda x: torch.slice_scatter(x, x[:-1] * 3, 0, 1),
    "from the end": lambda x: torch.slice_scatter(x, x[:3] * 2, 0, -3),
    "before the end": lambda x: torch.slice_scatter(x, x[1:] + x[:-1], 0, 0, -1),
    "in the middle": lambda x: torch.slice_scatter(x, x[2:] + x[:-2], 0, 1, -1),
    "half": lambda x: torch.slice_scatter(x, x[: x.shape[0] // 2] * 2, 0, x.shape[0] - x.shape[0] // 2),
    "with steps": lambda x: torch.slice_scatter(x, x[: (x.shape[0] + 1) // 2] * 2, 0, 0, x.shape[0], 2),
    "one row": lambda x: torch.select_scatter(x, x.sum(0) - x[1], 0, -1),
}


class OfADim(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [update(x) for update in OF_A_DIM.values()]


def test_updates_along_a_dim_that_varies_read_what_was_there_before() -> None:
    sizes = {"x": {0: Dim("n", min=4, max=40)}}
    check(OfADim(), *((torch.randn(n, 3),) for n in (7, 4, 40)), dynamic_shapes=sizes)
    check(OfADim(), *((torch.randn(n),) for n in (7, 4, 40)), dynamic_shapes=sizes)


class Shifting(nn.Module):
    """Keeps what it was called with last."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[1:] = self.seen[:-1].clone()
        self.seen[0] = x
        return self.seen.sum(0)


def test_a_state_is_shifted() -> None:
    check(Shifting(), *((X[at],) for at in range(4)))


def own(function: Callable[..., Any]) -> list[str]:
    [entry] = legal(Applied(function), (X, I)).entries
    overlapping_updates.join(entry.graph)
    return [str(node.target) for node in entry.graph.graph.nodes if overlapping_updates.own_buffers(node)]


def test_only_what_is_made_of_its_target_costs_anything() -> None:
    assert not own(lambda x, y, i: torch.slice_scatter(y, x.sum() + y.new_ones(2, 7), 0, 5))
    assert not own(UPDATES["moved"])
    assert own(UPDATES["added"]) or own(UPDATES["by an index"])
    assert not own(lambda x, y, i: y.index_copy(0, i, y[:3] * 2))
    assert not own(lambda x, y, i: y.index_copy(0, i, (x.sin() @ x.T)[:3]))


@canary(overlapping_updates.FIX)
def test_iree_reads_before_it_writes_without() -> None:
    check(Applied(UPDATES["computed"]), (X, I))
