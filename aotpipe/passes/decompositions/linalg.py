"""Factorizations of matrices and what is solved by them, as LAPACK computes them without its blocks.

Each is one loop over columns, a scan whose step updates the whole matrix under masks, so that any number of
rows, columns and batches may be dynamic; a small matrix of a known size gets its steps written out. Complex
matrices are left as they are. `(..., rows, columns)` is the shape of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan_op  # the public `scan` starts a compiler of its own
from torch._library import simple_registry  # the ops that have an effect; no public way to them

from aotpipe.passes.decompositions.entries import Decomposition, Table, empty, iota, static

aten = torch.ops.aten
Tensors = tuple[Tensor, ...]
Index = int | Tensor

_WRITTEN_OUT = 4
"""Up to how many steps get no loop: each takes longer to compile, and an iteration has a cost of its own."""


def _loop(
    count: int, step: Callable[..., Tensors], state: Tensors, *fixed: Tensor, down: bool = False
) -> Tensors:
    """State after `state = step(k, *state, *fixed)` for each k below the count; from the last one if down."""
    state = tuple(part.contiguous() for part in state)
    if static(count) and count <= _WRITTEN_OUT:
        for k in reversed(range(count)) if down else range(count):
            state = step(k, *state, *fixed)
        return state
    if empty(state[0]):
        return state
    order = iota(count, state[0])

    def body(*operands: Tensor) -> Tensors:
        held, k, rest = operands[: len(state)], operands[len(state)], operands[len(state) + 1 :]
        following = step(k, *held, *rest)
        return tuple(part.clone(memory_format=torch.contiguous_format) for part in following)

    return tuple(scan_op(body, list(state), [order.flip(0) if down else order], fixed))


def _at(x: Tensor, k: Index, dim: int = -1) -> Tensor:
    """The column `k`, or a row of dim -2."""
    return x.select(dim, k) if isinstance(k, int) else x.index_select(dim, k.reshape(1)).squeeze(dim)


def _rows(x: Tensor) -> Tensor:
    return iota(x.shape[-2], x).unsqueeze(-1)


def _columns(x: Tensor) -> Tensor:
    return iota(x.shape[-1], x)


def _outer(column: Tensor, row: Tensor) -> Tensor:
    return column.unsqueeze(-1) * row.unsqueeze(-2)


def eye(x: Tensor, rows: int, columns: int) -> Tensor:
    """A unit matrix for each matrix of a batch."""
    diagonal = iota(rows, x).unsqueeze(-1) == iota(columns, x)
    return diagonal.to(x.dtype).expand(*x.shape[:-2], rows, columns)


def _first(info: Tensor, failed: Tensor, k: Index) -> Tensor:
    """The first step, from 1, that failed; 0 for none."""
    return torch.where((info == 0) & failed, k + 1, info).to(info.dtype)


def _no_info(x: Tensor) -> Tensor:
    return torch.zeros(x.shape[:-2], dtype=torch.int32, device=x.device)


@contextmanager
def checks_as_asserts() -> Iterator[None]:
    """Let torch decompose its check of a factorization, which it orders by a token otherwise."""
    held = simple_registry.singleton.find("aten::_linalg_check_errors").effect
    before, held._effect = held._effect, None
    try:
        yield
    finally:
        held._effect = before


def check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    what = "positive definite" if "cholesky" in api_name else "invertible"
    text = f"{api_name}: the matrix is not {what}" if is_matrix else f"{api_name}: a matrix is not {what}"
    torch._assert_async((info == 0).all(), text)


def _checked(info: Tensor, name: str, check: bool) -> None:
    if check:
        check_errors(info, name, is_matrix=info.dim() == 0)


def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Tensors:
    def step(k: Index, a: Tensor, info: Tensor) -> Tensors:
        column = _at(a, k)
        pivot = _at(column, k)
        column = column / pivot.sqrt().unsqueeze(-1)
        rows, columns = _rows(a), _columns(a)
        after = torch.where((rows > k) & (columns > k), a - _outer(column, column), a)
        after = torch.where((rows >= k) & (columns == k), column.unsqueeze(-1), after)
        info = _first(info, ~(pivot > 0), k)
        # As LAPACK, it stops at the first pivot that fails.
        return torch.where(info[..., None, None] == 0, after, a), info

    given = x.mT if upper else x
    factor, info = _loop(x.shape[-1], step, (given, _no_info(x)))
    # What LAPACK had not come to holds what was given, beside the pivot that failed.
    row, column = _rows(x) + 1 - info[..., None, None], _columns(x) + 1 - info[..., None, None]
    unused = (info[..., None, None] > 0) & (row >= 0) & (column >= 0) & (row + column > 0)
    factor = torch.where(unused, given, factor)
    _checked(info, "linalg.cholesky_ex", check_errors)
    return (factor.tril().mT if upper else factor.tril()), info


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    factor, info = cholesky_ex(x, upper=upper)
    _checked(info, "cholesky", True)
    return factor


def _solved(a: Tensor, b: Tensor, *, upper: bool, transpose: bool = False, unit: bool = False) -> Tensor:
    """X of `a @ X = b`, or of `a.mT @ X = b`, where `a` is triangular."""
    a, upper = (a.mT, not upper) if transpose else (a, upper)

    def step(k: Index, x: Tensor, a: Tensor) -> Tensors:
        column, row = _at(a, k), _at(x, k, -2)
        row = row if unit else row / _at(column, k).unsqueeze(-1)
        rows = _rows(x)
        left = rows < k if upper else rows > k
        return (torch.where(rows == k, row.unsqueeze(-2), torch.where(left, x - _outer(column, row), x)),)

    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    b = b.expand(*batch, *b.shape[-2:])
    return _loop(a.shape[-1], step, (b,), a.contiguous(), down=upper)[0]


def solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if left:
        return _solved(a, b, upper=upper, unit=unitriangular)
    return _solved(a, b.mT, upper=upper, transpose=True, unit=unitriangular).mT


def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Tensors:
    x = _solved(a, b, upper=upper, transpose=transpose, unit=unitriangular)
    return x, a.expand(*x.shape[:-2], *a.shape[-2:]).clone()


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    half = _solved(factor, b, upper=upper, transpose=upper)
    return _solved(factor, half, upper=upper, transpose=not upper)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    half = _solved(factor, eye(factor, *factor.shape[-2:]), upper=upper, transpose=upper)
    return half.mT @ half


def _swapped(x: Tensor, k: Index, pivot: Tensor) -> Tensor:
    """The matrices with the rows `k` and `pivot`, one of each matrix, in each other's place."""
    pivot = pivot.reshape(*pivot.shape, 1, 1).clamp(0, x.shape[-2] - 1)
    other = x.gather(-2, pivot.expand(*x.shape[:-2], 1, x.shape[-1]))
    rows = _rows(x)
    return torch.where(rows == k, other, torch.where(rows == pivot, _at(x, k, -2).unsqueeze(-2), x))


def lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        return NotImplemented
    steps = min(a.shape[-2:])

    def step(k: Index, a: Tensor, pivots: Tensor, info: Tensor) -> Tensors:
        rows, columns = _rows(a), _columns(a)
        # The first of equal ones, as in BLAS.
        found = torch.where(rows.squeeze(-1) >= k, _at(a, k).abs(), -1.0).argmax(-1)
        a = _swapped(a, k, found)
        column, row = _at(a, k), _at(a, k, -2)
        top = _at(row, k)
        fails = top == 0
        column = column / torch.where(fails, 1.0, top).unsqueeze(-1)
        after = torch.where(columns == k, column.unsqueeze(-1), a - _outer(column, row))
        pivots = torch.where(_columns(pivots.unsqueeze(-2)) == k, (found + 1).unsqueeze(-1), pivots)
        return torch.where((rows > k) & (columns >= k), after, a), pivots, _first(info, fails, k)

    pivots = a.new_zeros((*a.shape[:-2], steps), dtype=torch.int64)
    lu, pivots, info = _loop(steps, step, (a, pivots, _no_info(a)))
    _checked(info, "linalg.lu_factor_ex", check_errors)
    return lu, pivots.int(), info


def _permuted(b: Tensor, pivots: Tensor, *, back: bool = False) -> Tensor:
    """The rows of `b` after the swaps of a factorization; back where they were before if told so."""

    def step(k: Index, b: Tensor, pivots: Tensor) -> Tensors:
        return (_swapped(b, k, _at(pivots, k) - 1),)

    return _loop(pivots.shape[-1], step, (b,), pivots.long(), down=back)[0]


