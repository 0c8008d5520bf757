"""GPUs get the compiler's own convolutions, and no form that was measured on CPUs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import Node

from aotpipe.backends import legalization
from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from aotpipe.passes import legalize
from tests.unit.passes.legal import exported

CONVOLUTION = torch.ops.aten.convolution.default


def tensor(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


def computed(module: nn.Module, x: torch.Tensor) -> list[Node]:
    """What a GPU's program computes, and that it is what eager gives."""
    [entry] = legalize(exported(module.eval(), [x]), legalization("torch-gpu")).entries
    return [node for node in entry.graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Conv1d(16, 32, 3, padding=1), tensor(2, 16, 64)),
        (nn.Conv2d(24, 32, 1), tensor(2, 24, 14, 14)),
        (nn.Conv2d(3, 32, 3, stride=2, padding=1), tensor(2, 3, 32, 32)),
        (nn.Conv2d(16, 16, 3, groups=4), tensor(2, 16, 14, 14)),
        (nn.Conv2d(32, 32, 3, groups=32), tensor(2, 32, 14, 14)),
        (nn.Conv3d(8, 16, 3, padding=1), tensor(1, 8, 8, 8, 8)),
        (nn.Conv1d(16, 32, 3).half(), tensor(2, 16, 64).half()),
    ],
    ids=["line", "of one element", "strided", "grouped", "depthwise", "volume", "half"],
)
def test_a_convolution_stays_one(module: nn.Module, x: torch.Tensor) -> None:
    assert [node.target for node in computed(module, x)] == [CONVOLUTION]
    [entry] = legalize(exported(module.eval(), [x]), legalization("torch")).entries
    assert [node.target for node in entry.graph.graph.nodes if node.op == "call_function"] != [CONVOLUTION]


def test_the_only_window_still_ends_with_its_input() -> None:
    """The compiler refuses a strided convolution of a size of 1 otherwise, for any device."""
    targets = [str(node.target) for node in computed(nn.Conv2d(4, 4, 3, stride=2), tensor(1, 4, 4, 4))]
    assert targets[-1] == "aten.convolution.default"
    assert "aten.slice.Tensor" in targets


def test_transposed_convolutions_multiply_no_zeros() -> None:
    nodes = computed(nn.ConvTranspose2d(4, 8, 3, stride=2), tensor(1, 4, 5, 5))
    convolutions = [node for node in nodes if node.target is CONVOLUTION]
    assert convolutions
    assert not any(node.args[6] for node in convolutions)


class OfIntegers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.conv3d(x, x[:, :, :2, :2, :2])


def test_volumes_of_integers_are_sums_of_images() -> None:
    x = (tensor(2, 2, 4, 4, 4) * 9).long()
    ranks = {
        node.args[0].meta["val"].dim() for node in computed(OfIntegers(), x) if node.target is CONVOLUTION
    }
    assert ranks == {4}


@pytest.mark.parametrize("target", ["iree-cuda-sm_80", "iree-metal", "iree-rocm-gfx942", "iree-vulkan"])
def test_the_compiler_takes_them_in_one_program(target: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 8, 1, groups=2),
        nn.Unflatten(1, (2, 4)),
        nn.Conv3d(2, 4, 3),
        nn.Flatten(2),
        nn.Conv1d(4, 4, 5, dilation=2),
    )
    legal = legalize(exported(model.eval(), [tensor(2, 3, 16, 16)]), legalization("torch-gpu"))
    assert compiler.compile(importer.lower(legal), Target.parse(target)).payload
