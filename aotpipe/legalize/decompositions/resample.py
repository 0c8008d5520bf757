"""Ops that read an image between its pixels: interpolation and grid sampling.

Linear and cubic interpolation are torch's own decompositions, which gather each output's neighbours; the
compiler's forms of them accept few arguments. An antialiased one is a product with a matrix of weights per
axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch._decomp import decomposition_table

from aotpipe.legalize.decompositions.entries import Table, iota, widened

aten = torch.ops.aten

Filter = Callable[[torch.Tensor], torch.Tensor]
"""The weight of a pixel by its distance from the output's centre, in support units."""


def antialiased(
    x: torch.Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
    weight: Filter,
    support: float,
) -> torch.Tensor:
    """Resample the last two dims, one after the other, as `_upsample_*_aa` do."""
    (wide,) = widened(x)
    rows, columns = (
        _weights(wide, size, out, scale, align_corners, weight, support)
        for size, out, scale in zip(x.shape[-2:], output_size, scales or (None, None), strict=True)
    )
    return torch.matmul(torch.matmul(rows, wide), columns.transpose(0, 1)).to(x.dtype)


def _weights(
    like: torch.Tensor,
    size: int,
    out: int,
    factor: float | None,
    align_corners: bool,
    weight: Filter,
    support: float,
) -> torch.Tensor:
    """The matrix (out, size) of one axis (`_compute_indices_min_size_weights_aa` in UpSampleKernel.cpp)."""
    if align_corners:
        scale = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = 1.0 / factor if factor else size / out
    reach = support * scale if scale >= 1.0 else support
    inverse = 1.0 / scale if scale >= 1.0 else 1.0
    centre = scale * (iota(out, like, like.dtype) + 0.5)
    first = (centre - reach + 0.5).to(torch.int64).clamp(min=0)
    end = (centre + reach + 0.5).to(torch.int64).clamp(max=size)
    pixel = iota(size, like)
    inside = (pixel >= first.unsqueeze(1)) & (pixel < end.unsqueeze(1))
    distance = (pixel.to(like.dtype) - centre.unsqueeze(1) + 0.5) * inverse
    weights = torch.where(inside, weight(distance), 0.0)
    return weights / weights.sum(1, keepdim=True)


def _triangle(distance: torch.Tensor) -> torch.Tensor:
    return (1.0 - distance.abs()).clamp(min=0.0)


def _cubic(distance: torch.Tensor) -> torch.Tensor:
    """Keys' kernel with a = -0.5, as Pillow's."""
    x = distance.abs()
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


DECOMPOSITIONS: Table = {
    **{
        op: decomposition_table[op]
        for op in (
            aten.upsample_bilinear2d.vec,
            aten.upsample_bilinear2d.default,
            aten.upsample_trilinear3d.default,
            aten.upsample_bicubic2d.default,
            aten.upsample_nearest2d.vec,
            aten.grid_sampler_2d.default,
        )
    },
    aten._upsample_bilinear2d_aa.default: partial(antialiased, weight=_triangle, support=1.0),
    aten._upsample_bicubic2d_aa.default: partial(antialiased, weight=_cubic, support=2.0),
}
