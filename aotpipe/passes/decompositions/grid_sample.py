"""Sampling a volume at the points of a grid (`aten/src/ATen/native/GridSampler.cpp`).

A volume is `(batch, channels, depth, height, width)`; a point of the grid is `(x, y, z)`, where -1 and 1 are
the outer voxels' centres, or their outer edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.passes.decompositions.entries import Table, empty, static

aten = torch.ops.aten
_NEAREST: Final = 1
_ZEROS, _REFLECTION = 0, 2


def _clipped(at: Tensor, size: int) -> Tensor:
    """The coordinate inside the volume; NaN goes to the last voxel, by the order of eager's comparisons."""
    return torch.where(at == at, at.clamp(0, size - 1), size - 1)


def _reflected(at: Tensor, low: float, span: float) -> Tensor:
    if span == 0:
        return torch.zeros_like(at)
    distance = (at - low).abs()
    extra = torch.fmod(distance, span)
    is_even = torch.remainder((distance / span).floor(), 2.0) == 0
    return torch.where(is_even, extra + low, span - extra + low)


def _coordinate(at: Tensor, size: int, padding: int, align_corners: bool) -> Tensor:
    """The voxel, with a fraction, of a coordinate from -1 to 1 along a dim of that size."""
    at = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
    if padding == _ZEROS:
        return at
    if padding == _REFLECTION:
        at = _reflected(at, 0.0, size - 1) if align_corners else _reflected(at, -0.5, size)
    return _clipped(at, size)


def grid_sampler_3d(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    sizes = x.shape[2:]
    if not all(map(static, sizes)):
        return NotImplemented
    if empty(x, grid):
        return x.new_zeros((*x.shape[:2], *grid.shape[1:4]))
    at = [
        _coordinate(grid.select(-1, 2 - axis), size, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]
    if interpolation_mode == _NEAREST:
        return _voxels(x, [each.round() for each in at], torch.ones_like(at[0]))
    low = [each.floor() for each in at]
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for corner in product((0, 1), repeat=3):
        # As eager multiplies them: x, y, z.
        z, y, x_share = (
            each - start if far else start + 1 - each
            for each, start, far in zip(at, low, corner, strict=True)
        )
        places = [start + far for start, far in zip(low, corner, strict=True)]
        total = total + _voxels(x, places, x_share * y * z)
    return total


def _voxels(x: Tensor, places: Sequence[Tensor], share: Tensor) -> Tensor:
    """The share of the voxel at each place, `(batch, channels, *out)`; 0 outside of the volume."""
    sizes = x.shape[2:]
    inside = torch.ones_like(share, dtype=torch.bool)
    for at, size in zip(places, sizes, strict=True):
        inside = inside & (at >= 0) & (at < size)
    flat = torch.zeros_like(share, dtype=torch.int64)
    for axis, at in enumerate(places):
        flat = flat + torch.where(inside, at, 0).to(torch.int64) * math.prod(sizes[axis + 1 :])
    index = flat.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
    values = x.flatten(2).gather(2, index).reshape(*x.shape[:2], *share.shape[1:])
    return torch.where(inside.unsqueeze(1), values * share.unsqueeze(1), 0)


DECOMPOSITIONS: Table = {aten.grid_sampler_3d.default: grid_sampler_3d}
