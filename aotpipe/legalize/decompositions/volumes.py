"""Convolutions of volumes, and transposed ones whose windows do not meet.

IREE's code for a volume's convolution leaves the vector registers unused, and multiplies integers as floats
(3.13): as a sum of images' convolutions, one for each layer of the kernel, 32 channels of 32x32x32 take a
fifteenth of the time on a CPU. A transposed convolution becomes one over an input with zeros between its
elements; where the stride is the kernel's size, each input element makes a patch of its own, by a matmul.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from aotpipe.legalize.decompositions.entries import static


def volume(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    """A convolution over `[batch, channels, depth, height, width]`, with a number for each dim."""
    thickness = weight.shape[2]
    if not static(x.shape[2]) and stride[0] != 1:
        return NotImplemented
    x = pad(x, (0, 0, 0, 0, padding[0], padding[0])) if padding[0] else x
    batch, channels, size = x.shape[:3]
    count = (size - dilation[0] * (thickness - 1) - 1) // stride[0] + 1
    total = None
    for layer in range(thickness):
        start = layer * dilation[0]
        cut = x[:, :, start : start + (count - 1) * stride[0] + 1 : stride[0]]
        images = cut.transpose(1, 2).reshape(batch * count, channels, *x.shape[3:])
        part = torch.conv2d(images, weight[:, :, layer], None, stride[1:], padding[1:], dilation[1:], groups)
        total = part if total is None else total + part
    assert total is not None
    found = total.reshape(batch, count, *total.shape[1:]).transpose(1, 2)
    return found if bias is None else found + bias.reshape(-1, 1, 1, 1)


def apart(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A transposed convolution, of one group, whose stride is the size of its kernel `[in, out, *sizes]`."""
    rank = x.dim() - 2
    batch, channels, *sizes = x.shape
    _, outputs, *kernel = weight.shape
    patches = x.movedim(1, -1).reshape(-1, channels) @ weight.reshape(channels, -1)
    patches = patches.reshape(batch, *sizes, outputs, *kernel)
    pairs = [dim for at in range(rank) for dim in (1 + at, 2 + rank + at)]
    joined = patches.permute(0, 1 + rank, *pairs)
    found = joined.reshape(batch, outputs, *(a * b for a, b in zip(sizes, kernel, strict=True)))
    return found if bias is None else found + bias.reshape(-1, *[1] * rank)
