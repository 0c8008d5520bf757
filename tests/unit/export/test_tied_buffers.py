"""A buffer that a model holds under several names, and writes under one of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.model.spec import Dim
from tests.unit.passes.legal import Runner, legal


class Table(nn.Module):
    """As rotary embeddings keep what they have computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(4, 2), persistent=False)
        self.known = 0

    def forward(self, x):
        count = x.shape[0]
        if count <= self.known:
            return self.kept[:count]
        found = torch.arange(count)[:, None] * torch.ones(2)
        self.kept[:count] = found.detach()
        self.known = count
        return found


class Layer(nn.Module):
    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x + self.table(x))


class SharedModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        table = Table()
        self.layers = nn.Sequential(Layer(table), Layer(table))

    def forward(self, x):
        return self.layers(x)


class TwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("again", self.count)

    def forward(self, x):
        before = self.again * 1
        self.count.add_(1)
        if x.sum() < 0:
            self.again.mul_(2)
        return x + self.again + before * self.count


@pytest.mark.parametrize("kind", [SharedModule, TwoNames])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_written_buffer_of_two_names_is_one(kind: type[nn.Module], is_dynamic: bool) -> None:
    options: dict[str, Any] = {"dynamic_shapes": {"x": {0: Dim("n", min=1, max=4)}}} if is_dynamic else {}
    sizes = (3, 2, 4, 1) if is_dynamic else (3, 3, 3, 3)
    calls = [[torch.randn(size, 2) * (-1) ** at] for at, size in enumerate(sizes)]
    model = kind().eval()
    program = legal(copy.deepcopy(model), calls[0], **options)
    run = Runner(program)
    for call in calls:
        (found,) = run(call).values()
        torch.testing.assert_close(found, model(*call).detach())
    kept = [name for name in program.initial_state if name.endswith(("kept", "count", "again"))]
    assert kept == ["layers.0.table.kept" if kind is SharedModule else "count"]
