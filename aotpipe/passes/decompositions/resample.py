"""Ops that sample an image: interpolation, grid sampling, and maxima over windows.

Linear and cubic interpolation are torch's own decompositions, which gather each output's neighbours; the
compiler's forms of them accept few arguments. An antialiased one is a product with a matrix of weights per
axis. The nearest pixel is found in whole numbers, since the compiler may round a scale otherwise than eager.

The compiler's pooling knows floats only, and adaptive sizes only where they divide the input's. The other
maxima over windows are written out by positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy as np
import sympy
import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size

from aotpipe.passes.decompositions.entries import HALF, Decomposition, Table, Value, iota, static, widened

aten = torch.ops.aten

_LONGEST: Final = 2**16
"""Up to which size of an output its pixels are compared with eager's, where the size varies."""
_FEW: Final = 128
"""Rows and columns of an image, up to which eager has a kernel of its own."""
_CHANNELS_LAST: Final = {2: torch.channels_last, 3: torch.channels_last_3d}
Filter = Callable[[Tensor], Tensor]
"""The weight of a pixel by its distance from the output's centre, in support units."""


def antialiased(
    x: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
    weight: Filter,
    support: float,
) -> Tensor:
    """Resample the last two dims, one after the other, as `_upsample_*_aa` do."""
    (wide,) = widened(x)
    rows, columns = (
        _weights(wide, size, out, scale, align_corners, weight, support)
        for size, out, scale in zip(x.shape[-2:], output_size, scales or (None, None), strict=True)
    )
    return torch.matmul(torch.matmul(rows, wide), columns.transpose(0, 1)).to(x.dtype)


def _weights(
    like: Tensor,
    size: int,
    out: int,
    factor: float | None,
    align_corners: bool,
    weight: Filter,
    support: float,
) -> Tensor:
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


