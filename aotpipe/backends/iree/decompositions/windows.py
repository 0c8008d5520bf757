"""Ops that slide a window: convolutions and pools, as the compiler takes them for any device.

The compiler drops a dim of size 1 from a strided window op without dropping the input that no window reaches,
and refuses its own result. So where there is one window along a dim, the input ends with it. And it pads more
than `ceil_mode` asks for; so the padding of that mode is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple, Self

import torch
from torch.nn.functional import pad

from aotpipe.passes.decompositions.entries import HALF, Table, static
from aotpipe.passes.decompositions.resample import adaptive, over_windows, sliding, windowed

aten = torch.ops.aten


class Convolution(NamedTuple):
    """What `aten.convolution` is given, with a number for each dim."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool = False
    output_padding: Sequence[int] = ()
    groups: int = 1

    @classmethod
    def of(cls, *args: Any, **kwargs: Any) -> Self:
        """The arguments of a call, which may have one number for all dims."""
        given = cls(*args, **kwargs)
        rank = given.weight.dim() - 2
        names = ("stride", "padding", "dilation", "output_padding")
        numbers: dict[str, Any] = {name: _each(getattr(given, name), rank) for name in names}
        return given._replace(**numbers)

    def rounded_once(self, form: Callable[[Convolution], Any]) -> Any:
        """A form in float32 where the operands are of half precision: each of its sums would round."""
        if self.x.dtype not in HALF:
            return form(self)
        x, weight = self.x.float(), self.weight.float()
        bias = None if self.bias is None else self.bias.float()
        found = form(self._replace(x=x, weight=weight, bias=bias))
        return found if found is NotImplemented else found.to(self.x.dtype)

    def with_bias(self, found: torch.Tensor) -> torch.Tensor:
        """The sum of a result and the bias."""
        return found if self.bias is None else found + self.bias.reshape(-1, *[1] * len(self.stride))


def convolution(given: Convolution) -> Any:
    """A convolution that the compiler does not refuse; `tuning` has forms that are fast on some devices."""
    if given.transposed:
        return NotImplemented
    x, weight = given.x, given.weight
    *_, ends = _slide(x.shape[2:], weight.shape[2:], given.stride, given.padding, given.dilation)
    if ends is None:
        return NotImplemented
    fitted, left = _fit(x, given.padding, ends, 0.0)
    return aten.convolution(*given._replace(x=fitted, padding=left))


