"""Convolutions of several groups: `test_depthwise_sums` compares them with eager over any arguments."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.programs.through import check, legal
from tests.sweep import sweep


@pytest.mark.parametrize("stride", sweep([2, 3, 5], quick=1))
def test_a_stride_puts_columns_apart_once(stride: int) -> None:
    """Each read of every second column was made one by one."""
    [entry] = legal(nn.Conv2d(4, 4, 5, stride, groups=4), (torch.randn(1, 4, 20, 33),)).entries
    slices = entry.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.slice.Tensor)
    strided = [node for node in slices if len(node.args) > 4 and node.args[4] > 1]
    assert strided
    assert not any(node.args[1] == 3 for node in strided)


@pytest.mark.parametrize(
    "module",
    sweep(
        [
            nn.Conv2d(8, 16, 3, 2, padding=1, groups=8),
            nn.Conv2d(8, 8, (2, 5), (3, 4), dilation=(2, 3), padding=4, groups=8),
            nn.Conv2d(8, 4, 3, 2, padding=1, groups=4),
            nn.Conv2d(80, 40, 3, padding="same", groups=40),
        ],
        quick=2,
    ),
    ids=str,
)
def test_programs_take_any_batch(module: nn.Conv2d) -> None:
    torch.manual_seed(0)
    calls = [(torch.randn(batch, module.in_channels, 19, 24),) for batch in (2, 1, 4)]
    check(module, *calls, dynamic_shapes=({0: Dim("batch", min=1, max=4)},))


def test_what_lies_beside_a_stride_is_no_part_of_it() -> None:
    module, x = nn.Conv2d(4, 4, 3, 2, padding=1, groups=4).eval(), torch.randn(1, 4, 9, 9)
    x[0, 0, 0, 0], x[0, 3, 8, 8], x[0, 2, 3, 3] = torch.inf, torch.nan, -torch.inf
    want = module(x)
    [entry] = legal(module, (x,)).entries
    [got] = torch.utils._pytree.tree_leaves(entry.graph(*module.state_dict().values(), x))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
