"""Convolutions and pools over a batch that varies, in IREE's portable bytecode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import vmvx_windows
from aotpipe.backends.iree.lower import importer
from tests.canaries import canary
from tests.programs import with_kernels
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
    module = rewritten(with_kernels(before.module, "vmvx"), [vmvx_windows.FIX.apply])
    assert module is not None
    assert module.count(b"util.optimization_barrier") == 1
    with load(program, replace(before, module=module), "vmvx") as runner:
        for batch in (2, 1, 4):
            compare(runner, program, net, (torch.randn(batch, 8, 8, 8),))


def test_others_stay_as_they_are() -> None:
    fixed = with_kernels(importer.lower(legal(Net(), (torch.randn(2, 8, 8, 8),))).module, "vmvx")
    assert b"torch.aten.convolution" in fixed
    assert rewritten(fixed, [vmvx_windows.FIX.apply]) is None
    assert rewritten(b"", [vmvx_windows.FIX.apply]) is None


class Several(nn.Module):
    """Those networks as one, as each compile has its cost."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [part(x) for part in self.parts]


NETS = {
    # What lays out a pool's result is in its kernel else, which asks for all memory.
    "max": nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 2)),
    "mean": nn.Sequential(nn.AvgPool2d(3, 2, padding=1), nn.Conv2d(8, 16, 2)),
    "strided groups": nn.Conv2d(8, 8, 3, 4, groups=8),
    "transposed": nn.ConvTranspose2d(8, 4, 3, 2),
}


@pytest.mark.parametrize(
    "net",
    [
        # A max is laid out as a mean is, and `test_grouped_convolution` has depthwise ones with a stride.
        pytest.param(Several(NETS[name] for name in ("mean", "transposed")), id="in one program"),
        *(pytest.param(net, id=name, marks=pytest.mark.slow) for name, net in NETS.items()),
    ],
)
def test_pools_and_convolutions_over_a_batch_that_varies_run(net: nn.Module) -> None:
    net = net.eval()
    program = legal(net, (torch.randn(2, 8, 8, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=4)},))
    lowered = importer.lower(program)
    plain = with_kernels(lowered.module, "vmvx")
    module = rewritten(plain, [vmvx_windows.FIX.apply]) or plain
    with load(program, replace(lowered, module=module), "vmvx") as runner:
        for batch in (2, 1, 4):
            compare(runner, program, net, (torch.randn(batch, 8, 8, 8),))


@canary(vmvx_windows.FIX)
def test_iree_runs_them_without() -> None:
    net, x = nn.AvgPool2d(2), torch.randn(2, 8, 8, 8)
    program = legal(net, (x,), dynamic_shapes=({0: Dim("batch", min=1, max=4)},))
    with load(program, importer.lower(program), "vmvx") as runner:
        compare(runner, program, net, (x,))
