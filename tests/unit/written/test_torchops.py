"""What torch's private names are used for."""

from __future__ import annotations

import torch

from aotpipe.written import torchops

ADD = torch.ops.aten.add.Tensor
COND = torch.ops.higher_order.cond


def test_ops_and_their_names():
    assert torchops.is_op(ADD)
    assert not torchops.is_op(COND)
    assert torchops.is_higher(COND)
    assert (torchops.name_of(ADD), torchops.short_of(ADD), torchops.overload_of(ADD)) == (
        "aten::add",
        "add",
        "Tensor",
    )
    assert torchops.name_of(COND) == ""
    assert torchops.name_of_higher(COND) == "cond"
    assert torchops.name_of_higher(ADD) == ""
    assert [each.name for each in torchops.schema_of(ADD).arguments] == ["self", "other", "alpha"]


def test_names_that_are_the_op_itself():
    assert torchops.is_function_of_torch("conv2d")
    assert not torchops.is_function_of_torch("einsum_of_nothing")
    assert torchops.is_functional("gelu")
    assert not torchops.is_functional("layer_norm")
