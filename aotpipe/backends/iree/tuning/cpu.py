"""The form of a convolution on CPUs, vmvx among them, where the compiler's own is slow or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.backends.iree.decompositions import windows
from aotpipe.backends.iree.decompositions.windows import each
from aotpipe.backends.iree.tuning import convolution_3d, im2col, transposed_convolution


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
    """A convolution as matmuls, as sums of shifted images or as loops with the channels last."""
    rank = weight.dim() - 2
    step, border, spread = (each(numbers, rank) for numbers in (stride, padding, dilation))
    if transposed:
        beyond = each(output_padding, rank)
        return transposed_convolution.transposed(x, weight, bias, step, border, spread, beyond, groups)
    if rank == 3 and not x.is_complex():
        return convolution_3d.volume(x, weight, bias, step, border, spread, groups)
    found = im2col.convolution(x, weight, bias, step, border, spread, groups)
    if found is not NotImplemented:
        return found
    return windows.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
