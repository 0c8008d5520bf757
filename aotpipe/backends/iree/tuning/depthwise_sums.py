"""Depthwise convolutions as sums of shifted images, where `kernels` has no form for them.

The compiler's own code for several groups uses no vectors: it takes 3 to 5 times as long (IREE 3.13, AVX-512,
one thread).

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
from aotpipe.passes.decompositions.entries import HALF, static

# Of a depthwise convolution, each is a product; else a copy of the input.
_MOST_TAPS: Final = 64
# Of sizes that vary: a kernel of the compiler's takes 64 numbers, and each cut has some of its own.
_MOST_CUTS: Final = 20


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


def cut(x: torch.Tensor, dim: int, start: int, count: int, step: int, reach: int) -> torch.Tensor:
    """Every `step`-th element of a dim from `start` on, `count` of them.

    Where the count varies they are those up to as many before the end as `reach` leaves after `start`.
    """
    if static(count):
        x = x.narrow(dim, start, (count - 1) * step + 1)
    else:
        x = x.narrow(dim, start, x.shape[dim] - reach)
    return x if step == 1 else x[(*[slice(None)] * dim, slice(None, None, step))]


def padded(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """An input with zeros around its last dims."""
    amounts = [border for border in reversed(padding) for _ in range(2)]
    return pad(x, amounts) if any(amounts) else x


def convolution(given: Convolution) -> Any:
    """A convolution of a group for each channel of `[batch, channels, *sizes]`, of one or two sizes.

    NotImplemented where the compiler's own is as fast, or takes what this does not.
    """
    x, weight, padding = given.x, given.weight, given.padding
    sizes = x.shape[2:]
    if (
        len(sizes) not in (1, 2)
        or not all(map(static, (x.shape[1], *weight.shape)))
        or given.groups != x.shape[1]
    ):
        return NotImplemented
    if len(sizes) == 1 and x.dtype in HALF:
        return given.rounded_once(convolution)
    # Sums of half precision are wider than their operands: those of images stay the compiler's.
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    window = Window(weight.shape[2:], given.stride, given.dilation)
    counts = window.counts([size + 2 * border for size, border in zip(sizes, padding, strict=True)])
    # A size that varies is never 0 here: eager refuses it.
    if min([1, *filter(static, (*counts, *sizes, x.shape[1]))]) < 1:
        return NotImplemented
    found = _depthwise(given, window, counts)
    return found if found is NotImplemented else given.with_bias(found)


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
