"""Products of matrices: scaled sums around them, products over nothing, and Fourier transforms as products.

A Fourier transform of a static size is a product with its matrix. A size is split into two factors where it
has some (J. W. Cooley and J. W. Tukey, 1965), so that the matrices stay small: for n = a * b two products
over all rows, with matrices of a and of b. A size that varies is one product with a matrix made in the call.
Real and imaginary parts are computed apart; the compiler has no lowering for transforms of another kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from aotpipe.backends.iree.decompositions.integers import in_int32
from aotpipe.passes.decompositions.blas import Number, scaled_sum
from aotpipe.passes.decompositions.entries import Decomposition, Table, empty, static

aten = torch.ops.aten


def matmul(left: torch.Tensor, right: torch.Tensor) -> Any:
    """`mm` or `bmm`, by the rank of its operands."""
    if empty(left, right):
        # The compiler dies on a matmul with a size of 0 (SIGFPE in data tiling).
        shape = (*left.shape[:-1], right.shape[-1])
        return torch.zeros(shape, dtype=left.dtype, device=left.device)
    if left.dtype in (torch.bool, torch.uint8, torch.int8):  # the importer crashes on sums of int8
        return in_int32(torch.mm if left.dim() == 2 else torch.bmm, left, right)
    return NotImplemented


def _added(product: Callable[..., torch.Tensor]) -> Decomposition:
    def decompose(
        bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
    ) -> torch.Tensor:
        return scaled_sum(bias, product(left, right), beta, alpha)

    return decompose


# A whole matrix up to this size costs less than two products and the turn between them.
_WHOLE: Final = 64
# A prime size beyond this, or one that varies, would need a matrix of more than 64 MiB.
_PRIME: Final = 4096

# The factors of torch's normalization modes: none, 1 / sqrt(n), 1 / n.
_NORMALIZATION: Final = (0.0, -0.5, -1.0)


Parts = list[torch.Tensor]
"""A complex tensor as its real and its imaginary part; a real one as the first alone."""


def _factor(size: int) -> int:
    """The divisor next below the square root; 1 for a prime."""
    return next(factor for factor in range(math.isqrt(size), 0, -1) if size % factor == 0)


def _takes(sizes: Sequence[int]) -> bool:
    """Whether no size needs too large a matrix."""
    return all(0 < _largest(size) <= _PRIME for size in sizes)


def _largest(size: int | torch.SymInt) -> float:
    """The largest matrix that a size needs."""
    if isinstance(size, torch.SymInt):
        return float(size.node.shape_env.bound_sympy(size.node.expr).upper)
    if size <= _WHOLE:
        return size
    factor = _factor(size)
    return size if factor == 1 else max(_largest(factor), _largest(size // factor))


def _turns(rows: int, columns: int, size: Any, sign: int, like: torch.Tensor) -> Parts:
    row = torch.arange(rows, device=like.device, dtype=torch.int64).unsqueeze(-1)
    column = torch.arange(columns, device=like.device, dtype=torch.int64)
    if not static(size):
        size = torch.full((), size, dtype=torch.int64, device=like.device)
    # In whole numbers to the next quarter turn, so that only an angle of an eighth is rounded.
    quarters = torch.remainder(row * column, size) * 4
    quarter = torch.div(quarters * 2 + size, 2 * size, rounding_mode="floor")
    rest = (quarters - quarter * size).to(like.dtype) * (math.pi / 2 / size)
    cosine, sine = torch.cos(rest), torch.sin(rest)
    odd = (quarter & 1) == 1
    back = (quarter == 1) | (quarter == 2)
    down = (quarter == 2) | (quarter == 3)
    real, imag = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    return [torch.where(back, -real, real), torch.where(down, -imag, imag) * sign]


def _product(left: Parts, right: Parts, multiply: Callable[..., torch.Tensor]) -> Parts:
    real, imag = right
    if len(left) == 1:
        return [multiply(left[0], real), multiply(left[0], imag)]
    return [
        multiply(left[0], real) - multiply(left[1], imag),
        multiply(left[0], imag) + multiply(left[1], real),
    ]


def _last(values: Parts, sign: int) -> Parts:
    size = values[0].shape[-1]
    if not static(size) or size <= _WHOLE or _factor(size) == 1:
        return _product(values, _turns(size, size, size, sign, values[0]), torch.matmul)
    # The index is inner * i + j, the frequency k + outer * l.
    outer = _factor(size)
    inner = size // outer
    split = [part.unflatten(-1, (outer, inner)).transpose(-2, -1) for part in values]
    # (..., inner j, outer k), turned by j * k / size.
    turned = _product(_last(split, sign), _turns(inner, outer, size, sign, values[0]), torch.mul)
    mixed = _last([part.transpose(-2, -1) for part in turned], sign)
    return [part.transpose(-2, -1).flatten(-2) for part in mixed]


def _along(values: Parts, dims: Sequence[int], sign: int) -> Parts:
    for dim in dims:
        moved = _last([part.movedim(dim, -1) for part in values], sign)
        values = [part.movedim(-1, dim) for part in moved]
    return values


def _scaled(values: Parts, count: int, normalization: int) -> Parts:
    if not static(count):
        factor = torch.full((), count, dtype=values[0].dtype) ** _NORMALIZATION[normalization]
        return [part * factor for part in values] if normalization else values
    factor = count ** _NORMALIZATION[normalization]
    return values if factor == 1 else [part * factor for part in values]


def c2c(tensor: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    sizes = [tensor.shape[axis] for axis in dim]
    if not dim or not _takes(sizes) or tensor.dtype != torch.complex64:
        return NotImplemented
    values = _along([tensor.real, tensor.imag], dim, -1 if forward else 1)
    return torch.complex(*_scaled(values, math.prod(sizes), normalization))


def r2c(tensor: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    sizes = [tensor.shape[axis] for axis in dim]
    if not dim or not _takes(sizes) or tensor.dtype != torch.float32:
        return NotImplemented
    # The other half are the conjugates of this one.
    count = sizes[-1] // 2 + 1 if onesided else sizes[-1]
    if static(count):
        values = [part.narrow(dim[-1], 0, count) for part in _along([tensor], dim[-1:], -1)]
    else:
        columns = _turns(sizes[-1], count, sizes[-1], -1, tensor)
        moved = _product([tensor.movedim(dim[-1], -1)], columns, torch.matmul)
        values = [part.movedim(-1, dim[-1]) for part in moved]
    values = _along(values, dim[:-1], -1)
    return torch.complex(*_scaled(values, math.prod(sizes), normalization))


def c2r(tensor: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    sizes = [*(tensor.shape[axis] for axis in dim[:-1]), last_dim_size]
    if not dim or not _takes(sizes) or tensor.dtype != torch.complex64:
        return NotImplemented
    half = [part.movedim(dim[-1], -1) for part in _along([tensor.real, tensor.imag], dim[:-1], 1)]
    real = _real_of_half(half, last_dim_size).movedim(-1, dim[-1])
    return _scaled([real], math.prod(sizes), normalization)[0]


def _real_of_half(half: Parts, size: int) -> torch.Tensor:
    """The last dim transformed back, from the first half of its frequencies."""
    if static(size):
        whole = [_mirrored(part, size, sign) for part, sign in zip(half, (1, -1), strict=True)]
        return _last(whole, 1)[0]
    rows = half[0].shape[-1]
    # The mean and the middle frequency have no conjugate, and their imaginary parts are taken for zero.
    ends = (torch.arange(rows, device=half[0].device) * 2) % torch.full((), size, dtype=torch.int64) == 0
    real, imag = torch.where(ends, half[0], half[0] * 2), torch.where(ends, 0.0, half[1] * 2)
    cosine, sine = _turns(rows, size, size, 1, real)
    return torch.matmul(real, cosine) - torch.matmul(imag, sine)


def _mirrored(half: torch.Tensor, size: int, sign: int) -> torch.Tensor:
    """All frequencies, from those of the first half and their conjugates."""
    count = size // 2 + 1
    kept = half.narrow(-1, 0, count)
    if sign < 0:
        # The imaginary parts of the mean and of the middle frequency are taken for zero.
        ends = (torch.arange(count, device=half.device) * 2) % size == 0
        kept = torch.where(ends, 0.0, kept)
    return torch.cat([kept, sign * kept.narrow(-1, 1, size - count).flip(-1)], -1)


DECOMPOSITIONS: Table = {
    aten.mm.default: matmul,
    aten.bmm.default: matmul,
    aten.mv.default: lambda matrix, vector: torch.mm(matrix, vector.unsqueeze(1)).squeeze(1),
    aten.dot.default: lambda left, right: torch.mm(left.unsqueeze(0), right.unsqueeze(1)).reshape(()),
    aten.addmm.default: _added(torch.mm),
    aten.addmv.default: _added(torch.mv),
    aten.baddbmm.default: _added(torch.bmm),
    aten._fft_c2c.default: c2c,
    aten._fft_r2c.default: r2c,
    aten._fft_c2r.default: c2r,
}
