"""Ops that read an image between its pixels: interpolation and grid sampling.

Linear and cubic interpolation are torch's own decompositions, which gather each output's neighbours; the
compiler's forms of them accept few arguments. An antialiased one is a product with a matrix of weights per
axis. The nearest pixel is found in whole numbers, since the compiler may round a scale otherwise than eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size

from aotpipe.passes.decompositions.entries import Decomposition, Table, iota, static, widened

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


def nearest(
    x: torch.Tensor,
    output_size: Sequence[int],
    *scales: float | None,
    centred: bool,
    general: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """Repeat or pick pixels along each dim; `general` where a size is symbolic or no fraction fits."""
    rank = len(output_size)
    sizes = x.shape[-rank:]
    steps = list(map(partial(_steps, centred=centred), sizes, output_size, scales or (None,) * rank))
    if None in steps:
        return general(x, output_size, *scales)
    for dim, (size, out, step) in enumerate(zip(sizes, output_size, steps, strict=True), start=-rank):
        assert step is not None
        if out % size == 0 and step == (size, 0, out):
            wide = x.movedim(dim, -1).unsqueeze(-1)
            x = wide.expand(*wide.shape[:-1], out // size).flatten(-2).movedim(-1, dim)
        elif out != size or step != (size, 0, out):
            over, plus, under = step
            x = x.index_select(dim, torch.div(iota(out, x) * over + plus, under, rounding_mode="floor"))
    return x.clone()


def _steps(size: int, out: int, factor: float | None, *, centred: bool) -> tuple[int, int, int] | None:
    """`a, b, c` such that the pixel of output i is `(a * i + b) // c`, as eager computes it in float32."""
    if not (static(size) and static(out)) or not size:
        return None
    scale = np.float32(1.0 / factor) if factor else np.float32(size) / np.float32(out)
    place = np.arange(out, dtype=np.float32) + np.float32(0.5 if centred else 0.0)
    wanted = np.minimum(np.floor(place * scale).astype(np.int64), size - 1)
    # An output's middle lies on a border of pixels at most, which belongs to the pixel behind it.
    exact = (2 * size, size, 2 * out) if centred else (size, 0, out)
    for over, plus, under in ((size, 0, out), exact):
        if np.array_equal((np.arange(out) * over + plus) // under, wanted):
            return over, plus, under
    return None


def nearest_by_factors(
    x: torch.Tensor,
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
    *,
    by_sizes: Callable[..., torch.Tensor],
) -> torch.Tensor:
    size = upsample_compute_output_size(x.size(), output_size, scale_factors)
    # Not through the op: torch does not decompose it again in here.
    return by_sizes(x, size, *(scale_factors or ()))


def _nearest_entries() -> dict[Any, Decomposition]:
    entries: dict[Any, Decomposition] = {}
    for name, centred in (("upsample_nearest", False), ("_upsample_nearest_exact", True)):
        for rank in (1, 2, 3):
            packet = getattr(aten, f"{name}{rank}d")
            general = decomposition_table[packet.default]
            by_sizes = partial(nearest, centred=centred, general=general)
            entries[packet.default] = by_sizes
            entries[packet.vec] = partial(nearest_by_factors, by_sizes=by_sizes)
    return entries


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
            aten.grid_sampler_2d.default,
        )
    },
    **_nearest_entries(),
    aten._upsample_bilinear2d_aa.default: partial(antialiased, weight=_triangle, support=1.0),
    aten._upsample_bicubic2d_aa.default: partial(antialiased, weight=_cubic, support=2.0),
}
