"""What the convolutions of a module ask of the compiler: a matmul of patches, or loops of IREE's own.

As a matmul of patches (im2col) a convolution of stride 2, of a kernel of one element, or of a small image is
up to ten times as fast. Where the patches of an image do not fit the caches, writing and reading them takes
most of the time: of 96 channels of 32 images of 32x32 the loops take a fifth of it, of 32 channels of 112x112
half of it (3.13, AVX-512, one thread). The compiler takes one way for a whole module.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

_CONVOLUTION: Final = re.compile(
    rb"torch\.aten\.convolution [^:\n]*: !torch\.vtensor<\[([\d?,]+)\],\w+>, "
    rb"!torch\.vtensor<\[([\d?,]+)\],\w+>,[^\n]*-> !torch\.vtensor<\[([\d?,]+)\]"
)
_LARGE_BYTES: Final = 1 << 23
# What a size that varies is taken for: it is a batch, as a rule.
_VARYING: Final = 8
# The other convolutions of a module lose half by the loops, these gain half and more.
_MOST: Final = 0.6


def favors_loops(module: bytes) -> bool:
    """Whether most of a module's multiplications are in convolutions with large patches, of stride 1."""
    total = large = 0
    for image, weight, result in (map(_sizes, found.groups()) for found in _CONVOLUTION.finditer(module)):
        if image[1] != weight[1]:
            continue  # of several groups: never by patches
        window = prod(weight[1:])
        work = prod(result) * window
        total += work
        patches = 4 * window * result[0] * prod(result[2:])
        strided = any(2 * after <= before for before, after in zip(image[2:], result[2:], strict=True))
        if prod(weight[2:]) > 1 and not strided and patches >= _LARGE_BYTES:
            large += work
    return large > _MOST * total


def _sizes(text: bytes) -> tuple[int, ...]:
    return tuple(_VARYING if size == b"?" else int(size) for size in text.split(b","))
