"""Depthwise convolutions of images as loops over the image, with the channels last: an op of its own.

The compiler has fast loops for them (`linalg.depthwise_conv_2d_nhwc_hwc`) and gives none of torch's ops that
form: it takes a depthwise convolution for one with the channels first, whose loops use no vectors. As a sum
of shifted images one of 160 channels of 14x14 with windows of 7x7 takes four times as long as by these loops
(IREE 3.13, AVX-512, one thread).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch
from torch.nn.functional import pad

from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.passes.decompositions.entries import empty, static

_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")
_LIBRARY.define("depthwise_channels_last(Tensor x, Tensor weight, int[] stride) -> Tensor")
# A vector of AVX-512: of 40 channels of 56x56 the loops take three times as long as of 48.
_VECTOR: Final = 16


def _run(x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Convolve `[batch, height, width, channels]` with `[height, width, channels]`, without padding."""
    columns = weight.permute(2, 0, 1).unsqueeze(1)
    found = torch.conv2d(x.permute(0, 3, 1, 2), columns, None, stride, groups=x.shape[3])
    return found.permute(0, 2, 3, 1).contiguous()


def _fake(x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    batch, *sizes, channels = x.shape
    each = zip(sizes, weight.shape, stride, strict=False)
    return x.new_empty(batch, *((size - width) // step + 1 for size, width, step in each), channels)


_LIBRARY.impl("depthwise_channels_last", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::depthwise_channels_last", _fake, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.depthwise_channels_last.default


def convolution(given: Convolution) -> Any:
    """A depthwise convolution of images, without its bias; NotImplemented where another form is faster."""
    x, weight, _, stride, padding, dilation, *_ = given
    channels, *sizes = x.shape[1:]
    is_plain = len(sizes) == 2 and weight.shape[0] == channels and set(dilation) == {1}
    is_large = channels >= _VECTOR and prod(weight.shape[2:]) > 1 and not empty(x)
    if not (is_plain and is_large and x.dtype is torch.float32 and all(map(static, x.shape))):
        return NotImplemented
    added = -channels % _VECTOR
    # What no window reads is cut: where there is one window, the compiler takes all of the image for it.
    (above, below), (left, right) = map(_around, sizes, weight.shape[2:], stride, padding)
    image = pad(x.permute(0, 2, 3, 1), (0, added, left, right, above, below))
    taps = pad(weight.squeeze(1).permute(1, 2, 0), (0, added))
    found = OP(image, taps, stride)
    return found[..., :channels].permute(0, 3, 1, 2)


def _around(size: int, width: int, step: int, before: int) -> tuple[int, int]:
    """How many zeros come before a dim, and behind it where that is positive, for its windows to fill it."""
    count = (size + 2 * before - width) // step + 1
    return before, (count - 1) * step + width - size - before
