"""`.data` of a traced tensor: what is read and written through it is part of the program."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from aotpipe.export import tracing
from tests.unit.export.models import exported, run

CALLS = [torch.ones(1, 2), -torch.ones(1, 2), torch.tensor([[2.0, -1.0]])]


class ReadsAWeight(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.data.T


class WritesAWeight(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data.mul_(2)
        return super().forward(x)


class WritesAResult(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.data += 1
        return y


class InABranch(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x @ self.weight.data.T
        return x.data * 2


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))


class AssignsABuffer(Averaging):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.data = self.mean.data * 0.5 + x.mean(0)
        return x - self.mean


class WritesABuffer(Averaging):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.data.copy_(self.mean * 0.5 + x.mean(0))
        return x - self.mean


@pytest.mark.parametrize(
    "model",
    [
        ReadsAWeight(2, 2),
        WritesAWeight(2, 2),
        WritesAResult(),
        InABranch(2, 2),
        AssignsABuffer(),
        WritesABuffer(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_program_does_what_eager_does(model: nn.Module) -> None:
    eager = copy.deepcopy(model.eval())
    before = copy.deepcopy(model.state_dict())
    found = exported(model, CALLS[0])
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    for call in CALLS:
        with torch.no_grad():
            torch.testing.assert_close(run(found, call), eager(call))


def test_another_shape_is_refused() -> None:
    x = torch.ones(2)
    with tracing.data_is_traced(), pytest.raises(RuntimeError, match=r"of shape \(2,\) is assigned"):
        x.data = torch.ones(3)


def test_torchs_own_is_back_afterwards() -> None:
    x = torch.ones(2, requires_grad=True) * 1
    with tracing.data_is_traced():
        assert x.data.tolist() == [1, 1]
        x.data = torch.zeros(2)
    x.data = x.data * 1
    assert x.tolist() == [0, 0]
    assert "data" not in vars(torch.Tensor)
