"""The form of a convolution on a class of devices, where the compiler's own is slow, inexact or refused.

vmvx is one of the CPUs. On GPUs the compiler's own form stays, but for two. Its convolution of volumes
multiplies integers as floats. Its transposed convolution multiplies the zeros that it puts between the
input's elements: 3 of 4 products for a stride of 2 in two dims, 7 of 8 in three, on every device; the
convolutions that take their place are the compiler's own again.
"""

from __future__ import annotations

from typing import Any

from aotpipe.backends.iree.decompositions import windows
from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning import convolution_3d, im2col, transposed_convolution


def on_cpu(*args: Any, **kwargs: Any) -> Any:
    """A convolution as matmuls, as sums of shifted images or as loops with the channels last."""
    given = Convolution.of(*args, **kwargs)
    if given.transposed:
        return transposed_convolution.transposed(given)
    if len(given.stride) == 3 and not given.x.is_complex():
        return convolution_3d.volume(given)
    found = im2col.convolution(given)
    return windows.convolution(given) if found is NotImplemented else found


def on_gpu(*args: Any, **kwargs: Any) -> Any:
    """A convolution as it is, where neither its numbers nor the number of its products speak against it."""
    given = Convolution.of(*args, **kwargs)
    if given.transposed:
        return transposed_convolution.transposed(given)
    if len(given.stride) == 3 and not (given.x.is_floating_point() or given.x.is_complex()):
        return convolution_3d.volume(given)
    return windows.convolution(given)
