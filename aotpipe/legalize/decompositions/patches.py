"""Convolutions of lines and images as matmuls of their windows, and depthwise ones as sums of shifted images.

IREE's own loops over an image are fast where `loops` says so. Elsewhere they are slow (3.13, AVX-512, one
thread): a strided convolution of 256 channels of one element takes 37 times as long by them as here, one of a
line of 80 channels 36 times, one of 512 channels, whose weights they read again for each few columns, twice.
Depthwise ones make no vectors: 3 to 5 times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any, Final

import torch
from torch.nn.functional import pad

from aotpipe.legalize.decompositions import loops
from aotpipe.legalize.decompositions.entries import static

# Half-precision sums are wider than their operands: those stay the compiler's.
DTYPES: Final = (torch.float32, torch.float64)
# The patches of an image: where they are larger, loops over the image read less memory.
_IMAGE_BYTES: Final = 9 << 19
# Of one over a batch that varies, whose loops vmvx refuses; and of any for all images.
_VARYING_BYTES: Final = 1 << 24
_TOTAL_BYTES: Final = 1 << 26
# From so many channels on, a window is read by its rows of channels, as whole vectors.
_VECTOR: Final = 16
_COPIES: Final = 8
_TABLE: Final = 1 << 12
# Of a depthwise convolution; each is a product.
_MOST_TAPS: Final = 64


_left_out = False


@contextmanager
def left_out() -> Iterator[None]:
    """Inside, convolutions are left as they are: for programs that nobody compiles."""
    global _left_out
    before, _left_out = _left_out, True
    try:
        yield
    finally:
        _left_out = before


def takes(x: torch.Tensor) -> bool:
    """Whether a convolution of an input may become something else here."""
    return not _left_out and not loops.are_as_they_are() and x.dtype in DTYPES


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
    if not takes(x) or len(sizes) not in (1, 2) or not all(map(static, x.shape[1:])):
        return NotImplemented
    window = _Window(weight.shape[2:], stride, dilation)
    counts = window.counts([size + 2 * border for size, border in zip(sizes, padding, strict=True)])
    if min(*counts, *sizes, *x.shape[1:2]) < 1:
        return NotImplemented
    if groups == x.shape[1] and groups > 1:
        found = _depthwise(x, weight, window, padding, counts)
    elif groups == 1 and len(sizes) == 2 and _is_looped(x, weight, stride, counts):
        found = loops.filled(x, weight, stride, padding, dilation, counts)
        if found is NotImplemented and bias is not None:
            # A sum that the compiler makes beside others, not the start of the loops.
            conv = torch.ops.aten.convolution
            found = conv(x, weight, None, stride, padding, dilation, False, [0] * len(sizes), 1)
    elif groups == 1:
        found = _matmul(x, weight, window, padding, counts)
        if found is NotImplemented and len(sizes) == 2:
            found = loops.filled(x, weight, stride, padding, dilation, counts)
    else:
        return NotImplemented
    if found is NotImplemented or bias is None:
        return found
    return found + bias.reshape(-1, *[1] * len(sizes))


def _is_looped(x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], counts: Sequence[int]) -> bool:
    return loops.suits(x.shape[1], weight.shape[0], weight.shape[2:], stride, counts)


class _Window:
    """What slides over the padded sizes."""

    def __init__(self, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> None:
        self.kernel, self.stride, self.dilation = tuple(kernel), tuple(stride), tuple(dilation)

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """How many places there are along each dim."""
        each = zip(sizes, self.kernel, self.stride, self.dilation, strict=True)
        return [(size - spread * (width - 1) - 1) // step + 1 for size, width, step, spread in each]

    def places(self) -> Iterator[tuple[int, ...]]:
        """The elements of the kernel, in its order."""
        return product(*map(range, self.kernel))

    def met(self, x: torch.Tensor, at: Sequence[int], counts: Sequence[int], dims: int) -> torch.Tensor:
        """What one element of the kernel meets in all places; `dims` come before the padded sizes."""
        cuts = (
            slice(place * spread, place * spread + (count - 1) * step + 1, step)
            for place, spread, step, count in zip(at, self.dilation, self.stride, counts, strict=True)
        )
        return x[(*[slice(None)] * dims, *cuts)]

    def joined(self, x: torch.Tensor, dim: int, count: int) -> torch.Tensor:
        """What the kernel meets along a dim of `[batch, *sizes, channels]`, as channels of each place."""
        width, step, spread = self.kernel[dim], self.stride[dim], self.dilation[dim]
        if width > _COPIES and spread == 1:
            # One kernel to compile, where copies are one for each cut.
            return x.unfold(1 + dim, width, step).movedim(-1, -2).flatten(-2)
        # Twice eight copies in place of 64.
        some = 1 if step > 1 else max(n for n in range(1, _COPIES + 1) if width % n == 0)
        x = _joined(x, 1 + dim, some, spread, 1, x.shape[1 + dim] - (some - 1) * spread)
        return _joined(x, 1 + dim, width // some, some * spread, step, count)

    def has_small_tables(self, counts: Sequence[int]) -> bool:
        """Whether `indices`, which are part of the program, are small."""
        return max(width * count for width, count in zip(self.kernel, counts, strict=True)) <= _TABLE

    def indices(self, counts: Sequence[int]) -> list[torch.Tensor]:
        """For each dim, what the kernel meets; together they are `[*kernel, *counts]`."""
        rank, found = len(counts), []
        for dim, (count, width) in enumerate(zip(counts, self.kernel, strict=True)):
            places = _along(rank + dim, 2 * rank, torch.arange(count) * self.stride[dim])
            found.append(places + _along(dim, 2 * rank, torch.arange(width) * self.dilation[dim]))
        return found


def _joined(x: torch.Tensor, dim: int, times: int, apart: int, step: int, count: int) -> torch.Tensor:
    """Some cuts of a dim, each of `count` places, joined along the last one."""
    reach = (count - 1) * step + 1
    cuts = [x.narrow(dim, index * apart, reach) for index in range(times)]
    if step > 1:
        cuts = [cut[(*[slice(None)] * dim, slice(None, None, step))] for cut in cuts]
    return torch.cat(cuts, -1) if times > 1 else cuts[0]


def _along(dim: int, rank: int, line: torch.Tensor) -> torch.Tensor:
    """A line as a tensor of a rank, along one of its dims."""
    return line.reshape([-1 if each == dim else 1 for each in range(rank)])


def _matmul(
    x: torch.Tensor, weight: torch.Tensor, window: _Window, padding: Sequence[int], counts: Sequence[int]
) -> Any:
    batch, channels = x.shape[:2]
    outputs, taps, length = weight.shape[0], prod(window.kernel), prod(counts)
    varies = not static(batch)
    is_strided = any(step > 1 for step, count in zip(window.stride, counts, strict=True) if count > 1)
    if taps == 1:
        met = window.met(_padded(x, padding), [0] * len(counts), counts, 2)
        found = weight.reshape(outputs, channels) @ met.reshape(batch, channels, length)
        return found.reshape(batch, outputs, *counts)
    size_bytes = 4 * channels * taps * length
    most = _VARYING_BYTES if varies or is_strided else _IMAGE_BYTES
    if size_bytes > most or (static(batch) and batch * size_bytes > _TOTAL_BYTES):
        return NotImplemented
    x = _padded(x, padding)
    if (channels < _VECTOR or max(window.kernel) > _MOST_TAPS) and window.has_small_tables(counts):
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


def _depthwise(
    x: torch.Tensor, weight: torch.Tensor, window: _Window, padding: Sequence[int], counts: Sequence[int]
) -> Any:
    """Of a group for each channel: the image times a number for each channel, for each element of the kernel.

    Along the last dim all places are computed, since a strided read makes no vectors.
    """
    step = window.stride[-1]
    if prod(window.kernel) > _MOST_TAPS or step > 2:
        return NotImplemented
    x = _padded(x, padding)
    batch, channels = x.shape[:2]
    dense = _Window(window.kernel, (*window.stride[:-1], 1), window.dilation)
    places = [*counts[:-1], (counts[-1] - 1) * step + 1]
    several = weight.reshape(channels, -1, *window.kernel)
    total = None
    for at in window.places():
        element: tuple[Any, ...] = (slice(None), slice(None), *at)
        factor = several[element].reshape(channels, -1, *[1] * len(counts))
        part = dense.met(x, at, places, 2).unsqueeze(2) * factor
        total = part if total is None else total + part
    assert total is not None
    return total[..., ::step].reshape(batch, weight.shape[0], *counts)


def _padded(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    amounts = [border for border in reversed(padding) for _ in range(2)]
    return pad(x, amounts) if any(amounts) else x
