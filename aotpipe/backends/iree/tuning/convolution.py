"""The form of a convolution on a class of devices, where the compiler's own is slow, inexact or refused.

vmvx is one of the CPUs. On GPUs the compiler's own form stays, but for two. Its convolution of volumes
multiplies integers as floats. Its transposed convolution multiplies the zeros that it puts between the
input's elements: 3 of 4 products for a stride of 2 in two dims, 7 of 8 in three, on every device; the
convolutions that take their place are the compiler's own again.

IREE's code for a volume's convolution leaves the vector registers unused, too (3.13): as one convolution of
images, with the channels of each layer that the kernel meets, 32 channels of 32x32x32 take a fiftieth of the
time on a CPU, and as a sum of several, one for each layer of the kernel, a fifteenth.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.functional import pad

from aotpipe.backends.iree.decompositions import windows
from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning import channels_last, im2col, transposed_convolution
from aotpipe.backends.iree.tuning.im2col import Window, padded
from aotpipe.passes.decompositions.entries import static


def on_cpu(*args: Any, **kwargs: Any) -> Any:
    """A convolution as matmuls, as sums of shifted images or as loops with the channels last."""
    given = Convolution.of(*args, **kwargs)
    if given.transposed:
        return transposed_convolution.transposed(given)
    if len(given.stride) == 3 and not given.x.is_complex():
        return volume(given)
    found = im2col.convolution(given)
    return windows.convolution(given) if found is NotImplemented else found


def on_gpu(*args: Any, **kwargs: Any) -> Any:
    """A convolution as it is, where neither its numbers nor the number of its products speak against it."""
    given = Convolution.of(*args, **kwargs)
    if given.transposed:
        return transposed_convolution.transposed(given)
    if len(given.stride) == 3 and not (given.x.is_floating_point() or given.x.is_complex()):
        return volume(given)
    return windows.convolution(given)


def volume(given: Convolution) -> Any:
    """A convolution over `[batch, channels, depth, height, width]`."""
    if not static(given.x.shape[2]) and given.stride[0] != 1:
        return NotImplemented
    # The layers of a kernel are sums of their own.
    return given.rounded_once(_volume)


def _volume(given: Convolution) -> torch.Tensor:
    is_joined = given.groups == 1 and given.x.dtype in im2col.DTYPES and _suits_loops(given)
    return given.with_bias(_joined(given) if is_joined else _added(given))


def _suits_loops(given: Convolution) -> bool:
    sizes = given.x.shape[3:]
    if not all(map(static, sizes)):
        return False
    outputs, channels, thickness, *kernel = given.weight.shape
    reached = [size + 2 * border for size, border in zip(sizes, given.padding[1:], strict=True)]
    counts = Window(kernel, given.stride[1:], given.dilation[1:]).counts(reached)
    return channels_last.suits(thickness * channels, outputs, kernel, given.stride[1:], counts)


def _joined(given: Convolution) -> torch.Tensor:
    """As one convolution of images, each with the channels of all the layers that the kernel meets."""
    weight, stride, dilation = given.weight, given.stride, given.dilation
    outputs, channels, thickness, *kernel = weight.shape
    # The channels are last, where the compiler's loops want them.
    rows = padded(given.x, given.padding).permute(0, 2, 3, 4, 1)
    batch = rows.shape[0]
    count, _, width = Window((thickness, *kernel), stride, dilation).counts(rows.shape[1:4])
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
    # What is joined is a copy, whose channels are last.
    is_ready = is_joined and channels_last.is_full(outputs, width)
    with channels_last.as_they_are() if is_ready else nullcontext():
        found = torch.conv2d(images, columns, None, stride[1:], 0, dilation[1:])
    found = found.permute(0, 2, 3, 1)
    return found.reshape(batch, count, *found.shape[1:]).permute(0, 4, 1, 2, 3)


def _added(given: Convolution) -> torch.Tensor:
    """As a sum of convolutions of images, one for each layer of the kernel."""
    x, weight, _, stride, padding, dilation, _, _, groups = given
    thickness = weight.shape[2]
    x = padded(x, (padding[0], 0, 0))
    batch, channels, size = x.shape[:3]
    [count] = Window((thickness,), stride[:1], dilation[:1]).counts([size])
    total = None
    for layer in range(thickness):
        start = layer * dilation[0]
        cut = x[:, :, start : start + (count - 1) * stride[0] + 1 : stride[0]]
        images = cut.transpose(1, 2).reshape(batch * count, channels, *x.shape[3:])
        part = torch.conv2d(images, weight[:, :, layer], None, stride[1:], padding[1:], dilation[1:], groups)
        total = part if total is None else total + part
    assert total is not None
    return total.reshape(batch, count, *total.shape[1:]).transpose(1, 2)
