"""Convolutions of lines and images as matmuls of their windows.

IREE's own loops over an image are fast where `channels_last` says so. Elsewhere they are slow (3.13,
AVX-512, one thread): a strided convolution of 256 channels of one element takes 37 times as long by them as
here, one of a line of 80 channels 36 times, one of 512 channels, whose weights they read again for each few
columns, twice. Where the sizes vary, too: a line takes 13 to 40 times as long, an image 5 to 20 times.

Its code for several groups makes no vectors: 32 groups of 8 channels of 28x28 take 16 times as long as eager
by it, depthwise convolutions 3 to 5 times. Here groups are convolutions of their own, beside each other, or a
batch of matmuls where there are many; a depthwise one is a sum of shifted images, where `depthwise` has no
form for it.

Where sizes vary, a cut of them ends where the input does, so that what is left has the size of eager's own
result: with an end that is computed, a cut is as long as the shorter of two numbers, as far as torch knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch.nn.functional import pad

from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning import channels_last, depthwise
from aotpipe.passes.decompositions.entries import HALF, static

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
# Of a depthwise convolution, each is a product; else a copy of the input.
_MOST_TAPS: Final = 64
# Of sizes that vary: a kernel of the compiler's takes 64 numbers, and each cut has some of its own.
_MOST_CUTS: Final = 20
# Each is compiled, and started by itself; but a batch of matmuls takes 1 to 4 times as long.
_MOST_APART: Final = 32
# How many cuts of one dim are joined at once, and the places of a dim that are part of a program.
_MOST_JOINED: Final = 8
_TABLE: Final = 1 << 12


class Window(NamedTuple):
    """What slides over the padded sizes."""

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """How many places there are along each dim."""
        each = zip(sizes, self.kernel, self.stride, self.dilation, strict=True)
        return [(size - spread * (width - 1) - 1) // step + 1 for size, width, step, spread in each]

    def places(self) -> Iterator[tuple[int, ...]]:
        """The elements of the kernel, in its order."""
        return product(*map(range, self.kernel))

    def met(self, x: torch.Tensor, at: Sequence[int], counts: Sequence[int], dims: int) -> torch.Tensor:
        """What one element of the kernel meets in all places; `dims` come before the padded sizes."""
        each = zip(at, self.dilation, self.stride, self.kernel, counts, strict=True)
        for dim, (place, spread, step, width, count) in enumerate(each, start=dims):
            x = cut(x, dim, place * spread, count, step, (width - 1) * spread)
        return x

    def joined(self, x: torch.Tensor, dim: int, count: int) -> torch.Tensor:
        """What the kernel meets along a dim of `[batch, *sizes, channels]`, as channels of each place."""
        width, step, spread = self.kernel[dim], self.stride[dim], self.dilation[dim]
        if width > _MOST_JOINED and spread == 1:
            # One kernel to compile, where copies are one for each cut.
            return x.unfold(1 + dim, width, step).movedim(-1, -2).flatten(-2)
        # Twice eight copies in place of 64.
        some = 1 if step > 1 else max(n for n in range(1, _MOST_JOINED + 1) if width % n == 0)
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


def cut(x: torch.Tensor, dim: int, start: int, count: int, step: int, reach: int) -> torch.Tensor:
    """Every `step`-th element of a dim from `start` on, `count` of them.

    Where the count varies they are those up to as many before the end as `reach` leaves after `start`.
    """
    if static(count):
        x = x.narrow(dim, start, (count - 1) * step + 1)
    else:
        x = x.narrow(dim, start, x.shape[dim] - reach)
    return x if step == 1 else x[(*[slice(None)] * dim, slice(None, None, step))]


def _joined(x: torch.Tensor, dim: int, times: int, apart: int, step: int, count: int) -> torch.Tensor:
    """Some cuts of a dim, each of `count` places, joined along the last one."""
    reach = (times - 1) * apart
    cuts = [cut(x, dim, index * apart, count, step, reach) for index in range(times)]
    return torch.cat(cuts, -1) if times > 1 else cuts[0]


def padded(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """An input with zeros around its last dims."""
    amounts = [border for border in reversed(padding) for _ in range(2)]
    return pad(x, amounts) if any(amounts) else x


def _along(dim: int, rank: int, line: torch.Tensor) -> torch.Tensor:
    return line.reshape([-1 if each == dim else 1 for each in range(rank)])


def convolution(given: Convolution) -> Any:
    """A convolution over `[batch, channels, *sizes]`, of one or two sizes.

    NotImplemented where the compiler's own is as fast, or takes what this does not.
    """
    x, weight, padding = given.x, given.weight, given.padding
    sizes = x.shape[2:]
    if len(sizes) == 1 and x.dtype in HALF:
        return given.rounded_once(convolution)
    if channels_last.ARE_READY.get() or x.dtype not in DTYPES:
        return NotImplemented
    if len(sizes) not in (1, 2) or not all(map(static, (x.shape[1], *weight.shape))):
        return NotImplemented
    window = Window(weight.shape[2:], given.stride, given.dilation)
    counts = window.counts([size + 2 * border for size, border in zip(sizes, padding, strict=True)])
    # A size that varies is never 0 here: eager refuses it.
    if min([1, *filter(static, (*counts, *sizes, x.shape[1]))]) < 1:
        return NotImplemented
    if given.groups > 1:
        found = _grouped(given, window, counts)
    elif len(sizes) == 2 and _is_looped(given, counts):
        found = channels_last.filled(given, counts)
        if found is NotImplemented and given.bias is not None:
            # A sum that the compiler makes beside others, not the start of the loops.
            found = torch.ops.aten.convolution(*given._replace(bias=None, output_padding=[0] * len(sizes)))
    else:
        found = _matmul(given, window, counts)
        if found is NotImplemented and len(sizes) == 2 and all(map(static, sizes)):
            found = channels_last.filled(given, counts)
    return found if found is NotImplemented else given.with_bias(found)


def _is_looped(given: Convolution, counts: Sequence[int]) -> bool:
    outputs, channels, *kernel = given.weight.shape
    known = all(map(static, given.x.shape[2:]))
    return known and channels_last.suits(channels, outputs, kernel, given.stride, counts)


def _matmul(given: Convolution, window: Window, counts: Sequence[int]) -> Any:
    x, weight, padding = given.x, given.weight, given.padding
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


def _grouped(given: Convolution, window: Window, counts: Sequence[int]) -> Any:
    """A convolution of more than one group, without a bias; NotImplemented where it is the compiler's."""
    if given.groups == given.x.shape[1]:
        found = depthwise.convolution(given)
        return _depthwise(given, window, counts) if found is NotImplemented else found
    if given.groups <= _MOST_APART and prod(window.kernel) > 1:
        return _apart(given, window)
    return _batched(given, window, counts)


