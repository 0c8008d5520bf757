"""What slides over the sizes of an input: where a window's elements meet it.

Sizes may vary. Then a cut of them ends where the input does, so that what is left has the size of eager's own
result: with an end that is computed, a cut is as long as the shorter of two numbers, as far as torch knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import torch
from torch.nn.functional import pad

from aotpipe.passes.decompositions.entries import static

_COPIES: Final = 8
_TABLE: Final = 1 << 12


class Window:
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
        each = zip(at, self.dilation, self.stride, self.kernel, counts, strict=True)
        for dim, (place, spread, step, width, count) in enumerate(each, start=dims):
            x = cut(x, dim, place * spread, count, step, (width - 1) * spread)
        return x

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
    """A line as a tensor of a rank, along one of its dims."""
    return line.reshape([-1 if each == dim else 1 for each in range(rank)])
