"""What a program writes in place, through views too."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe.tools.rewrite.mutations import Writes, is_own_copy, writes
from tests.unit.tools.rewrite.graph import graph, node


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(4, 2))
        self.register_buffer("table", torch.ones(2))

    def forward(self, x, y):
        self.k[:2].reshape(-1).add_(1)
        y.mul_(2)
        z = x.clone()
        z.add_(self.table)
        return z + self.k.sum()


def test_buffers_and_inputs():
    assert writes(graph(Cache(), torch.ones(2), torch.ones(2))) == Writes(("k",), (1,))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_copy_of_what_is_there_already():
    found = graph(Counter(), torch.ones(2))
    assert is_own_copy(node(found, torch.ops.aten.copy_.default))
    assert not is_own_copy(node(found, torch.ops.aten.add_.Tensor))
