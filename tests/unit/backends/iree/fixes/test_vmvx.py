"""Modules as IREE's portable bytecode takes them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.fixes import vmvx
from aotpipe.backends.iree.lower import importer
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
    apart = replace(before, module=vmvx.portable(before.module))
    assert apart.module.count(b"util.optimization_barrier") == 1
    with load(program, apart, "vmvx") as runner:
        for batch in (2, 1, 4):
            compare(runner, program, net, (torch.randn(batch, 8, 8, 8),))


def test_others_stay_as_they_are() -> None:
    fixed = importer.lower(legal(Net(), (torch.randn(2, 8, 8, 8),)))
    assert b"torch.aten.convolution" in fixed.module
    assert vmvx.portable(fixed.module) == fixed.module
    assert vmvx.portable(b"") == b""


@pytest.mark.parametrize(
    "net",
    [
        # What lays out a pool's result is in its kernel else, which asks for all memory.
        nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 2)),
        nn.Sequential(nn.AvgPool2d(3, 2, padding=1), nn.Conv2d(8, 16, 2)),
        nn.Conv2d(8, 8, 3, 4, groups=8),
        nn.ConvTranspose2d(8, 4, 3, 2),
    ],
    ids=["max", "mean", "strided groups", "transposed"],
)
def test_pools_and_convolutions_over_a_batch_that_varies_run(net: nn.Module) -> None:
    net = net.eval()
    program = legal(net, (torch.randn(2, 8, 8, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=4)},))
    lowered = importer.lower(program)
    with load(program, replace(lowered, module=vmvx.portable(lowered.module)), "vmvx") as runner:
        for batch in (2, 1, 4):
            compare(runner, program, net, (torch.randn(batch, 8, 8, 8),))


class Whole(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.long(), x.clamp(-9, 9).int(), x.clamp(0, 200).to(torch.uint8), x[1, 1].long()


def test_float64_is_cast_to_integers_by_its_bits() -> None:
    wide = [0.0, -0.0, 0.999, -0.999, 1.5, -2.5, 5e-324, 2.0**52 + 1, -(2.0**53) - 2, 2.0**62, -(2.0**63)]
    wide += [4503599627370495.5, 123456789.75, 1e-300, -7e18]
    several, few = (torch.tensor(values, dtype=torch.float64).reshape(-1, 3) for values in (wide, wide[:6]))
    net = Whole().eval()
    program = legal(net, (several,), dynamic_shapes=({0: Dim("rows", min=2, max=9)},))
    lowered = importer.lower(program)
    portable = replace(lowered, module=vmvx.portable(lowered.module))
    assert b"arith.bitcast" in portable.module
    with load(program, portable, "vmvx") as runner:
        for x in (several, few):
            compare(runner, program, net, (x,))
