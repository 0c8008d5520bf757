"""Histograms of one and of several dims, over bins of equal width or between given edges, and of integers.

An element belongs to the last bin whose left edge is not above it, and the right edge of the last bin is in
it, as in eager; what lies outside of all bins, and NaN, is counted nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import Table, empty

aten = torch.ops.aten
Range = Sequence[float] | None


def _ends(values: Tensor, given: Range) -> tuple[Tensor, Tensor]:
    """The outer edges of the bins of one dim, half a unit from the values where they are all the same."""
    if given is not None or empty(values):
        low, high = given or (0.0, 1.0)
        wide = 0.5 if low == high else 0.0
        # A tensor of literals would be a constant that torch detaches in place while it decomposes.
        return values.new_full((), low - wide), values.new_full((), high + wide)
    torch._assert_async(values.isfinite().all(), "histogram: without a range, every value has to be finite")
    lowest, highest = values.amin(), values.amax()
    same = lowest == highest
    return torch.where(same, lowest - 0.5, lowest), torch.where(same, highest + 0.5, highest)


def _edges(values: Tensor, bins: int, given: Range) -> Tensor:
    """The `(bins + 1,)` edges, counted from the nearer end as `torch.linspace` does."""
    low, high = _ends(values, given)
    step = (high - low) / bins
    order = torch.arange(bins + 1, device=values.device)
    from_low = low + step * order.to(values.dtype)
    from_high = high - step * (bins - order).to(values.dtype)
    return torch.where(order < (bins + 1) // 2, from_low, from_high)


def _counted(rows: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """The histogram of the rows `(count, dims)` between the edges of each dim."""
    counts = [edge.shape[0] - 1 for edge in edges]
    place = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
    inside = torch.ones(rows.shape[0], dtype=torch.bool, device=rows.device)
    for dim, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        values = rows.select(1, dim).contiguous()
        bin_of = (torch.searchsorted(edge, values, right=True) - 1).clamp(0, count - 1)
        inside = inside & (values >= edge[0]) & (values <= edge[-1])
        place = place * count + bin_of
    shares = torch.ones_like(place, dtype=rows.dtype) if weight is None else weight.reshape(-1).to(rows.dtype)
    found = rows.new_zeros(math.prod(counts))
    if not empty(rows):
        found = found.scatter_add(0, torch.where(inside, place, 0), torch.where(inside, shares, 0))
    found = found.reshape(counts)
    if density:
        found = found / found.sum()
        for dim, edge in enumerate(edges):
            found = found / edge.diff().reshape([-1 if axis == dim else 1 for axis in range(len(edges))])
    return found


def histogram(
    x: Tensor, bins: int = 100, *, range: Range = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    rows = x.reshape(-1, 1)
    edges = _edges(rows, bins, range)
    return _counted(rows, [edges], weight, density), edges


def histogram_of_edges(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    return _counted(x.reshape(-1, 1), [bins], weight, density), bins.clone()


def bin_edges(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Range = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    rows = x.flatten(0, -2)
    of_dims = [None if range is None else range[2 * dim : 2 * dim + 2] for dim, _ in enumerate(bins)]
    return [
        _edges(rows.select(1, dim), count, ends)
        for dim, (count, ends) in enumerate(zip(bins, of_dims, strict=True))
    ]


def histogramdd(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Range = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    return _counted(x.flatten(0, -2), bin_edges(x, bins, range=range), weight, density)


def histogramdd_of_edges(
    x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    return _counted(x.flatten(0, -2), bins, weight, density)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    ops.ASSERT_TENSOR((x >= 0).all(), "bincount only supports 1-d non-negative integral inputs")
    # What fails the assert is computed all the same, inside of the bounds.
    places = x.to(torch.int64).clamp_min(0)
    count: Any = (torch.cat([places, places.new_full((1,), minlength - 1)]).amax() + 1).item()
    torch._check(count >= minlength)
    if weights is None:
        shares = torch.ones_like(places)
    else:
        shares = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    return shares.new_zeros(count).scatter_add(0, places, shares)


DECOMPOSITIONS: Table = {
    aten.bincount.default: bincount,
    aten.histogram.bin_ct: histogram,
    aten.histogram.bins_tensor: histogram_of_edges,
    aten._histogramdd_bin_edges.default: bin_edges,
    aten._histogramdd_from_bin_cts.default: histogramdd,
    aten._histogramdd_from_bin_tensors.default: histogramdd_of_edges,
}
