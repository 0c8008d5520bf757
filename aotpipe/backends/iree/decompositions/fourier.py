"""Fourier transforms of a static size as products with its matrix.

A size is split into two factors where it has some (J. W. Cooley and J. W. Tukey, 1965), so that the matrices
stay small: for n = a * b two products over all rows, with matrices of a and of b. Real and imaginary parts
are computed apart; the compiler has no lowering for transforms of another kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch

from aotpipe.passes.decompositions.entries import Table, static

aten = torch.ops.aten

# A whole matrix up to this size costs less than two products and the turn between them.
_WHOLE: Final = 64
# A prime size beyond this would need a matrix of more than 64 MiB.
_PRIME: Final = 4096

# The factors of torch's normalization modes: none, 1 / sqrt(n), 1 / n.
_NORMALIZATION: Final = (0.0, -0.5, -1.0)


class Parts(NamedTuple):
    """A complex tensor as two real ones; without an imaginary one it is real."""

    real: torch.Tensor
    imag: torch.Tensor | None


def _factor(size: int) -> int:
    """The divisor next below the square root; 1 for a prime."""
    return next(factor for factor in range(math.isqrt(size), 0, -1) if size % factor == 0)


def _takes(sizes: Sequence[int]) -> bool:
    """Whether every size is known, and no prime factor of it is too large."""
    return all(static(size) and size > 0 and _largest(size) <= _PRIME for size in sizes)


def _largest(size: int) -> int:
    """The largest matrix that a size needs."""
    if size <= _WHOLE:
        return size
    factor = _factor(size)
    return size if factor == 1 else max(_largest(factor), _largest(size // factor))


def _turns(rows: int, columns: int, size: int, sign: int, like: torch.Tensor) -> Parts:
    """Cosine and sine of the angles sign * 2 pi * row * column / size."""
    row = torch.arange(rows, device=like.device, dtype=torch.int64).unsqueeze(-1)
    column = torch.arange(columns, device=like.device, dtype=torch.int64)
    # In whole numbers to the next quarter turn, so that only an angle of an eighth is rounded.
    quarters = torch.remainder(row * column, size) * 4
    quarter = torch.div(quarters * 2 + size, 2 * size, rounding_mode="floor")
    rest = (quarters - quarter * size).to(like.dtype) * (math.pi / 2 / size)
    cosine, sine = torch.cos(rest), torch.sin(rest)
    odd = (quarter & 1) == 1
    back = (quarter == 1) | (quarter == 2)
    down = (quarter == 2) | (quarter == 3)
    real, imag = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    return Parts(torch.where(back, -real, real), torch.where(down, -imag, imag) * sign)


def _product(left: Parts, right: Parts, matrix: bool) -> Parts:
    multiply = torch.matmul if matrix else torch.mul
    assert right.imag is not None
    if left.imag is None:
        return Parts(multiply(left.real, right.real), multiply(left.real, right.imag))
    return Parts(
        multiply(left.real, right.real) - multiply(left.imag, right.imag),
        multiply(left.real, right.imag) + multiply(left.imag, right.real),
    )


def _last(values: Parts, sign: int) -> Parts:
    """The transform of the last dim."""
    size = values.real.shape[-1]
    if size <= _WHOLE or _factor(size) == 1:
        return _product(values, _turns(size, size, size, sign, values.real), True)
    # The index is inner * i + j, the frequency k + outer * l.
    outer = _factor(size)
    inner = size // outer
    split = _map(lambda part: part.unflatten(-1, (outer, inner)).transpose(-2, -1), values)
    # (..., inner j, outer k), turned by j * k / size.
    turned = _product(_last(split, sign), _turns(inner, outer, size, sign, values.real), False)
    mixed = _last(_map(lambda part: part.transpose(-2, -1), turned), sign)
    return _map(lambda part: part.transpose(-2, -1).flatten(-2), mixed)


def _map(function: Any, values: Parts) -> Parts:
    return Parts(function(values.real), None if values.imag is None else function(values.imag))


def _along(values: Parts, dims: Sequence[int], sign: int) -> Parts:
    for dim in dims:
        moved = _last(_map(lambda part, dim=dim: part.movedim(dim, -1), values), sign)
        values = _map(lambda part, dim=dim: part.movedim(-1, dim), moved)
    return values


def _scaled(values: Parts, count: int, normalization: int) -> Parts:
    factor = count ** _NORMALIZATION[normalization]
    return values if factor == 1 else _map(lambda part: part * factor, values)


def _sizes(tensor: torch.Tensor, dims: Sequence[int]) -> list[int]:
    return [tensor.shape[dim] for dim in dims]


def c2c(tensor: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    sizes = _sizes(tensor, dim)
    if not dim or not _takes(sizes) or tensor.dtype != torch.complex64:
        return NotImplemented
    values = _along(Parts(tensor.real, tensor.imag), dim, -1 if forward else 1)
    return _complex(_scaled(values, math.prod(sizes), normalization))


def r2c(tensor: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    sizes = _sizes(tensor, dim)
    if not dim or not _takes(sizes) or tensor.dtype != torch.float32:
        return NotImplemented
    values = _along(Parts(tensor, None), dim[-1:], -1)
    if onesided:
        # The other half are the conjugates of this one.
        values = _map(lambda part: part.narrow(dim[-1], 0, sizes[-1] // 2 + 1), values)
    values = _along(values, dim[:-1], -1)
    return _complex(_scaled(values, math.prod(sizes), normalization))


def c2r(tensor: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    sizes = [*_sizes(tensor, dim[:-1]), last_dim_size]
    if not dim or not _takes(sizes) or tensor.dtype != torch.complex64:
        return NotImplemented
    values = _along(Parts(tensor.real, tensor.imag), dim[:-1], 1)
    half = _map(lambda part: part.movedim(dim[-1], -1), values)
    assert half.imag is not None
    whole = _mirrored(half.real, last_dim_size, 1), _mirrored(half.imag, last_dim_size, -1)
    real = _last(Parts(*whole), 1).real.movedim(-1, dim[-1])
    return _scaled(Parts(real, None), math.prod(sizes), normalization).real


def _mirrored(half: torch.Tensor, size: int, sign: int) -> torch.Tensor:
    """All frequencies, from those of the first half and their conjugates."""
    count = size // 2 + 1
    kept = half.narrow(-1, 0, count)
    if sign < 0:
        # The imaginary parts of the mean and of the middle frequency are taken for zero.
        ends = (torch.arange(count, device=half.device) * 2) % size == 0
        kept = torch.where(ends, 0.0, kept)
    return torch.cat([kept, sign * kept.narrow(-1, 1, size - count).flip(-1)], -1)


def _complex(values: Parts) -> torch.Tensor:
    imag = torch.zeros_like(values.real) if values.imag is None else values.imag
    return torch.complex(values.real, imag)


DECOMPOSITIONS: Table = {
    aten._fft_c2c.default: c2c,
    aten._fft_r2c.default: r2c,
    aten._fft_c2r.default: c2r,
}
