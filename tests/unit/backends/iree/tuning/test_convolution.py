"""CPUs get forms of a convolution that were measured on them; GPUs get the compiler's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import Node

from aotpipe.backends import legalization
from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.lower import importer
from aotpipe.backends.iree.tuning import convolution
from aotpipe.core.targets import Target
from aotpipe.passes import legalize
from tests.sweep import sweep
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


@pytest.mark.parametrize(
    "target", sweep(["iree-vulkan", "iree-cuda-sm_80", "iree-metal", "iree-rocm-gfx942"], quick=1)
)
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


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Conv1d(16, 8, 3), (20,)),
        (nn.Conv2d(16, 8, 1), (6, 6)),
        (nn.Conv2d(16, 16, 3, groups=16), (6, 6)),
        (nn.Conv3d(4, 4, 3), (5, 5, 5)),
        (nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1), (4, 4)),
    ],
    ids=["line", "of one element", "depthwise", "volume", "transposed"],
)
def test_a_form_of_its_own_is_what_eager_computes(layer: nn.Module, sizes: tuple[int, ...]) -> None:
    x = torch.randn(2, layer.in_channels, *sizes, generator=torch.Generator().manual_seed(0))
    arguments = (
        *(layer.stride, layer.padding, layer.dilation),
        isinstance(layer, nn.ConvTranspose2d),
        layer.output_padding,
        layer.groups,
    )
    found = convolution.on_cpu(x, layer.weight, layer.bias, *arguments)
    torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-4)


def test_the_compilers_own_ends_with_its_only_window() -> None:
    """Integers of images have no form of their own; the input that no window reaches is cut off."""
    x, weight = torch.arange(64).reshape(1, 4, 4, 4), torch.ones(4, 4, 3, 3, dtype=torch.int64)
    found = convolution.on_cpu(x, weight, None, [2], [0], [1], False, [0], 1)
    assert torch.equal(found, torch.conv2d(x, weight, None, 2))
    whole = convolution.on_cpu(x, weight, None, [1], [0], [1], False, [0], 1)
    assert whole is NotImplemented
