"""Maxima over windows that the compiler's pooling does not take: of integers, and of adaptive sizes.

Its pooling knows floats only, and adaptive sizes only where they divide the input's. Here every window is
written out by its positions. One that reaches out of the input, or is shorter than the others, repeats a
position of its own in place of what it lacks, which changes no maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import Table, iota, static

aten = torch.ops.aten


def sliding(
    size: int, count: int, width: int, step: int, border: int, spread: int, like: torch.Tensor
) -> torch.Tensor:
    """The positions (window, element) of the windows of a pooled dim."""
    starts = iota(count, like).unsqueeze(1) * step - border
    # The first element that is not before the input, and the last one that is not behind it.
    first = torch.div((-starts).clamp(min=0) + (spread - 1), spread, rounding_mode="trunc")
    last = torch.div(size - 1 - starts, spread, rounding_mode="trunc")
    inside = torch.minimum(torch.maximum(iota(width, like), first), last)
    return starts + inside * spread


def adaptive(size: int, count: int, like: torch.Tensor) -> torch.Tensor:
    """The positions (window, element) of the windows of a dim that is pooled to a size."""
    windows = iota(count, like).unsqueeze(1)
    starts = torch.div(windows * size, count, rounding_mode="trunc")
    ends = torch.div((windows + 1) * size + (count - 1), count, rounding_mode="trunc")
    width = max(-(-(index + 1) * size // count) - index * size // count for index in range(count))
    return torch.minimum(starts + iota(width, like), ends - 1)


def over_windows(x: torch.Tensor, positions: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The maximum of each window over the last dims, and its position in those dims laid flat."""
    rank = len(positions)
    sizes = x.shape[-rank:]
    numbers = iota(math.prod(sizes), x).reshape(sizes)
    best, found = _windowed(x, positions).max(-1)
    places = _windowed(numbers, positions).expand(*found.shape, -1)
    return best, places.gather(-1, found.unsqueeze(-1)).squeeze(-1)


def _windowed(x: torch.Tensor, positions: Sequence[torch.Tensor]) -> torch.Tensor:
    """The windows in place of the last dims, and the elements of each in one dim behind them."""
    rank = len(positions)
    lead = x.dim() - rank
    for number, index in enumerate(positions):
        dim = lead + 2 * number
        x = x.index_select(dim, index.reshape(-1)).unflatten(dim, index.shape)
    windows, elements = range(lead, x.dim(), 2), range(lead + 1, x.dim(), 2)
    return x.permute(*range(lead), *windows, *elements).flatten(-rank)


def adaptive_max_pool(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    sizes = x.shape[-len(output_size) :]
    if not all(map(static, sizes)):
        return NotImplemented
    pairs = list(zip(sizes, output_size, strict=True))
    if x.is_floating_point() and all(count and size % count == 0 for size, count in pairs):
        kernel = [size // count for size, count in pairs]
        pool = aten.max_pool2d_with_indices if len(pairs) == 2 else aten.max_pool3d_with_indices
        return pool(x, kernel, kernel)
    return over_windows(x, [adaptive(size, count, x) for size, count in pairs])


DECOMPOSITIONS: Table = {
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
}
