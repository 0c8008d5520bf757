"""Convolutions of several groups.

IREE's code for them makes no vectors (3.13, AVX-512, one thread): 32 groups of 8 channels of 28x28 take 16
times as long as eager by it, depthwise convolutions 3 to 5 times. Here groups are convolutions of their own,
beside each other, or a batch of matmuls where there are many; a depthwise one is a sum of shifted images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final

import torch
from torch.nn.functional import pad

from aotpipe.backends.iree.tuning.window_geometry import Window, padded
from aotpipe.passes.decompositions.entries import static

# Of a depthwise convolution, each is a product; else a copy of the input.
_MOST_TAPS: Final = 64
# Of sizes that vary: a kernel of the compiler's takes 64 numbers, and each cut has some of its own.
_MOST_CUTS: Final = 20
# Each is compiled, and started by itself; but a batch of matmuls takes 1 to 4 times as long.
_MOST_APART: Final = 32


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    window: Window,
    padding: Sequence[int],
    counts: Sequence[int],
    groups: int,
) -> Any:
    """A convolution of more than one group, without a bias; NotImplemented where it is the compiler's."""
    if groups == x.shape[1]:
        return _depthwise(x, weight, window, padding, counts)
    if groups <= _MOST_APART and prod(window.kernel) > 1:
        return _apart(x, weight, window, padding, groups)
    return _batched(x, weight, window, padding, counts, groups)


def _apart(
    x: torch.Tensor, weight: torch.Tensor, window: Window, padding: Sequence[int], groups: int
) -> torch.Tensor:
    """As a convolution for each group."""
    convolve = (torch.conv1d, torch.conv2d)[len(window.kernel) - 1]
    pairs = zip(x.chunk(groups, 1), weight.chunk(groups), strict=True)
    parts = [convolve(*pair, None, window.stride, padding, window.dilation) for pair in pairs]
    return torch.cat(parts, 1)


def _batched(
    x: torch.Tensor,
    weight: torch.Tensor,
    window: Window,
    padding: Sequence[int],
    counts: Sequence[int],
    groups: int,
) -> Any:
    """As a matmul for each group, with the channels first: images are read by their rows."""
    taps = prod(window.kernel)
    if taps > _MOST_TAPS:
        return NotImplemented
    x = padded(x, padding)
    batch, channels, *sizes = x.shape
    several = x.reshape(batch, groups, channels // groups, *sizes)
    parts = [window.met(several, at, counts, 3) for at in window.places()]
    joined = torch.cat(parts, 2) if taps > 1 else parts[0]
    columns = weight.reshape(groups, -1, channels // groups, taps).transpose(2, 3).flatten(2)
    return (columns @ joined.flatten(3)).reshape(batch, weight.shape[0], *counts)


def _depthwise(
    x: torch.Tensor, weight: torch.Tensor, window: Window, padding: Sequence[int], counts: Sequence[int]
) -> Any:
    """Of a group for each channel: the image times a number of each, for each element of the kernel."""
    is_known = all(map(static, counts))
    if prod(window.kernel) > _MOST_TAPS or not (is_known or sum(window.kernel) <= _MOST_CUTS):
        # Of a known size the compiler's own takes as long, and more products would take it minutes.
        return NotImplemented if is_known else _summed(x, weight, window, padding, counts)
    x = padded(x, padding)
    batch, channels = x.shape[:2]
    several = weight.reshape(channels, -1, *window.kernel)
    met = _apart_columns if window.stride[-1] > 1 and static(x.shape[-1]) else _dense_columns
    total = None
    for at, image in met(x, window, counts):
        element: tuple[Any, ...] = (slice(None), slice(None), *at)
        part = image.unsqueeze(2) * several[element].reshape(channels, -1, *[1] * len(counts))
        total = part if total is None else total + part
    assert total is not None
    total = total if met is _apart_columns else total[..., :: window.stride[-1]]
    return total.reshape(batch, weight.shape[0], *counts)


def _dense_columns(
    x: torch.Tensor, window: Window, counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """What each element of a kernel meets, of all columns: a read of some makes no vectors."""
    spare = window.dilation[-1] * (window.kernel[-1] - 1)
    places = [*counts[:-1], counts[-1] if window.stride[-1] == 1 else x.shape[-1] - spare]
    dense = Window(window.kernel, (*window.stride[:-1], 1), window.dilation)
    for at in window.places():
        yield at, dense.met(x, at, places, 2)


def _apart_columns(
    x: torch.Tensor, window: Window, counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """What each element of a kernel meets, of columns that are put apart by their place in a stride.

    Half as many products as of all columns for a stride of 2, and half the time.
    """
    step, spread = window.stride[-1], window.dilation[-1]
    x = pad(x, (0, -x.shape[-1] % step))
    parts = x.reshape(*x.shape[:-1], x.shape[-1] // step, step).movedim(-1, 0)
    # A copy: read where they are, they would be picked one by one again for each element.
    parts = parts.clone(memory_format=torch.contiguous_format)
    others = Window(window.kernel[:-1], window.stride[:-1], window.dilation[:-1])
    for at in window.places():
        column = at[-1] * spread
        image = parts[column % step].narrow(-1, column // step, counts[-1])
        yield at, others.met(image, at[:-1], counts[:-1], 2)


def _summed(
    x: torch.Tensor, weight: torch.Tensor, window: Window, padding: Sequence[int], counts: Sequence[int]
) -> torch.Tensor:
    """As a sum over windows, which are read one by one."""
    x = padded(x, padding)
    batch, channels = x.shape[:2]
    rank = len(counts)
    for dim, (width, step, spread) in enumerate(
        zip(window.kernel, window.stride, window.dilation, strict=True)
    ):
        x = x.unfold(2 + dim, spread * (width - 1) + 1, step)[..., ::spread]
    several = weight.reshape(channels, -1, *[1] * rank, *window.kernel)
    total = (x.unsqueeze(2) * several).sum([-1 - dim for dim in range(rank)])
    return total.reshape(batch, weight.shape[0], *counts)
