"""Transposed convolutions, without zeros between the input's elements.

The compiler convolves an input with zeros between its elements: for a stride of 2 in two dims they are three
quarters of all products. Where the stride is the kernel's size, each input element makes a patch of its own,
by one matmul. Else an output belongs to one of as many phases as the stride has places; each phase is a
convolution of stride 1 with the taps of the kernel that meet it, and all phases are the channels of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from aotpipe.legalize.decompositions import patches
from aotpipe.legalize.decompositions.entries import static


def transposed(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A transposed convolution over `[batch, channels, *sizes]` and a kernel `[in, out, *sizes]`.

    NotImplemented where the compiler's own is taken.
    """
    if groups != 1 or set(dilation) != {1} or not x.is_floating_point():
        return NotImplemented
    if list(stride) == list(weight.shape[2:]) and not any((*padding, *output_padding)):
        found = apart(x, weight)
    elif patches.takes(x) and all(map(static, x.shape[1:])) and min(x.shape[1:]) > 0:
        found = phases(x, weight, stride, padding, output_padding)
    else:
        return NotImplemented
    return found if bias is None else found + bias.reshape(-1, *[1] * len(stride))


def apart(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """One whose stride is the size of its kernel."""
    rank = x.dim() - 2
    batch, channels, *sizes = x.shape
    _, outputs, *kernel = weight.shape
    made = x.movedim(1, -1).reshape(-1, channels) @ weight.reshape(channels, -1)
    made = made.reshape(batch, *sizes, outputs, *kernel)
    pairs = [dim for at in range(rank) for dim in (1 + at, 2 + rank + at)]
    joined = made.permute(0, 1 + rank, *pairs)
    return joined.reshape(batch, outputs, *(a * b for a, b in zip(sizes, kernel, strict=True)))


def phases(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
) -> torch.Tensor:
    """One of any stride, as a convolution of stride 1 whose channels are put beside each other.

    With `k = m * stride + r`, output `j * stride + r` is the sum over m of `x[j - m] * weight[k]`.
    """
    rank = x.dim() - 2
    batch, channels, *sizes = x.shape
    _, outputs, *kernel = weight.shape
    taps = [-(-size // step) for size, step in zip(kernel, stride, strict=True)]
    lacking = [tap * step - size for tap, step, size in zip(taps, stride, kernel, strict=True)]
    if any(lacking):
        weight = pad(weight, [amount for each in reversed(lacking) for amount in (0, each)])
    split = weight.reshape(channels, outputs, *(n for pair in zip(taps, stride, strict=True) for n in pair))
    steps, places = range(3, 3 + 2 * rank, 2), range(2, 2 + 2 * rank, 2)
    columns = split.permute(*steps, 1, 0, *places).reshape(-1, channels, *taps)
    columns = columns.flip(list(range(2, 2 + rank))) if max(taps) > 1 else columns
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    made = convolve(x, columns, None, 1, [tap - 1 for tap in taps])
    if math.prod(stride) > 1:
        made = made.reshape(batch, *stride, outputs, *made.shape[2:])
        pairs = [dim for at in range(rank) for dim in (2 + rank + at, 1 + at)]
        made = made.permute(0, 1 + rank, *pairs)
        reached = [(size + tap - 1) * step for size, tap, step in zip(sizes, taps, stride, strict=True)]
        made = made.reshape(batch, outputs, *reached)
    for at in range(rank):
        wanted = (sizes[at] - 1) * stride[at] - 2 * padding[at] + kernel[at] + output_padding[at]
        beyond = padding[at] + wanted - made.shape[2 + at]
        if beyond > 0:
            made = pad(made, [0, 0] * (rank - 1 - at) + [0, beyond])
        made = made.narrow(2 + at, padding[at], wanted)
    return made
