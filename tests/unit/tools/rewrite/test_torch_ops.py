"""What torch's private names are used for."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe.tools.rewrite import torch_ops
from aotpipe.tools.rewrite.torch_ops import Writes, is_own_copy, writes
from tests.unit.tools.rewrite.graph import graph, node

ADD = torch.ops.aten.add.Tensor
COND = torch.ops.higher_order.cond


def test_ops_and_their_names():
    assert torch_ops.is_op(ADD)
    assert not torch_ops.is_op(COND)
    assert torch_ops.is_higher(COND)
    assert (torch_ops.name_of(ADD), torch_ops.short_of(ADD), torch_ops.overload_of(ADD)) == (
        "aten::add",
        "add",
        "Tensor",
    )
    assert torch_ops.name_of(COND) == ""
    assert torch_ops.name_of_higher(COND) == "cond"
    assert torch_ops.name_of_higher(ADD) == ""
    assert [each.name for each in torch_ops.schema_of(ADD).arguments] == ["self", "other", "alpha"]


def test_names_that_are_the_op_itself():
    assert torch_ops.is_function_of_torch("conv2d")
    assert not torch_ops.is_function_of_torch("einsum_of_nothing")
    assert torch_ops.is_functional("gelu")
    assert not torch_ops.is_functional("layer_norm")


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
