"""Python decides on a buffer while the model is traced, where no path writes it; else the graph does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.export.models import exported


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ready", torch.tensor(True))
        self.register_buffer("table", torch.tensor([1.0, 2.0, 3.0]))
        self.scale = nn.Parameter(torch.tensor(0.5))


class Unwritten(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        if not self.ready:
            return x.reshape(-1)  # of another rank: no graph has both
        for step in self.table:
            if step > 1.5:
                x = x * step
        return x + 1 if self.scale > 0.2 and x.sum() > 0 else x - 1


class InPlace(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1 if self.table.sum() > 6.5 else x * 2
        if x.sum() > 3:
            self.table[1:].mul_(1.5)
        return y


class Assigned(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1 if self.table.sum() > 6.5 else x * 2
        if x.sum() > 3 and x.max() > 1:
            self.table = self.table * 1.5
        return y


class ByData(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1 if self.scale > 0.6 else x * 2
        for _ in range(3):
            if x.sum() > 3:
                self.scale.data = self.scale + 0.1
        return y


@pytest.mark.parametrize("kind", [Unwritten, InPlace, Assigned, ByData])
def test_a_buffer_decides_as_in_eager_in_every_call(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    program = exported(copy.deepcopy(model), -torch.ones(4, 3)).entries[0].program.module()
    for scale in (1, -1, 3, 2, -2, 5):
        x = torch.randn(4, 3) * scale + 0.5
        with torch.no_grad():
            torch.testing.assert_close(program(x), model(x))


def test_a_long_loop_whose_test_is_known_is_a_loop_of_the_graph() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        i = torch.zeros(())
        while i < 3000:
            i = i + 1
            x = torch.sin(x)
            if x.sum() > 1e6:
                x = x * 0
        return x

    x = torch.randn(4)
    program = exported(long, x).entries[0].program
    assert any("while_loop" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), long(x))
