"""Convolutions of volumes.

IREE's code for a volume's convolution leaves the vector registers unused, and multiplies integers as floats
(3.13): as one convolution of images, with the channels of each layer that the kernel meets, 32 channels of
32x32x32 take a fiftieth of the time on a CPU, and as a sum of several, one for each layer of the kernel, a
fifteenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.functional import pad

from aotpipe.backends.iree.tuning import channels_last, im2col
from aotpipe.passes.decompositions.entries import HALF, rounded_once, static


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
    if not static(x.shape[2]) and stride[0] != 1:
        return NotImplemented
    if x.dtype in HALF:
        # The layers of a kernel are sums of their own.
        return rounded_once(volume, x, weight, bias, stride, padding, dilation, groups)
    if groups == 1 and x.dtype in im2col.DTYPES and _suits_loops(x, weight, stride, padding, dilation):
        found = _joined(x, weight, stride, padding, dilation)
    else:
        found = _added(x, weight, stride, padding, dilation, groups)
    return found if bias is None else found + bias.reshape(-1, 1, 1, 1)


def _suits_loops(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> bool:
    sizes = x.shape[3:]
    if not all(map(static, sizes)):
        return False
    outputs, channels, thickness, *kernel = weight.shape
    counts = [
        _count(size + 2 * border, width, step, spread)
        for size, border, width, step, spread in zip(
            sizes, padding[1:], kernel, stride[1:], dilation[1:], strict=True
        )
    ]
    return channels_last.suits(thickness * channels, outputs, kernel, stride[1:], counts)


def _joined(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """As one convolution of images, each with the channels of all the layers that the kernel meets."""
    outputs, channels, thickness, *kernel = weight.shape
    amounts = [border for border in reversed(padding) for _ in range(2)]
    x = pad(x, amounts) if any(amounts) else x
    # The channels are last, where the compiler's loops want them.
    rows = x.permute(0, 2, 3, 4, 1)
    batch, size = rows.shape[:2]
    count = _count(size, thickness, stride[0], dilation[0])
    cuts = [
        rows[:, start : start + (count - 1) * stride[0] + 1 : stride[0]]
        for start in range(0, thickness * dilation[0], dilation[0])
    ]
    is_joined = thickness > 1
    added = channels_last.lacking(thickness * channels) if is_joined else 0
    if added:
        cuts.append(rows.new_zeros(batch, count, *rows.shape[2:4], added))
    joined = torch.cat(cuts, -1) if is_joined else cuts[0]
    images = joined.reshape(batch * count, *joined.shape[2:]).permute(0, 3, 1, 2)
    columns = weight.transpose(1, 2).reshape(outputs, thickness * channels, *kernel)
    columns = pad(columns, (0, 0, 0, 0, 0, added)) if added else columns
    width = _count(images.shape[3], kernel[1], stride[2], dilation[2])
    # What is joined is a copy, whose channels are last.
    is_ready = is_joined and channels_last.is_full(outputs, width)
    with channels_last.as_they_are() if is_ready else nullcontext():
        found = torch.conv2d(images, columns, None, stride[1:], 0, dilation[1:])
    found = found.permute(0, 2, 3, 1)
    return found.reshape(batch, count, *found.shape[1:]).permute(0, 4, 1, 2, 3)


def _added(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """As a sum of convolutions of images, one for each layer of the kernel."""
    thickness = weight.shape[2]
    x = pad(x, (0, 0, 0, 0, padding[0], padding[0])) if padding[0] else x
    batch, channels, size = x.shape[:3]
    count = _count(size, thickness, stride[0], dilation[0])
    total = None
    for layer in range(thickness):
        start = layer * dilation[0]
        cut = x[:, :, start : start + (count - 1) * stride[0] + 1 : stride[0]]
        images = cut.transpose(1, 2).reshape(batch * count, channels, *x.shape[3:])
        part = torch.conv2d(images, weight[:, :, layer], None, stride[1:], padding[1:], dilation[1:], groups)
        total = part if total is None else total + part
    assert total is not None
    return total.reshape(batch, count, *total.shape[1:]).transpose(1, 2)


def _count(size: int, width: int, step: int, spread: int) -> int:
    """How many places a window has along a padded dim."""
    return (size - spread * (width - 1) - 1) // step + 1
