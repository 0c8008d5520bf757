"""Which form of a convolution a CPU gets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.backends.iree.tuning import cpu

CONVOLUTION = torch.ops.aten.convolution.default


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
    found = cpu.convolution(x, layer.weight, layer.bias, *arguments)
    torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-4)


def test_the_compilers_own_ends_with_its_only_window() -> None:
    """Integers of images have no form of their own; the input that no window reaches is cut off."""
    x, weight = torch.arange(64).reshape(1, 4, 4, 4), torch.ones(4, 4, 3, 3, dtype=torch.int64)
    found = cpu.convolution(x, weight, None, [2], [0], [1], False, [0], 1)
    assert torch.equal(found, torch.conv2d(x, weight, None, 2))
    whole = cpu.convolution(x, weight, None, [1], [0], [1], False, [0], 1)
    assert whole is NotImplemented
