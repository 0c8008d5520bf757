"""The form of a convolution on a class of devices, where the compiler's own is slow, inexact or refused.

vmvx is one of the CPUs. On GPUs the compiler's own form stays, but for two. Its convolution of volumes
multiplies integers as floats. Its transposed convolution multiplies the zeros that it puts between the
input's elements: 3 of 4 products for a stride of 2 in two dims, 7 of 8 in three, on every device; the
convolutions that take their place are the compiler's own again. Where the stride is the kernel's size, each
input element makes a patch of its own, by one matmul. Else an output belongs to one of as many phases as the
stride has places; each phase is a convolution of stride 1 with the taps of the kernel that meet it, and the
phases are the channels of one.

IREE's code for a volume's convolution leaves the vector registers unused, too (3.13). Where `kernels` has no
form for it, it is a sum of convolutions of images, one for each layer of the kernel: 32 channels of 32x32x32
take a fifteenth of the time on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import gcd
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from aotpipe.backends.iree.decompositions import windows
from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning import depthwise_sums, kernels
from aotpipe.backends.iree.tuning.depthwise_sums import Window, padded
from aotpipe.passes.decompositions.entries import static


def on_cpu(*args: Any, **kwargs: Any) -> Any:
    """A convolution as a kernel of ours, or as a sum of shifted images."""
    given = Convolution.of(*args, **kwargs)
    if given.transposed:
        return transposed(given)
    found = kernels.convolution(given)
    if found is not NotImplemented:
        return found
    if len(given.stride) == 3 and not given.x.is_complex():
        return volume(given)
    found = depthwise_sums.convolution(given)
    return windows.convolution(given) if found is NotImplemented else found


def on_gpu(*args: Any, **kwargs: Any) -> Any:
    """A convolution as it is, where neither its numbers nor the number of its products speak against it."""
    given = Convolution.of(*args, **kwargs)
    if given.transposed:
        return transposed(given)
    if len(given.stride) == 3 and not (given.x.is_floating_point() or given.x.is_complex()):
        return volume(given)
    return windows.convolution(given)


def volume(given: Convolution) -> Any:
    """A convolution over `[batch, channels, depth, height, width]`."""
    if not static(given.x.shape[2]) and given.stride[0] != 1:
        return NotImplemented
    # The layers of a kernel are sums of their own.
    return given.rounded_once(_volume)


def _volume(given: Convolution) -> torch.Tensor:
    """As a sum of convolutions of images, one for each layer of the kernel."""
    x, weight, _, stride, padding, dilation, _, _, groups = given
    thickness = weight.shape[2]
    x = padded(x, (padding[0], 0, 0))
    batch, channels, size = x.shape[:3]
    [count] = Window((thickness,), stride[:1], dilation[:1]).counts([size])
    total = None
    for layer in range(thickness):
        start = layer * dilation[0]
        cut = x[:, :, start : start + (count - 1) * stride[0] + 1 : stride[0]]
        images = cut.transpose(1, 2).reshape(batch * count, channels, *x.shape[3:])
        part = torch.conv2d(images, weight[:, :, layer], None, stride[1:], padding[1:], dilation[1:], groups)
        total = part if total is None else total + part
    assert total is not None
    return given.with_bias(total.reshape(batch, count, *total.shape[1:]).transpose(1, 2))


def transposed(given: Convolution) -> Any:
    """A transposed convolution over `[batch, channels, *sizes]` and a kernel `[in, out / groups, *sizes]`.

    NotImplemented where the compiler's own is taken.
    """
    # Its phases are sums of their own, and a bias comes last.
    return given.rounded_once(_transposed) if given.x.is_floating_point() else NotImplemented


def _transposed(given: Convolution) -> Any:
    x, kernel = given.x, given.weight.shape[2:]
    is_apart = list(given.stride) == list(kernel) and not any((*given.padding, *given.output_padding))
    if is_apart and given.groups == 1 and set(given.dilation) == {1}:
        return given.with_bias(_apart(x, given.weight))
    # None of its sizes but the batch may be 0; one that varies is not, or eager refuses it.
    if not static(x.shape[1]) or any(static(size) and size <= 0 for size in x.shape[1:]):
        return NotImplemented
    return given.with_bias(_phases(given))


def _apart(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """One whose stride is the size of its kernel."""
    rank = x.dim() - 2
    batch, channels, *sizes = x.shape
    _, outputs, *kernel = weight.shape
    # The channels are last, as those of convolutions are: what is moved then are rows of them.
    made = x.movedim(1, -1).reshape(-1, channels) @ weight.movedim(1, -1).reshape(channels, -1)
    made = made.reshape(batch, *sizes, *kernel, outputs)
    pairs = [dim for at in range(rank) for dim in (1 + at, 1 + rank + at)]
    joined = made.permute(0, *pairs, 1 + 2 * rank)
    found = joined.reshape(batch, *(a * b for a, b in zip(sizes, kernel, strict=True)), outputs)
    return found.movedim(-1, 1)


def _phases(given: Convolution) -> torch.Tensor:
    """One of any stride, as convolutions of stride 1 whose channels are put beside each other.

    A tap k of the kernel adds to output `(j + m) * stride + r` what it makes of input j, where
    `k * dilation = m * stride + r`. The neighbouring phases r that as many taps meet, from the same m on, are
    one convolution: a tap of zero would make NaN of an infinity.
    """
    x, weight, _, stride, padding, dilation, _, output_padding, groups = given
    rank = x.dim() - 2
    batch, _, *sizes = x.shape
    outputs, kernel = weight.shape[1], weight.shape[2:]
    each = list(zip(kernel, stride, dilation, strict=True))
    runs = [_runs(*numbers) for numbers in each]
    # As many places as an output of any phase may reach, before each other and after.
    more = [(width - 1) * spread // step for width, step, spread in each]
    reached = [size + extra for size, extra in zip(sizes, more, strict=True)]

    def made(chosen: tuple[_Run, ...]) -> torch.Tensor:
        """The phases of some along each dim, as `[batch, groups, *phases, outputs, *reached]`."""
        if len(chosen) < rank:
            parts = [made((*chosen, run)) for run in runs[len(chosen)]]
            return parts[0] if len(parts) == 1 else torch.cat(parts, 2 + len(chosen))
        shape = batch, groups, *(run.places for run in chosen), outputs
        if not all(run.taps for run in chosen):
            return x.new_zeros(*shape, *reached)
        part = _convolved(x, weight, chosen, groups)
        own = [run.apart * (run.taps - 1) for run in chosen]
        part = part.reshape(*shape, *(size + extra for size, extra in zip(sizes, own, strict=True)))
        pairs = zip(chosen, more, own, strict=True)
        amounts = [(run.first, most - extra - run.first) for run, most, extra in pairs]
        return pad(part, [amount for pair in reversed(amounts) for amount in pair])

    pairs = [dim for at in range(rank) for dim in (3 + rank + at, 2 + at)]
    found = made(()).permute(0, 1, 2 + rank, *pairs)
    found = found.reshape(
        batch, groups * outputs, *(size * step for size, step in zip(reached, stride, strict=True))
    )
    for at, (width, step, spread) in enumerate(each):
        # Output padding may lie beyond all phases.
        beyond = spread * (width - 1) + 1 + output_padding[at] - padding[at] - (1 + more[at]) * step
        if beyond > 0:
            found = pad(found, [0, 0] * (rank - 1 - at) + [0, beyond])
        wanted = (sizes[at] - 1) * step - 2 * padding[at] + spread * (width - 1) + 1 + output_padding[at]
        found = found.narrow(2 + at, padding[at], wanted)
    return found


class _Run(NamedTuple):
    """Neighbouring phases of a dim that as many taps of the kernel meet.

    Attributes:
        starts: Of each phase, the first tap that meets it.
        taps: How many meet each.
        apart: How many elements of the input are from one tap's to the next one's.
        first: How many places come before the first that is met.
    """

    places: int
    starts: tuple[int, ...]
    taps: int
    step: int
    apart: int
    first: int


def _runs(width: int, step: int, spread: int) -> list[_Run]:
    common = gcd(step, spread)
    each = step // common
    starts = {tap * spread % step: tap for tap in reversed(range(min(width, each)))}

    def alike(phase: int) -> tuple[int, int]:
        tap = starts.get(phase)
        return (0, 0) if tap is None else (-(-(width - tap) // each), tap * spread // step)

    found = []
    for (taps, first), several in groupby(range(step), alike):
        run = list(several)
        met = tuple(starts[phase] for phase in run) if taps else ()
        found.append(_Run(len(run), met, taps, each, spread // common, first))
    return found


def _convolved(x: torch.Tensor, weight: torch.Tensor, chosen: Sequence[_Run], groups: int) -> torch.Tensor:
    """The convolution with the taps of some phases: `[batch, groups * phases * outputs, *sizes]`."""
    rank, (channels, outputs) = len(chosen), weight.shape[:2]
    for at, run in enumerate(chosen):
        # The last tap first: a convolution slides over what comes after.
        taps = [start + tap * run.step for tap in reversed(range(run.taps)) for start in run.starts]
        weight = _picked(weight, 2 + at, taps)
    sizes = [size for run in chosen for size in (run.taps, run.places)]
    split = weight.reshape(groups, channels // groups, outputs, *sizes)
    along, places = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    columns = split.permute(0, *places, 2, 1, *along)
    columns = columns.reshape(-1, channels // groups, *(run.taps for run in chosen))
    spread = [run.apart for run in chosen]
    padding = [run.apart * (run.taps - 1) for run in chosen]
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    return convolve(x, columns, None, 1, padding, spread, groups)


def _picked(weight: torch.Tensor, dim: int, places: Sequence[int]) -> torch.Tensor:
    neighbours = groupby(enumerate(places), lambda numbered: numbered[1] - numbered[0])
    cuts = [[place for _, place in cut] for _, cut in neighbours]
    parts = [weight.narrow(dim, cut[0], len(cut)) for cut in cuts]
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]