def nearest(x: Tensor, output_size: Sequence[int], *scales: float | None, centred: bool) -> Tensor:
    """Repeat or pick pixels along each dim, by places in float32 where no fraction of the sizes fits."""
    rank = len(output_size)
    sizes = x.shape[-rank:]
    factors: Sequence[Value | None] = scales or (None,) * rank
    if not centred:
        factors = tuple(
            map(partial(_used_factor, _ignores_factors(x, output_size)), sizes, output_size, factors)
        )
    if not all(map(static, output_size)):
        times = list(map(partial(_repeats, centred=centred), sizes, output_size, factors))
        whole = [count for count in times if count is not None]
        return _repeated(x, whole) if len(whole) == rank else _picked(x, output_size, factors, centred)
    steps = list(map(partial(_steps, centred=centred), sizes, output_size, factors))
    if None in steps:
        return _picked(x, output_size, factors, centred)
    for dim, (size, out, step) in enumerate(zip(sizes, output_size, steps, strict=True), start=-rank):
        assert step is not None
        if out % size == 0 and step == (size, 0, out):
            wide = x.movedim(dim, -1).unsqueeze(-1)
            x = wide.expand(*wide.shape[:-1], out // size).flatten(-2).movedim(-1, dim)
        elif out != size or step != (size, 0, out):
            over, plus, under = step
            x = x.index_select(dim, torch.div(iota(out, x) * over + plus, under, rounding_mode="floor"))
    return x.clone()


def _ignores_factors(x: Tensor, output_size: Sequence[int]) -> Value:
    """Whether eager takes the ratio of the sizes for a factor where that is 1 or 2.

    The kernels for few pixels of images and for channels that come last do (`nearest_idx` and
    `_use_vectorized_kernel_cond_2d` in UpSampleKernel.cpp), and those for all other inputs do not.
    """
    rank, pixels = len(output_size), sum(output_size)
    if rank > 1 and static(x.shape[1]) and x.shape[1] > 3:
        if all(map(static, x.shape)):
            is_last = x.is_contiguous(memory_format=_CHANNELS_LAST[rank])
        else:
            is_last = static(x.stride(1)) and x.stride(1) == 1
        if is_last:
            return True
    if rank == 2 and not static(pixels):
        return torch.full((), pixels, dtype=torch.int64, device=x.device) <= _FEW
    return rank == 2 and pixels <= _FEW


def _used_factor(ignores: Value, size: int, out: int, factor: Value | None) -> Value | None:
    """The factor of a dim, None where eager ignores it; a tensor where only a run knows."""
    if isinstance(factor, Tensor) or not factor or ignores is False:
        return factor
    if static(size) and static(out) and not isinstance(ignores, Tensor):
        return None if out in (size, 2 * size) else factor
    ratio = sympy.cancel(_expression(out) / _expression(size))
    if ratio.is_Integer and int(ratio) == factor:
        return factor
    given, wanted = (torch.full((), number, dtype=torch.int64) for number in (size, out))
    is_ignored = ((wanted == given) | (wanted == 2 * given)) & ignores
    return torch.where(is_ignored, wanted / given, factor)


def _picked(x: Tensor, output_size: Sequence[int], factors: Sequence[Value | None], centred: bool) -> Tensor:
    """The last pixel is repeated where a factor is less than the ratio of the sizes."""
    for dim, (out, factor) in enumerate(zip(output_size, factors, strict=True), start=-len(factors)):
        size = x.shape[dim]
        place = iota(out, x, torch.float32) + (0.5 if centred else 0.0)
        step = 1.0 / factor if isinstance(factor, Tensor) or factor else size / out
        x = x.index_select(dim, (place * step).to(torch.int64).clamp_max(size - 1))
    return x


def _repeated(x: Tensor, times: Sequence[int]) -> Tensor:
    """Each pixel of the last dims as often as is said of its dim."""
    for dim, count in enumerate(times, start=-len(times)):
        wide = x.movedim(dim, -1)
        spread = wide.unsqueeze(-1).expand(*wide.shape, count)
        x = spread.reshape(*wide.shape[:-1], wide.shape[-1] * count).movedim(-1, dim)
    return x.clone()


def _repeats(size: int, out: int, factor: Value | None, *, centred: bool) -> int | None:
    """How often each pixel follows itself, where that is the same whole number for all sizes; else None."""
    ratio = sympy.cancel(_expression(out) / _expression(size))
    times = int(ratio) if ratio.is_Integer else 0
    if times < 1 or isinstance(factor, Tensor) or (factor and factor != times):
        return None
    return times if _is_repeated(times, centred=centred) else None


@cache
def _is_repeated(times: int, *, centred: bool) -> bool:
    """Whether eager repeats pixels evenly: it multiplies each place by a reciprocal in float32."""
    place = np.arange(_LONGEST, dtype=np.float32) + np.float32(0.5 if centred else 0.0)
    return np.array_equal(np.floor(place * np.float32(1.0 / times)), np.arange(_LONGEST) // times)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _steps(size: int, out: int, factor: Value | None, *, centred: bool) -> tuple[int, int, int] | None:
    """`a, b, c` such that the pixel of output i is `(a * i + b) // c`, as eager computes it in float32."""
    if not (static(size) and static(out)) or not size or isinstance(factor, Tensor):
        return None
    scale = np.float32(1.0 / factor) if factor else np.float32(size) / np.float32(out)
    place = np.arange(out, dtype=np.float32) + np.float32(0.5 if centred else 0.0)
    wanted = np.minimum(np.floor(place * scale).astype(np.int64), size - 1)
    # The middle of an output may lie on the border of two pixels, which belongs to the second one.
    exact = (2 * size, size, 2 * out) if centred else (size, 0, out)
    for over, plus, under in ((size, 0, out), exact):
        if np.array_equal((np.arange(out) * over + plus) // under, wanted):
            return over, plus, under
    return None


def nearest_by_factors(
    x: Tensor,
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
    *,
    by_sizes: Callable[..., Tensor],
) -> Tensor:
    size = upsample_compute_output_size(x.size(), output_size, scale_factors)
    # The function is called directly, as torch does not decompose an op inside its own decomposition.
    return by_sizes(x, size, *(scale_factors or ()))


def _nearest_entries() -> dict[Any, Decomposition]:
    entries: dict[Any, Decomposition] = {}
    for name, centred in (("upsample_nearest", False), ("_upsample_nearest_exact", True)):
        for rank in (1, 2, 3):
            packet = getattr(aten, f"{name}{rank}d")
            by_sizes = partial(nearest, centred=centred)
            entries[packet.default] = by_sizes
            entries[packet.vec] = partial(nearest_by_factors, by_sizes=by_sizes)
    return entries


def _triangle(distance: Tensor) -> Tensor:
    return (1.0 - distance.abs()).clamp(min=0.0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5, as Pillow's."""
    x = distance.abs()
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


# Maxima over windows: a window that reaches out of the input, or is shorter than the others, repeats a
# position of its own in place of what it lacks, which changes no maximum.


def sliding(size: int, count: int, width: int, step: int, border: int, spread: int, like: Tensor) -> Tensor:
    """The positions (window, element) of the windows of a pooled dim."""
    starts = iota(count, like).unsqueeze(1) * step - border
    # The first element that is not before the input, and the last one that is not behind it.
    first = torch.div((-starts).clamp(min=0) + (spread - 1), spread, rounding_mode="trunc")
    last = torch.div(size - 1 - starts, spread, rounding_mode="trunc")
    inside = torch.minimum(torch.maximum(iota(width, like), first), last)
    return starts + inside * spread


def adaptive(size: int, count: int, like: Tensor) -> Tensor:
    """The positions (window, element) of the windows of a dim that is pooled to a size."""
    windows = iota(count, like).unsqueeze(1)
    starts = torch.div(windows * size, count, rounding_mode="trunc")
    ends = torch.div((windows + 1) * size + (count - 1), count, rounding_mode="trunc")
    # Of a size that varies the most that a window may have.
    each = (-(-(index + 1) * size // count) - index * size // count for index in range(count))
    width = max(each) if static(size) else size // count + 2
    return torch.minimum(starts + iota(width, like), ends - 1)


def over_windows(x: Tensor, positions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The maximum of each window over the last dims, and its position in those dims laid flat."""
    rank = len(positions)
    sizes = x.shape[-rank:]
    numbers = iota(math.prod(sizes), x).reshape(sizes)
    best, found = windowed(x, positions).max(-1)
    places = windowed(numbers, positions).expand(*found.shape, -1)
    return best, places.gather(-1, found.unsqueeze(-1)).squeeze(-1)


def windowed(x: Tensor, positions: Sequence[Tensor]) -> Tensor:
    """The windows in place of the last dims, and the elements of each in one dim behind them."""
    rank = len(positions)
    lead = x.dim() - rank
    for number, index in enumerate(positions):
        dim = lead + 2 * number
        x = x.index_select(dim, index.reshape(-1)).unflatten(dim, index.shape)
    windows, elements = range(lead, x.dim(), 2), range(lead + 1, x.dim(), 2)
    return x.permute(*range(lead), *windows, *elements).flatten(-rank)


def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    pairs = list(zip(x.shape[-len(output_size) :], output_size, strict=True))
    if x.is_floating_point() and all(static(size) and count and size % count == 0 for size, count in pairs):
        kernel = [size // count for size, count in pairs]
        pool = aten.max_pool2d_with_indices if len(pairs) == 2 else aten.max_pool3d_with_indices
        return pool(x, kernel, kernel)
    return over_windows(x, [adaptive(size, count, x) for size, count in pairs])


def fractional_max_pool(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> Any:
    """Windows at places that a sample of each channel shifts (B. Graham, "Fractional Max-Pooling", 2014)."""
    rank = len(output_size)
    sizes, lead = x.shape[-rank:], x.shape[:-rank]
    if x.dtype in HALF or not all(map(static, sizes)):
        return NotImplemented
    samples = random_samples.reshape(*lead, rank)
    # In two dims eager takes the first sample for the columns.
    samples = samples.flip(-1) if rank == 2 else samples
    place: Any = 0
    for dim, (size, width, out) in enumerate(zip(sizes, kernel_size, output_size, strict=True)):
        at = (_shifted(samples.select(-1, dim), size, width, out).unsqueeze(-1) + iota(width, x)).reshape(
            *lead, *_along(rank, dim, out), *_along(rank, dim, width)
        )
        place = place * size + at
    found_at = place.flatten(-rank)
    values = x.flatten(-rank).gather(-1, found_at.flatten(len(lead))).reshape(found_at.shape)
    # The last NaN of a window, or the first of its largest elements.
    is_nan = values != values
    last_nan = torch.where(is_nan, iota(values.shape[-1], x), -1).amax(-1)
    best = torch.where(is_nan, -math.inf, values).argmax(-1)
    chosen = torch.where(last_nan >= 0, last_nan, best).unsqueeze(-1)
    return values.gather(-1, chosen).squeeze(-1), found_at.gather(-1, chosen).squeeze(-1)


def _along(rank: int, dim: int, size: int) -> list[int]:
    return [size if axis == dim else 1 for axis in range(rank)]


def _shifted(sample: Tensor, size: int, width: int, out: int) -> Tensor:
    """Where the windows of a dim begin, `(*sample.shape, out)`."""
    last = torch.full((*sample.shape, 1), size - width, dtype=torch.int64, device=sample.device)
    if out == 1:
        return last
    ratio = sample.new_full((), size - width) / (out - 1)
    shift = sample.unsqueeze(-1)
    order = iota(out - 1, sample, sample.dtype)
    starts = ((order + shift) * ratio).to(torch.int64) - (shift * ratio).to(torch.int64)
    return torch.cat([starts, last], -1)


DECOMPOSITIONS: Table = {
    **{
        op: decomposition_table[op]
        for op in (
            aten.upsample_bilinear2d.vec,
            aten.upsample_bilinear2d.default,
            aten.upsample_trilinear3d.default,
            aten.upsample_bicubic2d.default,
            aten.grid_sampler_2d.default,
            aten.max_pool2d_with_indices_backward.default,
        )
    },
    **_nearest_entries(),
    aten._upsample_bilinear2d_aa.default: partial(antialiased, weight=_triangle, support=1.0),
    aten._upsample_bicubic2d_aa.default: partial(antialiased, weight=_cubic, support=2.0),
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten.fractional_max_pool2d.default: fractional_max_pool,
    aten.fractional_max_pool3d.default: fractional_max_pool,
}
