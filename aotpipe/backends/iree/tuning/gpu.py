"""The form of a convolution on GPUs: the compiler's own, but for two.

Its convolution of volumes multiplies integers as floats. Its transposed convolution multiplies the zeros that
it puts between the input's elements: 3 of 4 products for a stride of 2 in two dims, 7 of 8 in three, on every
device; the convolutions that take their place are the compiler's own again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.backends.iree.decompositions import windows
from aotpipe.backends.iree.decompositions.windows import each
from aotpipe.backends.iree.tuning import convolution_3d, transposed_convolution


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
    """A convolution as it is, where neither its numbers nor the number of its products speak against it."""
    rank = weight.dim() - 2
    step, border, spread = (each(numbers, rank) for numbers in (stride, padding, dilation))
    if transposed:
        beyond = each(output_padding, rank)
        return transposed_convolution.transposed(x, weight, bias, step, border, spread, beyond, groups)
    if rank == 3 and not (x.is_floating_point() or x.is_complex()):
        return convolution_3d.volume(x, weight, bias, step, border, spread, groups)
    return windows.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
