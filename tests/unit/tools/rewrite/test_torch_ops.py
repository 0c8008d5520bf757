"""What torch's private names are used for."""

from __future__ import annotations

import torch

from aotpipe.tools.rewrite import torch_ops

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
