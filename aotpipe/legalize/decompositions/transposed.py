"""Transposed convolutions, without zeros between the input's elements.

The compiler convolves an input with zeros between its elements: for a stride of 2 in two dims they are three
quarters of all products. Where the stride is the kernel's size, each input element makes a patch of its own,
by one matmul. Else an output belongs to one of as many phases as the stride has places; each phase is a
convolution of stride 1 with the taps of the kernel that meet it, and phases are the channels of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from aotpipe.legalize.decompositions import patches
from aotpipe.legalize.decompositions.entries import static


def transposed(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A transposed convolution over `[batch, channels, *sizes]` and a kernel `[in, out, *sizes]`.

    NotImplemented where the compiler's own is taken.
    """
    if groups != 1 or set(dilation) != {1} or not x.is_floating_point():
        return NotImplemented
    if list(stride) == list(weight.shape[2:]) and not any((*padding, *output_padding)):
        found = apart(x, weight)
    elif patches.takes(x) and all(map(static, x.shape[1:])) and min(x.shape[1:]) > 0:
        found = phases(x, weight, stride, padding, output_padding)
    else:
        return NotImplemented
    return found if bias is None else found + bias.reshape(-1, *[1] * len(stride))


def apart(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """One whose stride is the size of its kernel."""
    rank = x.dim() - 2
    batch, channels, *sizes = x.shape
    _, outputs, *kernel = weight.shape
    made = x.movedim(1, -1).reshape(-1, channels) @ weight.reshape(channels, -1)
    made = made.reshape(batch, *sizes, outputs, *kernel)
    pairs = [dim for at in range(rank) for dim in (1 + at, 2 + rank + at)]
    joined = made.permute(0, 1 + rank, *pairs)
    return joined.reshape(batch, outputs, *(a * b for a, b in zip(sizes, kernel, strict=True)))


def phases(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
) -> torch.Tensor:
    """One of any stride, as convolutions of stride 1 whose channels are put beside each other.

    With `k = m * stride + r`, output `j * stride + r` is the sum over m of `x[j - m] * weight[k]`. The phases
    r that as many taps m meet are one convolution: a tap of zero would make NaN of an infinity.
    """
    rank = x.dim() - 2
    batch, _, *sizes = x.shape
    outputs, kernel = weight.shape[1], weight.shape[2:]
    most = [-(-size // step) for size, step in zip(kernel, stride, strict=True)]
    reached = [size + taps - 1 for size, taps in zip(sizes, most, strict=True)]

    def made(chosen: tuple[_Phases, ...]) -> torch.Tensor:
        """The phases of some along each dim, as `[batch, *phases, outputs, *reached]`."""
        if len(chosen) < rank:
            at = len(chosen)
            parts = [made((*chosen, each)) for each in _alike(kernel[at], stride[at])]
            return parts[0] if len(parts) == 1 else torch.cat(parts, 1 + at)
        counts = [each.number for each in chosen]
        if not all(each.taps for each in chosen):
            return x.new_zeros(batch, *counts, outputs, *reached)
        part = _convolved(x, weight, chosen, stride).reshape(batch, *counts, outputs, *_reach(sizes, chosen))
        lacking = [size - own for size, own in zip(reached, _reach(sizes, chosen), strict=True)]
        return pad(part, _after(lacking)) if any(lacking) else part

    pairs = [dim for at in range(rank) for dim in (2 + rank + at, 1 + at)]
    found = made(()).permute(0, 1 + rank, *pairs)
    found = found.reshape(batch, outputs, *(size * step for size, step in zip(reached, stride, strict=True)))
    for at in range(rank):
        wanted = (sizes[at] - 1) * stride[at] - 2 * padding[at] + kernel[at] + output_padding[at]
        beyond = padding[at] + wanted - found.shape[2 + at]
        if beyond > 0:
            found = pad(found, [0, 0] * (rank - 1 - at) + [0, beyond])
        found = found.narrow(2 + at, padding[at], wanted)
    return found


class _Phases(NamedTuple):
    """Neighbouring phases of a dim that as many taps of the kernel meet."""

    first: int
    number: int
    taps: int


def _alike(size: int, step: int) -> list[_Phases]:
    taps, more = divmod(size, step)
    found = [_Phases(0, more, taps + 1), _Phases(more, step - more, taps)]
    return [each for each in found if each.number]


def _convolved(
    x: torch.Tensor, weight: torch.Tensor, chosen: Sequence[_Phases], stride: Sequence[int]
) -> torch.Tensor:
    """The convolution with the taps of some phases: `[batch, phases * outputs, *sizes]`."""
    rank, (channels, outputs) = len(chosen), weight.shape[:2]
    for at, (each, step) in enumerate(zip(chosen, stride, strict=True)):
        rows = [weight.narrow(2 + at, each.first + tap * step, each.number) for tap in range(each.taps)]
        # The last tap first: a convolution slides over what comes after.
        weight = torch.cat(rows[::-1], 2 + at) if len(rows) > 1 else rows[0]
    split = weight.reshape(channels, outputs, *(n for each in chosen for n in (each.taps, each.number)))
    taps, places = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    columns = split.permute(*places, 1, 0, *taps).reshape(-1, channels, *(each.taps for each in chosen))
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    return convolve(x, columns, None, 1, [each.taps - 1 for each in chosen])


def _reach(sizes: Sequence[int], chosen: Sequence[_Phases]) -> list[int]:
    return [size + each.taps - 1 for size, each in zip(sizes, chosen, strict=True)]


def _after(amounts: Sequence[int]) -> list[int]:
    """What `pad` takes to add so much after the last dims."""
    return [amount for each in reversed(amounts) for amount in (0, each)]