def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    if not left:
        return lu_solve(lu, pivots, b.mT, adjoint=not adjoint).mT
    batch = torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = b.expand(*batch, *b.shape[-2:])
    pivots = pivots.expand(*batch, pivots.shape[-1])
    if adjoint:
        half = _solved(lu, b, upper=True, transpose=True)
        return _permuted(_solved(lu, half, upper=False, transpose=True, unit=True), pivots, back=True)
    return _solved(lu, _solved(lu, _permuted(b, pivots), upper=False, unit=True), upper=True)


def lu_unpack(lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Tensors:
    rows, columns = lu.shape[-2:]
    count = min(rows, columns)
    none = lu.new_empty(0)
    lower, upper, permutation = none, none, none
    if unpack_data:
        lower = lu[..., :count].tril(-1) + eye(lu, rows, count)
        upper = lu[..., :count, :].triu()
    if unpack_pivots:
        permutation = _permuted(eye(lu, rows, rows), pivots, back=True)
    return permutation, lower, upper


def lu(a: Tensor, *, pivot: bool = True) -> Any:
    return lu_unpack(*lu_factor_ex(a)[:2]) if pivot else NotImplemented


def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Tensors:
    factors, pivots, info = lu_factor_ex(a)
    _checked(info, "linalg.solve_ex", check_errors)
    is_vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    x = lu_solve(factors, pivots, b.unsqueeze(-1) if is_vector else b, left=left or is_vector)
    return (x.squeeze(-1) if is_vector else x), factors, pivots, info


def inv_ex(a: Tensor, *, check_errors: bool = False) -> Tensors:
    inverse, _, _, info = solve_ex(a, eye(a, *a.shape[-2:]))
    _checked(info, "linalg.inv_ex", check_errors)
    return inverse, info


def _sign(pivots: Tensor, like: Tensor) -> Tensor:
    """The determinant of the swaps: -1 for an odd number of them."""
    swaps = (pivots != _columns(pivots.unsqueeze(-2)) + 1).sum(-1)
    return torch.where(swaps % 2 == 1, -1.0, 1.0).to(like.dtype)


def det(a: Tensor) -> Tensors:
    factors, pivots, _ = lu_factor_ex(a)
    return _sign(pivots, a) * factors.diagonal(dim1=-2, dim2=-1).prod(-1), factors, pivots


def slogdet(a: Tensor) -> Tensors:
    factors, pivots, _ = lu_factor_ex(a)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    sign = _sign(pivots, a) * diagonal.sign().prod(-1)
    return sign, diagonal.abs().log().sum(-1), factors, pivots


def geqrf(a: Tensor) -> Tensors:
    """R, below it the vectors of the reflections `1 - tau * v * v.T`, and their factors tau."""
    steps = min(a.shape[-2:])

    def step(k: Index, a: Tensor, taus: Tensor) -> Tensors:
        rows, columns = _rows(a), _columns(a)
        column = _at(a, k)
        alpha = _at(column, k)
        below = torch.where(rows.squeeze(-1) > k, column, 0.0)
        rest = below.norm(dim=-1)
        none = rest == 0
        beta = -torch.hypot(alpha, rest).copysign(alpha)
        tau = torch.where(none, 0.0, (beta - alpha) / beta)
        vector = below / torch.where(none, 1.0, alpha - beta).unsqueeze(-1)
        vector = torch.where(rows.squeeze(-1) == k, 1.0, vector)
        reflected = a - _outer(vector, tau.unsqueeze(-1) * (vector.unsqueeze(-2) @ a).squeeze(-2))
        own = torch.where(rows == k, torch.where(none, alpha, beta)[..., None, None], vector.unsqueeze(-1))
        after = torch.where(columns == k, own, reflected)
        taus = torch.where(_columns(taus.unsqueeze(-2)) == k, tau.unsqueeze(-1), taus)
        return torch.where((rows >= k) & (columns >= k), after, a), taus

    return _loop(steps, step, (a, a.new_zeros((*a.shape[:-2], steps))))


def householder_product(vectors: Tensor, taus: Tensor) -> Tensor:
    def step(k: Index, q: Tensor, vectors: Tensor, taus: Tensor) -> Tensors:
        rows = _rows(q).squeeze(-1)
        vector = torch.where(rows > k, _at(vectors, k), (rows == k).to(q.dtype))
        scaled = _at(taus, k).unsqueeze(-1) * (vector.unsqueeze(-2) @ q).squeeze(-2)
        return (q - _outer(vector, scaled),)

    fixed = vectors.contiguous(), taus.contiguous()
    return _loop(taus.shape[-1], step, (eye(vectors, *vectors.shape[-2:]),), *fixed, down=True)[0]


def ormqr(vectors: Tensor, taus: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    rows, columns = vectors.shape[-2:]
    q = householder_product(torch.nn.functional.pad(vectors, (0, rows - columns)), taus)
    q = q.mT if transpose else q
    return q @ other if left else other @ q


def qr(a: Tensor, mode: str = "reduced") -> Tensors:
    rows, columns = a.shape[-2:]
    packed, taus = geqrf(a)
    kept = rows if mode == "complete" else min(rows, columns)
    r = packed[..., :kept, :].triu()
    if mode == "r":
        return a.new_empty(0), r
    vectors = packed[..., : min(rows, columns)]
    padded = torch.nn.functional.pad(vectors, (0, kept - vectors.shape[-1]))
    return householder_product(padded, taus), r


def _real(decomposition: Decomposition) -> Decomposition:
    """The decomposition for real matrices alone."""

    @wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        is_complex = any(isinstance(value, Tensor) and value.is_complex() for value in args)
        return NotImplemented if is_complex else decomposition(*args, **kwargs)

    return decompose


_ENTRIES: Table = {
    aten._linalg_check_errors.default: check_errors,
    aten.linalg_cholesky_ex.default: cholesky_ex,
    aten.cholesky.default: cholesky,
    aten.linalg_solve_triangular.default: solve_triangular,
    aten.triangular_solve.default: triangular_solve,
    aten.cholesky_solve.default: cholesky_solve,
    aten.cholesky_inverse.default: cholesky_inverse,
    aten.linalg_lu_factor_ex.default: lu_factor_ex,
    aten.linalg_lu_solve.default: lu_solve,
    aten.lu_unpack.default: lu_unpack,
    aten.linalg_lu.default: lu,
    aten._linalg_solve_ex.default: solve_ex,
    aten.linalg_inv_ex.default: inv_ex,
    aten._linalg_det.default: det,
    aten._linalg_slogdet.default: slogdet,
    aten.geqrf.default: geqrf,
    aten.linalg_householder_product.default: householder_product,
    aten.ormqr.default: ormqr,
    aten.linalg_qr.default: qr,
}

DECOMPOSITIONS: Table = {op: _real(entry) for op, entry in _ENTRIES.items()}
