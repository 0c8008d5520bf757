"""Singular values and vectors by one-sided Jacobi rotations, and the exponential of a matrix.

The columns of a matrix are rotated in pairs until they are orthogonal; their norms are the singular values
(J. Demmel and K. Veselic, "Jacobi's method is more accurate than QR", 1992). In each step every column is in
one pair, by the schedule of a round-robin tournament, so that a step is one batch of rotations. Their product
holds the right singular vectors, which are a symmetric matrix's eigenvectors where no eigenvalue is negative.
What is not the same for every correct algorithm, the sign of a vector and the basis of vectors of one value,
is not LAPACK's.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op  # the public ones start a compiler

from aotpipe.passes.decompositions import linalg
from aotpipe.passes.decompositions.entries import Table, empty, iota, static

aten = torch.ops.aten

_SWEEPS: Final = {torch.float32: 10, torch.float64: 14}
"""How often every pair is rotated; convergence is quadratic after the first few."""
_TERMS: Final = {torch.float32: 12, torch.float64: 18}
"""Terms of the exponential's series for a norm of at most 1, to the dtype's precision."""


def _is_taken(a: Tensor) -> bool:
    return a.dtype in _SWEEPS and all(map(static, a.shape[-2:]))


def _require_finite(a: Tensor, name: str) -> None:
    torch._assert_async(a.isfinite().all(), f"{name}: the matrix has elements that are not finite")


def _orthogonal(a: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The columns `(..., m, n)` rotated until orthogonal, and `v` by the same rotations; n is even."""
    count = a.shape[-1]
    half = count // 2

    # The first column stays, and the others move by one place around a circle of two rows.
    def step(a: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        left, right = a[..., :half], a[..., half:].flip(-1)
        alpha, beta = (left * left).sum(-2), (right * right).sum(-2)
        gamma = (left * right).sum(-2)
        # Beyond its precision a rotation only adds rounding.
        none = gamma.abs() <= torch.finfo(a.dtype).eps * alpha.sqrt() * beta.sqrt()
        zeta = (beta - alpha) / (2.0 * torch.where(none, 1.0, gamma))
        tangent = torch.where(zeta < 0, -1.0, 1.0) / (zeta.abs() + torch.hypot(zeta, torch.ones_like(zeta)))
        tangent = torch.where(none, 0.0, tangent)
        cosine = torch.rsqrt(1.0 + tangent * tangent).unsqueeze(-2)
        sine = cosine * tangent.unsqueeze(-2)
        place = iota(count, a)
        order = torch.where(place == 0, 0, torch.where(place == 1, count - 1, place - 1))

        def rotated(x: Tensor) -> Tensor:
            left, right = x[..., :half], x[..., half:].flip(-1)
            both = (cosine * left - sine * right, (sine * left + cosine * right).flip(-1))
            return torch.cat(both, -1).index_select(-1, order)

        return rotated(a), rotated(v)

    def body(a: Tensor, v: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        return tuple(each.clone(memory_format=torch.contiguous_format) for each in step(a, v))

    steps = iota(_SWEEPS[a.dtype] * (count - 1), a)
    found = scan_op(body, [a.contiguous(), v.contiguous()], [steps], ())
    return found[0], found[1]


def _factored(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`a @ v` with orthogonal columns, `v`, and the norms of the columns, of a matrix that is not wide."""
    columns = a.shape[-1]
    scale = a.abs().amax((-2, -1), keepdim=True)
    scale = torch.where(scale == 0, 1.0, scale)
    eye = torch.eye(columns, dtype=a.dtype, device=a.device).expand(*a.shape[:-2], columns, columns)
    if columns == 1:
        rotated, v = a / scale, eye
    else:
        odd = (0, columns % 2)
        rotated, v = _orthogonal(torch.nn.functional.pad(a / scale, odd), torch.nn.functional.pad(eye, odd))
        # After whole sweeps every column is where it began, and a column of zeros is left as it is.
        rotated, v = rotated[..., :columns], v[..., :columns]
    # Rounding scales a column of both alike.
    length = v.norm(dim=-2, keepdim=True)
    length = torch.where(length == 0, 1.0, length)
    rotated, v = rotated / length, v / length
    return rotated * scale, v, rotated.norm(dim=-2) * scale.squeeze(-1)


def singular_values(a: Tensor) -> Tensor:
    """The singular values `(..., min(m, n))` of matrices, the largest one first."""
    if empty(a):
        return a.new_zeros((*a.shape[:-2], min(a.shape[-2:])))
    tall = a if a.shape[-2] >= a.shape[-1] else a.mT
    return _factored(tall)[2].sort(dim=-1, descending=True).values


def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """U, the singular values and V transposed; a vector's sign is that of the rotations."""
    if not _is_taken(a):
        return NotImplemented
    _require_finite(a, "linalg.svd")
    if not compute_uv:
        return a.new_empty(0), singular_values(a), a.new_empty(0)
    if a.shape[-2] < a.shape[-1]:
        u, values, v = _tall_svd(a.mT, full_matrices)
        return v, values, u.mT
    u, values, v = _tall_svd(a, full_matrices)
    return u, values, v.mT


def _tall_svd(a: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, the singular values and V of a matrix that is not wide."""
    rows, columns = a.shape[-2:]
    count = rows if full_matrices else columns
    if empty(a):
        u, v = (linalg.eye(a, size, size) for size in (rows, columns))
        return u[..., :count], a.new_zeros((*a.shape[:-2], columns)), v
    rotated, v, norms = _factored(a)
    values, order = norms.sort(dim=-1, descending=True)
    rotated, v = _ordered(rotated, order), _ordered(v, order)
    # Orthogonal columns are U's but for their lengths, of which some may be 0, and U may have more.
    largest = values[..., :1].unsqueeze(-1)
    q, r = linalg.qr(
        rotated / torch.where(largest == 0, 1.0, largest), "complete" if full_matrices else "reduced"
    )
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(a.dtype)
    signs = torch.nn.functional.pad(signs, (0, count - columns), value=1.0)
    return q * signs.unsqueeze(-2), values, v


def _ordered(columns: Tensor, order: Tensor) -> Tensor:
    return columns.gather(-1, order.unsqueeze(-2).expand(columns.shape))


def eigh(a: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:  # noqa: N803  # torch's name
    """The eigenvalues, the least one first, and the vectors, whose signs are those of the rotations."""
    if not _is_taken(a):
        return NotImplemented
    _require_finite(a, "linalg.eigh")
    a = _symmetric(a, lower=UPLO.upper() == "L")
    if empty(a):
        return a.new_zeros(a.shape[:-1]), a.new_zeros(a.shape) if compute_v else a.new_empty(0)
    # Beyond the largest one all eigenvalues are positive, and so singular values.
    shift = singular_values(a)[..., :1]
    shifted = a + shift.unsqueeze(-1) * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    _, vectors, norms = _factored(shifted)
    values, order = norms.sort(dim=-1)
    return values - shift, _ordered(vectors, order) if compute_v else a.new_empty(0)


def _symmetric(a: Tensor, *, lower: bool) -> Tensor:
    half = a if lower else a.mT
    return half.tril() + half.tril(-1).mT


def pinv(
    a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Any:
    if not _is_taken(a):
        return NotImplemented
    if empty(a):
        return a.mT.clone()
    _require_finite(a, "linalg.pinv")
    a = _symmetric(a, lower=True) if hermitian else a
    is_wide = a.shape[-2] < a.shape[-1]
    rotated, v, norms = _factored(a.mT if is_wide else a)
    absolute = torch.zeros((), dtype=a.dtype, device=a.device) if atol is None else atol
    if rtol is None:
        least = torch.full((), max(a.shape[-2:]) * torch.finfo(a.dtype).eps, dtype=a.dtype, device=a.device)
        relative = least if atol is None else torch.where(atol > 0, 0.0, least)
    else:
        relative = rtol
    largest = norms.amax(-1, keepdim=True)
    limit = torch.maximum(absolute.unsqueeze(-1).to(a.dtype), relative.unsqueeze(-1).to(a.dtype) * largest)
    kept = norms > limit
    inverse = torch.where(kept, 1.0 / torch.where(kept, norms, 1.0), 0.0).unsqueeze(-2)
    found = (v * inverse) @ (rotated * inverse).mT
    return found.mT if is_wide else found


def lstsq(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """The solution of the least norm, as LAPACK's `gelsy` gives it; nothing reads the other results.

    Taken of `gels` is nothing: it computes with a matrix of less than full rank as no other does.
    """
    if not _is_taken(a) or driver == "gels":
        return NotImplemented
    least = max(a.shape[-2:]) * torch.finfo(a.dtype).eps if rcond is None else rcond
    inverse = pinv(a, rtol=torch.full((), least, dtype=a.dtype, device=a.device))
    is_vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and a.shape[:-1] == b.shape)
    solution = (inverse @ b.unsqueeze(-1)).squeeze(-1) if is_vector else inverse @ b
    rank = torch.zeros(solution.shape[: a.dim() - 2], dtype=torch.int64, device=a.device)
    return solution, a.new_empty(0), rank, a.new_empty(0)


def matrix_exp(a: Tensor) -> Any:
    """By the series of a matrix that is halved until its norm is at most 1, and squared as often again."""
    if not _is_taken(a):
        return NotImplemented
    if empty(a):
        return a.clone()
    norm = a.abs().sum(-2).amax(-1)
    halvings = torch.where(norm.isfinite() & (norm > 1), norm, 1.0).log2().ceil()
    small = a * torch.exp2(-halvings)[..., None, None]
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)
    total = eye
    for term in range(_TERMS[a.dtype], 0, -1):
        total = eye + small @ total / term

    def goes_on(k: Tensor, total: Tensor, halvings: Tensor) -> Tensor:
        return (k < halvings).any()

    def squared(k: Tensor, total: Tensor, halvings: Tensor) -> tuple[Tensor, Tensor]:
        return k + 1, torch.where((k < halvings)[..., None, None], total @ total, total)

    start: Any = (torch.zeros((), dtype=torch.int64, device=a.device), total)
    return while_loop_op(goes_on, squared, start, (halvings,))[1]


def svdvals(a: Tensor, *, driver: str | None = None) -> Any:
    # torch's own asks for the vectors too while it traces.
    found = svd(a, compute_uv=False)
    return found if found is NotImplemented else found[1]


def eigvalsh(a: Tensor, UPLO: str = "L") -> Any:  # noqa: N803  # torch's name
    found = eigh(a, UPLO, compute_v=False)
    return found if found is NotImplemented else found[0]


DECOMPOSITIONS: Table = {
    aten.linalg_svdvals.default: svdvals,
    aten.linalg_eigvalsh.default: eigvalsh,
    aten._linalg_svd.default: svd,
    aten._linalg_eigh.default: eigh,
    aten.linalg_pinv.atol_rtol_tensor: pinv,
    aten.linalg_lstsq.default: lstsq,
    aten.linalg_matrix_exp.default: matrix_exp,
}
