"""The largest numbers of windows of images with the channels last: an op of its own.

The compiler's loops over a window use vectors where the channels are last (`linalg.pooling_nhwc_max`), and
torch's op has them first.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.fx import Node
from torch.nn.functional import max_pool2d

from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")
_LIBRARY.define("max_pool_channels_last(Tensor x, int[] kernel, int[] stride) -> Tensor")


def _run(x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """The largest of each window of `[batch, height, width, channels]`, without padding."""
    return max_pool2d(x.permute(0, 3, 1, 2), list(kernel), list(stride)).permute(0, 2, 3, 1).contiguous()


def _fake(x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    batch, *sizes, channels = x.shape
    each = zip(sizes, kernel, stride, strict=True)
    return x.new_empty(batch, *((size - width) // step + 1 for size, width, step in each), channels)


_LIBRARY.impl("max_pool_channels_last", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::max_pool_channels_last", _fake, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.max_pool_channels_last.default


def is_max_pool(node: Node) -> bool:
    """Whether a node gives the largest of each window of images."""
    return node.target is _ATEN.max_pool2d_with_indices.default


def only_values(node: Node) -> Node | None:
    """The values of a pool whose places nobody reads; None where somebody does."""
    users = list(node.users)
    is_read = len(users) == 1 and users[0].target is operator.getitem and users[0].args[1] == 0
    return users[0] if is_read else None


def emitted(emit: Emitter, node: Node, images: Node) -> Node | None:
    """The pool of images that have the channels last; None where it has no such form."""
    value = value_of(images)
    given = dict(zip(("kernel", "stride", "padding", "dilation", "ceil"), node.args[1:], strict=False))
    kernel = _pair(given["kernel"])
    stride, padding = _pair(given.get("stride") or kernel), _pair(given.get("padding", [0]))
    is_plain = _pair(given.get("dilation", [1])) == [1, 1] and not given.get("ceil")
    if not (is_plain and value.dtype is torch.float32 and all(map(static, value.shape))):
        return None
    if any(padding):
        below = [0, 0, padding[1], padding[1], padding[0], padding[0]]
        images = emit(_ATEN.constant_pad_nd.default, images, below, -torch.inf)
    # What no window reads is cut: where there is one window, the compiler takes all of the image for it.
    for dim, width, step in zip((1, 2), kernel, stride, strict=True):
        size = value_of(images).shape[dim]
        reach = (size - width) // step * step + width
        if reach < size:
            images = emit(_ATEN.slice.Tensor, images, dim, 0, reach)
    return emit(OP, images, kernel, stride)


def _pair(numbers: Any) -> list[int]:
    numbers = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
    return numbers * 2 if len(numbers) == 1 else numbers
