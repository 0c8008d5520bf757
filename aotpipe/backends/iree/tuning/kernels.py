"""Convolutions, and matmuls by weights, as an op that a dispatch of ours computes (`backends/iree/kernels`).

The compiler's own code for them takes longer (IREE 3.13, AVX-512, one thread): 512 channels of 7x7 by a
kernel of 3x3 2.3 times as long, and ResNet-18 1.6 times. It packs the rows of a matmul into tiles in each
call, and unpacks the result; its loops over an image hold 8 columns of 16 outputs, and are slow for sizes
that these do not divide, or that vary.

The images lie with their channels last. A line is an image of one column, and so is what a matmul multiplies:
its rows are the pixels. Half precision is summed in float32; its images stay the compiler's. A single row is
multiplied by up to 64 columns at once. The compiler's ukernel takes 16, so that each of its sums waits for
the one before: it reads weights of the caches at 70 GB/s, where this one reads at 100.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import torch
from torch.fx import Node
from torch.nn.functional import pad

from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning.depthwise_sums import Window, cut
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import HALF, static
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")
_LIBRARY.define(
    "convolution_channels_last(Tensor x, Tensor weight, int[] stride, int[] dilation, int groups) -> Tensor"
)
_ELEMENTS: Final = (torch.float32, torch.float64)
_LEAST_CHANNELS: Final = 8
_VIEWS: Final = ops.overloads(
    "t transpose.int clone permute view reshape _unsafe_view unsqueeze squeeze.dim alias"
)


def _run(
    x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> torch.Tensor:
    """Convolve `[batch, depth, height, width, channels]` with `[outputs, channels / groups, *kernel]`."""
    if not x.numel():
        return _fake(x, weight, stride, dilation, groups)  # no rows: nothing to compute
    found = torch.conv3d(x.permute(0, 4, 1, 2, 3), weight, None, stride, 0, dilation, groups)
    return found.permute(0, 2, 3, 4, 1).contiguous()


def _fake(
    x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> torch.Tensor:
    batch, *sizes, _ = x.shape
    counts = Window(weight.shape[2:], stride, dilation).counts(sizes)
    return x.new_empty(batch, *counts, weight.shape[0])


_LIBRARY.impl("convolution_channels_last", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::convolution_channels_last", _fake, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.convolution_channels_last.default


def convolution(given: Convolution) -> Any:
    """A convolution over `[batch, channels, *sizes]`, of one to three sizes; NotImplemented if not ours."""
    x, weight, _, stride, padding, dilation, *_, groups = given
    sizes = x.shape[2:]
    outputs, channels, *kernel = weight.shape
    if x.dtype in HALF and len(sizes) != 2:
        return given.rounded_once(convolution)
    if x.dtype not in _ELEMENTS or not all(map(static, (x.shape[1], *weight.shape))):
        return NotImplemented
    # A few channels, or several outputs of each, are no vectors. vmvx has no kernels of ours: where sizes
    # vary it refuses the compiler's loops, or asks for memory that there is not (IREE 3.13).
    has_vectors = groups == outputs >= _LEAST_CHANNELS and all(map(static, x.shape))
    if groups > 1 and channels == 1 and not has_vectors:
        return NotImplemented
    if len(sizes) == 3 and not static(sizes[0]):
        return NotImplemented
    reached = [size + 2 * border for size, border in zip(sizes, padding, strict=True)]
    counts = Window(kernel, stride, dilation).counts(reached)
    # A size that varies is never 0 here: eager refuses it.
    if min([1, *filter(static, (*counts, x.shape[0], x.shape[1], outputs))]) < 1:
        return NotImplemented
    images = x.movedim(1, -1)
    if any(padding):
        images = pad(images, [0, 0, *(border for border in reversed(padding) for _ in range(2))])
    if groups == 1 and all(map(static, (x.shape[0], *counts))) and x.shape[0] * prod(counts) == 1:
        return given.with_bias(_pixel(images, given).reshape(1, outputs, *counts))
    # A line is an image of one column, and an image a layer of a volume.
    before, behind = {1: ([1], [1]), 2: ([1], []), 3: ([], [])}[len(sizes)]
    images = images.unsqueeze(-2) if behind else images
    images = images.unsqueeze(1) if before else images
    found = OP(
        images,
        weight.reshape(outputs, channels, *before, *kernel, *behind),
        [*before, *stride, *behind],
        [*before, *dilation, *behind],
        groups,
    )
    found = found.reshape(x.shape[0], *counts, outputs).movedim(-1, 1)
    return given.with_bias(found)


def _pixel(images: torch.Tensor, given: Convolution) -> torch.Tensor:
    """The only pixel of a result, as a row by weights."""
    for dim, (width, spread) in enumerate(zip(given.weight.shape[2:], given.dilation, strict=True), start=1):
        images = cut(images, dim, 0, width, spread, 0)
    columns = given.weight.movedim(1, -1).reshape(given.weight.shape[0], -1)
    return images.reshape(1, -1) @ columns.t()


def products(entry: LegalEntry) -> None:
    """Write each product of rows by weights in an entry point's graphs as a convolution of single pixels."""
    weights = frozenset(hops.placeholders(entry.graph)[: len(entry.weights)])
    found = entry.graph.graph.find_nodes(op="call_function", target=_ATEN.mm.default)
    if rewrite(entry.graph, found, partial(_product, weights)):
        entry.graph.recompile()


def _product(weights: Collection[Node], emit: Emitter, node: Node) -> Node | None:
    rows, matrix = node.args
    assert isinstance(rows, Node)
    assert isinstance(matrix, Node)
    value = value_of(node)
    count, reduced = value_of(rows).shape
    outputs = value.shape[1]
    if value.dtype not in _ELEMENTS or not _is_weight(matrix, weights):
        return None
    if not (static(reduced) and static(outputs)) or min(reduced, outputs) < 1:
        return None
    if static(count) and count < 1:
        return None
    ones = [1, 1, 1]
    columns = emit(_ATEN.t.default, matrix)
    for _ in ones:
        columns = emit(_ATEN.unsqueeze.default, columns, -1)
    image = rows
    for dim in (0, 0, 3):
        image = emit(_ATEN.unsqueeze.default, image, dim)
    found = emit(OP, image, columns, ones, ones, 1)
    for dim in (3, 1, 0):
        found = emit(_ATEN.squeeze.dim, found, dim)
    return found


def _is_weight(node: Node, weights: Collection[Node]) -> bool:
    """Whether each call has the same operand."""
    while node.target in _VIEWS:
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    return node in weights
