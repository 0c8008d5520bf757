"""Convolutions of lines and images as matmuls of their windows; those of several groups are in `grouped`.

IREE's own loops over an image are fast where `loops` says so. Elsewhere they are slow (3.13, AVX-512, one
thread): a strided convolution of 256 channels of one element takes 37 times as long by them as here, one of a
line of 80 channels 36 times, one of 512 channels, whose weights they read again for each few columns, twice.
Where the sizes vary, too: a line takes 13 to 40 times as long, an image 5 to 20 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch

from aotpipe.backends.iree.tuning import channels_last, grouped_convolution
from aotpipe.backends.iree.tuning.window_geometry import Window, padded
from aotpipe.passes.decompositions.entries import HALF, rounded_once, static

# Half-precision sums are wider than their operands: those of images stay the compiler's.
DTYPES: Final = (torch.float32, torch.float64)
# The patches of an image: where they are larger, loops over the image read less memory.
_IMAGE_BYTES: Final = 9 << 19
# Of one over a batch that varies, whose loops vmvx refuses; and of any for all images.
_VARYING_BYTES: Final = 1 << 24
_TOTAL_BYTES: Final = 1 << 26
# From so many channels on, a window is read by its rows of channels, as whole vectors.
_VECTOR: Final = 16
# Of an image whose size varies: its patches may be so many times as large.
_MOST_COPIES: Final = 64
_WIDE: Final = 64


def takes(x: torch.Tensor) -> bool:
    """Whether a convolution of an input may become something else here."""
    return not channels_last.are_as_they_are() and x.dtype in DTYPES


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    """A convolution over `[batch, channels, *sizes]`, of one or two sizes, with a number for each.

    NotImplemented where the compiler's own is as fast, or takes what this does not.
    """
    sizes = x.shape[2:]
    if len(sizes) == 1 and x.dtype in HALF:
        return rounded_once(convolution, x, weight, bias, stride, padding, dilation, groups)
    if not takes(x) or len(sizes) not in (1, 2) or not all(map(static, (x.shape[1], *weight.shape))):
        return NotImplemented
    window = Window(weight.shape[2:], stride, dilation)
    counts = window.counts([size + 2 * border for size, border in zip(sizes, padding, strict=True)])
    # A size that varies is never 0 here: eager refuses it.
    if min([1, *filter(static, (*counts, *sizes, x.shape[1]))]) < 1:
        return NotImplemented
    if groups > 1:
        found = grouped_convolution.convolution(x, weight, window, padding, counts, groups)
    elif len(sizes) == 2 and _is_looped(x, weight, stride, counts):
        found = channels_last.filled(x, weight, stride, padding, dilation, counts)
        if found is NotImplemented and bias is not None:
            # A sum that the compiler makes beside others, not the start of the loops.
            conv = torch.ops.aten.convolution
            found = conv(x, weight, None, stride, padding, dilation, False, [0] * len(sizes), 1)
    else:
        found = _matmul(x, weight, window, padding, counts)
        if found is NotImplemented and len(sizes) == 2 and all(map(static, sizes)):
            found = channels_last.filled(x, weight, stride, padding, dilation, counts)
    if found is NotImplemented or bias is None:
        return found
    return found + bias.reshape(-1, *[1] * len(sizes))


def _is_looped(x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], counts: Sequence[int]) -> bool:
    known = all(map(static, x.shape[2:]))
    return known and channels_last.suits(x.shape[1], weight.shape[0], weight.shape[2:], stride, counts)


def _matmul(
    x: torch.Tensor, weight: torch.Tensor, window: Window, padding: Sequence[int], counts: Sequence[int]
) -> Any:
    batch, channels = x.shape[:2]
    outputs, taps, length = weight.shape[0], prod(window.kernel), prod(counts)
    varies = not static(batch)
    is_known = all(map(static, counts))
    if taps == 1:
        met = window.met(padded(x, padding), [0] * len(counts), counts, 2)
        found = weight.reshape(outputs, channels) @ met.reshape(batch, channels, length)
        return found.reshape(batch, outputs, *counts)
    if is_known and len(counts) > 1:
        is_strided = any(step > 1 for step, count in zip(window.stride, counts, strict=True) if count > 1)
        size_bytes = 4 * channels * taps * length
        most = _VARYING_BYTES if varies or is_strided else _IMAGE_BYTES
        if size_bytes > most or (static(batch) and batch * size_bytes > _TOTAL_BYTES):
            return NotImplemented
    elif len(counts) > 1 and taps > _MOST_COPIES * prod(window.stride):
        return NotImplemented
    x = padded(x, padding)
    is_narrow = channels < _VECTOR or any(
        width > _WIDE and spread > 1 for width, spread in zip(window.kernel, window.dilation, strict=True)
    )
    if is_known and is_narrow and window.has_small_tables(counts):
        indices = window.indices(counts)
        at: tuple[Any, ...] = (slice(None), slice(None), *indices)
        windows = x[at].reshape(batch, channels * taps, length)
        return (weight.flatten(1) @ windows).reshape(batch, outputs, *counts)
    windows = x.movedim(1, -1)
    for dim in reversed(range(len(counts))):
        windows = window.joined(windows, dim, counts[dim])
    rows = windows.reshape(batch * length, taps * channels)
    columns = weight.movedim(1, -1).reshape(outputs, taps * channels).t()
    return (rows @ columns).reshape(batch, *counts, outputs).movedim(-1, 1)