def _apart(given: Convolution, window: Window) -> torch.Tensor:
    convolve = (torch.conv1d, torch.conv2d)[len(window.kernel) - 1]
    pairs = zip(given.x.chunk(given.groups, 1), given.weight.chunk(given.groups), strict=True)
    parts = [convolve(*pair, None, window.stride, given.padding, window.dilation) for pair in pairs]
    return torch.cat(parts, 1)


def _batched(given: Convolution, window: Window, counts: Sequence[int]) -> Any:
    """As a matmul for each group, with the channels first: images are read by their rows."""
    taps = prod(window.kernel)
    if taps > _MOST_TAPS:
        return NotImplemented
    x, weight, groups = padded(given.x, given.padding), given.weight, given.groups
    batch, channels, *sizes = x.shape
    several = x.reshape(batch, groups, channels // groups, *sizes)
    parts = [window.met(several, at, counts, 3) for at in window.places()]
    joined = torch.cat(parts, 2) if taps > 1 else parts[0]
    columns = weight.reshape(groups, -1, channels // groups, taps).transpose(2, 3).flatten(2)
    return (columns @ joined.flatten(3)).reshape(batch, weight.shape[0], *counts)


def _depthwise(given: Convolution, window: Window, counts: Sequence[int]) -> Any:
    """Of a group for each channel: the image times a number of each, for each element of the kernel."""
    is_known = all(map(static, counts))
    if is_known and prod(window.kernel) > _MOST_TAPS:
        # The compiler's own takes as long, and more products would take it minutes.
        return NotImplemented
    x, weight = padded(given.x, given.padding), given.weight
    if not is_known and (prod(window.kernel) > _MOST_TAPS or sum(window.kernel) > _MOST_CUTS):
        return _summed(x, weight, window, counts)
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


def _summed(x: torch.Tensor, weight: torch.Tensor, window: Window, counts: Sequence[int]) -> torch.Tensor:
    """As a sum over windows, which are read one by one."""
    batch, channels = x.shape[:2]
    rank = len(counts)
    each = zip(window.kernel, window.stride, window.dilation, strict=True)
    for dim, (width, step, spread) in enumerate(each):
        x = x.unfold(2 + dim, spread * (width - 1) + 1, step)[..., ::spread]
    several = weight.reshape(channels, -1, *[1] * rank, *window.kernel)
    total = (x.unsqueeze(2) * several).sum([-1 - dim for dim in range(rank)])
    return total.reshape(batch, weight.shape[0], *counts)
