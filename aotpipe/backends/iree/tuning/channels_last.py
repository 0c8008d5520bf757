"""Convolutions of images that are left to the compiler: loops over the image, with the channels last.

For a CPU the compiler gets the channels to the end (`iree/compile/flags.py`) and keeps 8 columns of 16
outputs in its registers: 9 tenths of what the cores can multiply, over a batch that varies too. A matmul of
patches writes and reads each element of the image once for each of the kernel. The loops are fast where 8
divides the columns of the result and 16 its channels, and nothing is cut off the image (IREE 3.13, AVX-512,
one thread): of 31 columns they take 6 times as long, of 7 channels 4 times, with one row cut off 20 times.
Both are filled up.

With data tiling the compiler writes the tiles that a matmul reads within the loops that make its operand.
Those of a convolution are slow then: of 52 channels of 32x32x32 to 16 that a kernel of one element reads they
take 13 times as long. So such an operand gets a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.functional import pad

from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import ops
from aotpipe.passes.scalars import value_of

_COLUMNS: Final = 8
_OUTPUTS: Final = 16
# With fewer, most of the columns would be filled up.
_LEAST_COLUMNS: Final = 7
# A vector of the sum; with fewer channels it is of a part only.
_LEAST_CHANNELS: Final = 8
# The columns are read as one vector, with what lies between them.
_MOST_STEP: Final = 3
# From here on a matmul multiplies each patch so often that to write it costs little.
_MOST_OUTPUTS: Final = 255
# With more of them, zeros take longer than what they save.
_MOST_CHANNELS: Final = 1.5
# Read again for each few columns: the caches should hold them.
_WEIGHT_BYTES: Final = 1 << 22
_CONVOLUTION: Final = torch.ops.aten.convolution.default
_CUTS: Final = ops.overloads("slice.Tensor")
_PRODUCTS: Final = ops.overloads("bmm mm")
_MARK: Final = "reads_buffers"
ARE_READY: Final[ContextVar[bool]] = ContextVar("are_ready", default=False)
"""Whether a convolution is made inside of `as_they_are`."""


def suits(
    channels: int, outputs: int, kernel: Sequence[int], stride: Sequence[int], counts: Sequence[int]
) -> bool:
    """Whether the loops are as fast as a matmul of patches, for `counts` rows and columns of the result."""
    return (
        channels >= _LEAST_CHANNELS
        and outputs <= _MOST_OUTPUTS
        # A line is no image to the compiler, nor is what it does with a kernel of one row or column.
        and min(kernel) > 1
        and counts[0] > 1
        and counts[1] >= _LEAST_COLUMNS
        and stride[1] <= _MOST_STEP
        and 4 * channels * outputs * prod(kernel) <= _WEIGHT_BYTES
    )


def missing(count: int) -> int:
    """How many columns of the result fill up its last vector."""
    return -count % _COLUMNS


def lacking(channels: int) -> int:
    """How many channels to add to some, so that the compiler takes 4 or 2 of them at a time.

    It takes as many as divide them, up to 8, and holds a vector of weights for each beside the 8 of results:
    more than the 16 registers that SSE and AVX2 have, where 64 channels of 56x56 take three times as long.
    """
    wanted = channels
    while max(number for number in range(1, 9) if wanted % number == 0) not in (2, 4):
        wanted += 1
    return wanted - channels if wanted <= _MOST_CHANNELS * channels else 0


def filled(given: Convolution, counts: Sequence[int]) -> Any:
    """The convolution with its columns and channels filled up; NotImplemented where they are full."""
    x, weight, _, stride, padding, dilation, *_ = given
    outputs, more, added = weight.shape[0], missing(counts[1]), lacking(x.shape[1])
    if is_full(outputs, counts[1]) and any(padding) and not added:
        return NotImplemented
    if added:
        # Not padded: the compiler would do so inside of the loops, 10 times as slow.
        x = torch.cat([x, x.new_zeros(x.shape[0], added, *x.shape[2:])], 1)
        weight = pad(weight, (0, 0, 0, 0, 0, added))
    reach = (counts[1] + more - 1) * stride[1] + dilation[1] * (weight.shape[3] - 1) + 1
    left, right = padding[1], max(reach - x.shape[3] - padding[1], padding[1])
    # Where nothing is padded, the compiler reads the channels in the loops from where they were: 30 times as
    # slow. So there is a row below, which is cut off.
    below = padding[0] or int(not (left or right))
    x = pad(x, (left, right, padding[0], below))
    if outputs % _OUTPUTS:
        weight = pad(weight, (0, 0, 0, 0, 0, 0, 0, -outputs % _OUTPUTS))
    with as_they_are():
        found = torch.conv2d(x, weight, None, stride, 0, dilation)
    # A cut of the channels where the compiler moves them back to their place is made of the wrong size ("op
    # expected dimension 3 of collapsed type to be static value of 32", IREE 3.13): elsewhere it is not.
    return found.transpose(0, 1)[:outputs].transpose(0, 1)[:, :, : counts[0], : counts[1]]


@contextmanager
def as_they_are() -> Iterator[None]:
    """Inside, images and kernels are what the compiler's loops want, and lie so."""
    token = ARE_READY.set(True)
    try:
        yield
    finally:
        ARE_READY.reset(token)


def is_full(outputs: int, count: int) -> bool:
    """Whether nothing fills up the columns and channels of a result."""
    return not missing(count) and not outputs % _OUTPUTS


def mark_products(entry: LegalEntry) -> None:
    """Mark the products of a CPU's program, which alone has data tiling, whose operands get a buffer."""
    for graph in (each.graph for each in entry.graph.modules() if isinstance(each, GraphModule)):
        for node in graph.nodes:
            if node.target in _PRODUCTS:
                node.meta[_MARK] = True


def own_buffers(node: Node) -> tuple[Node, ...]:
    """The operands of a marked product that the compiler would compute within a convolution's loops."""
    if not node.meta.get(_MARK):
        return ()
    return tuple(each for each in dict.fromkeys(node.all_input_nodes) if _is_convolved(each))


def _is_convolved(node: Node) -> bool:
    """Whether elementwise ops and views alone are between a convolution and a node."""
    seen, found = {node}, [node]
    for each in found:
        if each.target is _CONVOLUTION:
            return True
        is_whole = each.target in _CUTS and all(
            statically_known_true(size == whole)
            for size, whole in zip(value_of(each).shape, value_of(each.args[0]).shape, strict=True)
        )
        if (
            is_whole
            or each.target in ops.REARRANGES
            or torch.Tag.pointwise in getattr(each.target, "tags", ())
        ):
            new = [source for source in each.all_input_nodes if source not in seen]
            seen.update(new)
            found += new
    return False
