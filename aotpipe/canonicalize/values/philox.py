"""Random numbers by Philox 2x32-10, as torch ops of a seed and a counter.

Each element of a draw has a counter of its own, so that it depends on the seed and on how many numbers were
drawn before, and on no other element: eager and every compiler give the same 32-bit words. The generator is
that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

What is made of the words has 24 bits in every dtype, float64 too, so that a model that is run in float64 as a
reference sees the numbers that the program sees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

_WORD: Final = 0xFFFF_FFFF
_MULTIPLIER: Final = 0xD256_D193
_KEY_STEP: Final = 0x9E37_79B9
_ROUNDS: Final = 10

HIGHEST_SEED: Final = _WORD
"""A seed is the key of Philox 2x32, which has 32 bits."""

Words = tuple[Tensor, Tensor]
"""Two words of 32 bits for each element, as int64."""


def words(seed: Tensor, first: Tensor, shape: Sequence[Any]) -> Words:
    """Two random words for each element of a shape.

    Args:
        seed: 0-d int64, of which 32 bits count.
        first: The counter of the first element, 0-d int64; the others follow in the order of their places.
        shape: Sizes, which may be symbols.
    """
    counter = torch.arange(math.prod(shape)).reshape(shape) + first
    # Of tensors, and by the functions behind the operators: each op of a graph is decomposed otherwise.
    word = torch.full((), _WORD, dtype=torch.int64)
    low, high = torch.bitwise_and(counter, word), torch.bitwise_right_shift(counter, 32)
    for number in range(_ROUNDS):
        product = low * _MULTIPLIER
        key = seed + number * _KEY_STEP
        mixed = torch.bitwise_xor(torch.bitwise_right_shift(product, 32), key)
        low, high = torch.bitwise_and(torch.bitwise_xor(mixed, high), word), product
    return low, torch.bitwise_and(high, word)


def uniform(word: Tensor) -> Tensor:
    """Numbers in [0, 1), multiples of 2**-24, in float32."""
    return (word >> 8).to(torch.float32) * 2.0**-24


def inside(word: Tensor) -> Tensor:
    """Numbers in (0, 1) that are neither 0 nor 1, of which a logarithm is finite, in float32."""
    return (word >> 9).to(torch.float32) * 2.0**-23 + 2.0**-24


def normal(drawn: Words) -> Tensor:
    """Numbers of the standard normal distribution, by Box and Muller, in float32."""
    radius = (-2.0 * inside(drawn[0]).log()).sqrt()
    found: Tensor = radius * (2.0 * math.pi * uniform(drawn[1])).cos()
    return found


def integer(drawn: Words, count: Any) -> Tensor:
    """Integers in [0, count) of 63 bits, as int64; `count` is positive."""
    found: Tensor = _wide(drawn) % count
    return found


def order(drawn: Words) -> Tensor:
    """A permutation of the elements of a vector, as int64."""
    return _wide(drawn).argsort(stable=True)


def _wide(drawn: Words) -> Tensor:
    return (drawn[0] << 31) | (drawn[1] >> 1)