def avg_pool(
    rank: int,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    pool = aten.avg_pool2d if rank == 2 else aten.avg_pool3d
    rest = (ceil_mode, count_include_pad, divisor_override)
    if x.dim() == rank + 1:  # the compiler takes no image without a batch
        return pool(x.unsqueeze(0), kernel, stride, padding, *rest).squeeze(0)
    given = (kernel, stride, padding)
    kernel, sizes = _each(kernel, rank), x.shape[-rank:]
    stride, padding, _, ends = _slide(sizes, kernel, stride, padding, ceil=ceil_mode)
    if _is_short(given, rank):
        return pool(x, kernel, stride, padding, *rest)
    if ends is None:
        counts = any(padding) and not count_include_pad
        if static(x.shape[0]) or divisor_override or counts or ceil_mode or not x.is_floating_point():
            return NotImplemented
        # A division of its own: over a batch that varies, vmvx takes none in the kernel of a pool.
        return pool(x, kernel, stride, padding, False, True, 1) / prod(kernel)

    def pooled(
        x: torch.Tensor, padding: Sequence[int], ends: Sequence[int | None], divisor: int | None
    ) -> torch.Tensor:
        fitted, left = _fit(x, padding, ends, 0.0)
        return pool(fitted, kernel, stride, left, False, True, divisor)

    beyond = any(
        end is not None and end > size + border
        for end, size, border in zip(ends, sizes, padding, strict=True)
    )
    counts = any(padding) and not count_include_pad
    if divisor_override or not (beyond or counts):
        return pooled(x, padding, ends, divisor_override)
    counted = torch.ones_like(x)
    total = pooled(x, padding, ends, 1)
    if count_include_pad:
        # What lies past the padding counts for nothing.
        counted = pad(counted, [border for border in reversed(padding) for _ in range(2)], value=1.0)
        ends = [None if end is None else end + border for end, border in zip(ends, padding, strict=True)]
        padding = [0] * rank
    # Eager rounds the quotient of integers to zero.
    mode = None if x.is_floating_point() else "trunc"
    return torch.div(total, pooled(counted, padding, ends, 1), rounding_mode=mode)


def adaptive_avg_pool(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    """Means over windows that differ in size.

    The compiler's own form counts the elements of a window once for all images, in a kernel that is parallel
    over images: on a GPU most counts are never written, and the means are infinite (IREE 3.13 on an H200).
    """
    pairs = list(zip(x.shape[-len(output_size) :], output_size, strict=True))
    if not all(output_size) or any(static(size) and not size for size, _ in pairs):
        return NotImplemented
    if all(static(size) and size % count == 0 for size, count in pairs):
        kernel = [size // count for size, count in pairs]
        return (aten.avg_pool2d if len(pairs) == 2 else aten.avg_pool3d)(x, kernel, kernel)
    positions = [adaptive(size, count, x) for size, count in pairs]
    # What a shorter window lacks repeats its last element.
    is_own = torch.ones((), dtype=torch.bool, device=x.device)
    for dim, each in enumerate(positions):
        own = torch.cat([each[:, :1] >= 0, each[:, 1:] != each[:, :-1]], 1)
        shape = [1] * (2 * len(pairs))
        shape[dim], shape[len(pairs) + dim] = own.shape
        is_own = is_own & own.reshape(shape)
    is_own = is_own.flatten(-len(pairs))
    wide = x.float() if x.dtype in HALF else x
    total = torch.where(is_own, windowed(wide, positions), 0.0).sum(-1)
    return (total / is_own.sum(-1)).to(x.dtype)


def max_pool_with_indices(
    rank: int,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    op = aten.max_pool2d_with_indices if rank == 2 else aten.max_pool3d_with_indices
    if x.dim() == rank + 1:  # the compiler takes no image without a batch
        values, indices = op(x.unsqueeze(0), kernel, stride, padding, dilation, ceil_mode)
        return values.squeeze(0), indices.squeeze(0)
    given = (kernel, stride, padding, [step - 1 for step in dilation])
    kernel = _each(kernel, rank)
    stride, padding, dilation, ends = _slide(
        x.shape[-rank:], kernel, stride, padding, dilation, ceil=ceil_mode
    )
    if _is_short(given, rank):
        return op(x, kernel, stride, padding, dilation, ceil_mode)
    if not x.is_floating_point():
        if not all(map(static, x.shape[2:])):
            return NotImplemented
        each = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
        positions = [
            sliding(
                size, _steps(size, width, step, border, spread, ceil_mode) + 1, width, step, border, spread, x
            )
            for size, width, step, border, spread in each
        ]
        return over_windows(x, positions)
    if ends is None:
        return NotImplemented
    fitted, left = _fit(x, padding, ends, -torch.inf)
    values, indices = op(fitted, kernel, stride, left, dilation, False)
    added = [before - rest for before, rest in zip(padding, left, strict=True)]
    return values, _moved(indices, fitted.shape[-rank:], x.shape[-rank:], added)


def _slide(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    *,
    ceil: bool = False,
) -> tuple[Sequence[int], Sequence[int], Sequence[int], list[int | None] | None]:
    """How a window slides over each dim: stride, padding, dilation, and where its last place ends.

    An end is a position in the input, None to leave the dim as it is: where its padding is what the op pads
    anyway. There is None in place of the list where all dims are left, and no window is to reach past the
    padding. An op may be given one number for all dims, or no stride.
    """
    rank = len(kernel)
    stride = _each(stride, rank) or list(kernel)
    padding, dilation = _each(padding, rank), _each(dilation, rank)
    ends: list[int | None] = []
    for size, width, step, border, spread in zip(sizes, kernel, stride, padding, dilation, strict=True):
        if not static(size):
            if ceil:
                return stride, padding, dilation, None
            ends.append(None)
            continue
        reach, total = spread * (width - 1) + 1, size + 2 * border
        steps = _steps(size, width, step, border, spread, ceil)
        end = steps * step + reach
        ends.append(end - border if end > total or (end < total and steps == 0) else None)
    is_changed = ceil or any(end is not None for end in ends)
    return stride, padding, dilation, ends if is_changed else None


def _steps(size: int, width: int, step: int, border: int, spread: int, ceil: bool) -> int:
    """How often a window moves on along a dim."""
    room = size + 2 * border - spread * (width - 1) - 1
    steps = room // step
    # Rounded up, as long as the last window starts in the input or the padding before it.
    return steps + int(ceil and steps * step < room and (steps + 1) * step < size + border)


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
    flat = torch.zeros_like(indices)
    scale = 1
    for found, size, before in reversed(list(zip(fitted, sizes, added, strict=True))):
        flat = flat + (indices % found - before) * scale
        indices = indices // found
        scale *= size
    return flat


def _is_short(given: Sequence[Sequence[int]], rank: int) -> bool:
    """Whether one number stands for all dims, or no stride for the kernel's: the compiler miscounts the dims.

    What torch leaves out of a call, as it is the default (0), is no such number.
    """
    kernel, stride, *rest = given
    return len(kernel) != rank or len(stride) != rank or any(len(each) != rank and any(each) for each in rest)


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


DECOMPOSITIONS: Table = {
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool,
    aten._adaptive_avg_pool3d.default: adaptive_avg_pool,
    aten.avg_pool2d.default: partial(avg_pool, 2),
    aten.avg_pool3d.default: partial(avg_pool, 3),
    aten.max_pool2d_with_indices.default: partial(max_pool_with_indices, 2),
    aten.max_pool3d_with_indices.default: partial(max_pool_with_indices, 3),
}
