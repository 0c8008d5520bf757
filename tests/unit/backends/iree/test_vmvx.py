"""Modules as IREE's portable bytecode takes them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree import importer, vmvx
from tests.programs.through import compare, legal, load


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu() + 1


def test_a_convolution_over_a_batch_that_varies_is_a_kernel_of_its_own() -> None:
    dims = {"dynamic_shapes": ({0: Dim("batch", min=1, max=4)},)}
    torch.manual_seed(0)
    net = Net().eval()
    program = legal(net, (torch.randn(2, 8, 8, 8),), **dims)
    before = importer.lower(program)
    apart = replace(before, module=vmvx.alone(before.module))
    assert apart.module.count(b"util.optimization_barrier") == 1
    with load(program, apart, "vmvx") as runner:
        for batch in (2, 1, 4):
            compare(runner, program, net, (torch.randn(batch, 8, 8, 8),))


def test_others_stay_as_they_are() -> None:
    fixed = importer.lower(legal(Net(), (torch.randn(2, 8, 8, 8),)))
    assert b"torch.aten.convolution" in fixed.module
    assert vmvx.alone(fixed.module) == fixed.module
    assert vmvx.alone(b"") == b""
