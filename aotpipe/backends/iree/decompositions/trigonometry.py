"""Sine, cosine and tangent of every float32, to within 5e-7.

The compiler reduces their arguments by one constant, which is 1e-4 off at 4096, where rotary embeddings are.
Here an argument m * 2**s is reduced in whole numbers (M. Payne and R. Hanek, 1983): the bits of 1 / 2 pi from
the 2**-s place on, times m, are the fraction of a turn in units of 2**-64; what overflows are whole turns.
Polynomials: S. L. Moshier, Cephes `sinf`, `cosf`. Half precision is computed in float32, as in eager; float64
stays as it is.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch

from aotpipe.backends.iree.decompositions.transcendental import polynomial, single
from aotpipe.passes.decompositions.entries import Table

aten = torch.ops.aten

# The binary digits of 1 / 2 pi from the 2**24 place on, in words of 64 bits, as signed numbers.
_TURN: Final = (174992710547, -7996903653840128899, 5564039245504800335)
# A float32 is a whole number of 24 bits times 2 to the power of its exponent field less this.
_BIAS: Final = 150
_FIRST: Final = 24
# Smaller arguments need no reduction, and lose bits by one.
_SMALL: Final = 0.78
_SIN: Final = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COS: Final = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)


class _Quadrant(NamedTuple):
    """The multiple of pi / 2 next to an absolute argument, modulo 4, and sine and cosine of the rest."""

    number: torch.Tensor
    sine: torch.Tensor
    cosine: torch.Tensor


def _turns(x: torch.Tensor) -> torch.Tensor:
    """What |x| / 2 pi is beyond whole turns, in units of 2**-64 of one, for |x| of at least 0.5."""
    bits = x.view(torch.int32)
    place = (((bits >> 23) & 255) - (_BIAS - _FIRST)).to(torch.int64).clamp(min=0)
    # The largest numbers would start in a third word: they are twice a smaller one.
    whole = ((bits & 0x7FFFFF) | 0x800000).to(torch.int64) << (place >> 7)
    place = place.clamp(max=127)
    first = torch.where(place >= 64, _TURN[1], _TURN[0])
    second = torch.where(place >= 64, _TURN[2], _TURN[1])
    shift = place & 63
    # The second word without its sign: one digit goes first.
    digits = (first << shift) | (((second >> 1) & 0x7FFFFFFFFFFFFFFF) >> (63 - shift))
    return whole * digits


def _quadrant(x: torch.Tensor) -> _Quadrant:
    turns = _turns(x)
    number = (turns + (1 << 61)) >> 62
    rest = (turns - (number << 62)).to(torch.float32) * (2 * math.pi / 2**64)
    small = x.abs() < _SMALL
    rest = torch.where(small, x.abs(), rest)
    # An infinite argument has none.
    rest = torch.where(x.abs() < math.inf, rest, math.nan)
    square = rest * rest
    return _Quadrant(
        torch.where(small, 0, number & 3),
        rest + rest * square * polynomial(square, _SIN),
        1 - 0.5 * square + square * square * polynomial(square, _COS),
    )


def sin(x: torch.Tensor) -> torch.Tensor:
    number, sine, cosine = _quadrant(x)
    value = torch.where((number & 1) == 1, cosine, sine)
    value = torch.where((number >= 2) != (x < 0), -value, value)
    # A zero keeps its sign.
    return torch.where(x == 0, x, value)


def cos(x: torch.Tensor) -> torch.Tensor:
    number, sine, cosine = _quadrant(x)
    value = torch.where((number & 1) == 1, sine, cosine)
    return torch.where((number == 1) | (number == 2), -value, value)


def tan(x: torch.Tensor) -> torch.Tensor:
    number, sine, cosine = _quadrant(x)
    odd = (number & 1) == 1
    value = torch.where(odd, -cosine, sine) / torch.where(odd, sine, cosine)
    return torch.where(x == 0, x, torch.where(x < 0, -value, value))


DECOMPOSITIONS: Table = {
    aten.sin.default: single(sin),
    aten.cos.default: single(cos),
    aten.tan.default: single(tan),
}
