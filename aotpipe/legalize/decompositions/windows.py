"""Ops that slide a window: convolutions and pools.

The compiler drops a dim of size 1 from a strided window op without dropping the input that no window reaches,
and refuses its own result. So where there is one window along a dim, the input ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from aotpipe.legalize.decompositions.entries import Table, static

aten = torch.ops.aten


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if transposed:
        return NotImplemented
    rank = x.dim() - 2
    stride, padding, dilation = (_each(numbers, rank) for numbers in (stride, padding, dilation))
    ends = _ends(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    if not any(end is not None for end in ends):
        return NotImplemented
    fitted, left = _fit(x, padding, ends, 0.0)
    return aten.convolution(fitted, weight, bias, stride, left, dilation, transposed, output_padding, groups)


def avg_pool(
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    rank = len(kernel)
    padding = _each(padding, rank)
    stride = _each(stride, rank) or list(kernel)
    ends = _ends(x.shape[-rank:], kernel, stride, padding, [1] * rank)
    if ceil_mode or not any(end is not None for end in ends):
        return NotImplemented
    pool = aten.avg_pool2d if rank == 2 else aten.avg_pool3d

    def pooled(x: torch.Tensor, divisor: int | None) -> torch.Tensor:
        fitted, left = _fit(x, padding, ends, 0.0)
        return pool(fitted, kernel, stride, left, ceil_mode, True, divisor)

    if count_include_pad or divisor_override or not any(padding):
        return pooled(x, divisor_override)
    return pooled(x, 1) / pooled(torch.ones_like(x), 1)


def avg_pool1d(
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    across = avg_pool(
        x.unsqueeze(-2), [1, *kernel], [1, *(stride or kernel)], [0, *padding], ceil_mode, count_include_pad
    )
    return across if across is NotImplemented else across.squeeze(-2)


def max_pool_with_indices(
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    rank = len(kernel)
    padding, dilation = _each(padding, rank), _each(dilation, rank)
    stride = _each(stride, rank) or list(kernel)
    ends = _ends(x.shape[-rank:], kernel, stride, padding, dilation)
    if ceil_mode or not any(end is not None for end in ends):
        return NotImplemented
    op = {2: aten.max_pool2d_with_indices, 3: aten.max_pool3d_with_indices}[rank]
    lowest = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    fitted, left = _fit(x, padding, ends, lowest)
    values, indices = op(fitted, kernel, stride, left, dilation, ceil_mode)
    added = [before - rest for before, rest in zip(padding, left, strict=True)]
    return values, _moved(indices, fitted.shape[-rank:], x.shape[-rank:], added)


def _ends(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int | None]:
    """For each dim where the only window ends before the padded input does: what comes before its end."""
    ends: list[int | None] = []
    for size, width, step, border, spread in zip(sizes, kernel, stride, padding, dilation, strict=True):
        reach = spread * (width - 1) + 1
        alone = static(size) and reach < size + 2 * border < reach + step
        ends.append(reach - border if alone else None)
    return ends


def _fit(
    x: torch.Tensor, padding: Sequence[int], ends: Sequence[int | None], value: float
) -> tuple[torch.Tensor, list[int]]:
    """The input that ends with its window along those dims, and the padding that is left to the op."""
    left = [border if end is None else 0 for border, end in zip(padding, ends, strict=True)]
    amounts: list[int] = []
    for dim, (end, border) in enumerate(zip(ends, padding, strict=True), start=x.dim() - len(ends)):
        if end is None:
            amounts[:0] = [0, 0]
            continue
        size = x.shape[dim]
        x = x.narrow(dim, 0, min(end, size))
        amounts[:0] = [border, max(end - size, 0)]
    return (pad(x, amounts, value=value) if any(amounts) else x), left


def _moved(
    indices: torch.Tensor, fitted: Sequence[int], sizes: Sequence[int], added: Sequence[int]
) -> torch.Tensor:
    """Positions in the flat fitted input as positions in the flat input."""
    flat = torch.zeros_like(indices)
    scale = 1
    for found, size, before in reversed(list(zip(fitted, sizes, added, strict=True))):
        flat = flat + (indices % found - before) * scale
        indices = indices // found
        scale *= size
    return flat


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    """A number for each dim; none stays none."""
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


DECOMPOSITIONS: Table = {
    aten.convolution.default: convolution,
    aten.avg_pool1d.default: avg_pool1d,
    aten.avg_pool2d.default: avg_pool,
    aten.avg_pool3d.default: avg_pool,
    aten.max_pool2d_with_indices.default: max_pool_with_indices,
    aten.max_pool3d_with_indices.default: max_pool_with_indices,
}
