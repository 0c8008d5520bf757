"""Products of matrices and vectors by way of `mm`, with their scaled sums, and one per group of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import HALF, Table, iota, static, widened

aten = torch.ops.aten
Number = int | float | complex


def vdot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.mm(left.conj_physical().unsqueeze(0), right.unsqueeze(1)).reshape(())


def scaled_sum(bias: torch.Tensor, product: torch.Tensor, beta: Number, alpha: Number) -> torch.Tensor:
    """`beta * bias + alpha * product`, rounded once."""
    dtype = product.dtype
    if dtype in HALF and (beta != 1 or alpha != 1):
        product, bias = product.float(), bias.float()
    if alpha != 1:
        product = product * _as(alpha, dtype)
    if beta == 0:
        # A NaN of the bias does not count where beta is 0.
        return product.to(dtype)
    return (product + (bias if beta == 1 else bias * _as(beta, dtype))).to(dtype)


def _as(number: Number, dtype: torch.dtype) -> Number:
    if dtype.is_complex or dtype.is_floating_point:
        return number
    return int(number.real)


def addbmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    batch, rows, inner = left.shape
    product = torch.mm(left.transpose(0, 1).reshape(rows, batch * inner), right.reshape(batch * inner, -1))
    return scaled_sum(bias, product, beta, alpha)


def addr(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    product = left.unsqueeze(1) * right.unsqueeze(0)
    return scaled_sum(bias, product.to(torch.result_type(bias, product)), beta, alpha)


def trilinear(
    one: torch.Tensor, two: torch.Tensor, three: torch.Tensor, *dims: Sequence[int], unroll_dim: int = 1
) -> Any:
    if one.dtype not in HALF:
        return NotImplemented
    # The compiler adds up its products in half precision.
    return aten._trilinear(one.float(), two.float(), three.float(), *dims, unroll_dim).to(one.dtype)


def grouped_rows(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Multiply each row by its group's matrix.

    Args:
        rows: `(rows, k)`, sorted by group.
        weight: `(groups, k, n)`.
        ends: `(groups,)`, where each group ends; rows after the last end give zeros.
    """
    group = (iota(rows.shape[0], rows).unsqueeze(1) >= ends.unsqueeze(0)).sum(1)
    present = group < ends.shape[0]
    group = group.clamp(max=ends.shape[0] - 1)
    wide_rows, wide_weight = widened(rows, weight)
    if static(rows.shape[0]) and static(ends.shape[0]) and rows.shape[0] <= ends.shape[0]:
        # Fewer rows than groups: the matrices in use are gathered, the others are not touched.
        product = torch.bmm(wide_rows.unsqueeze(1), wide_weight.index_select(0, group)).squeeze(1)
    else:
        # Sizes of groups are data; every matrix meets every row, and a row keeps its own group's product.
        products = torch.matmul(wide_rows.unsqueeze(0), wide_weight)
        index = group.reshape(1, -1, 1).expand(1, -1, products.shape[2])
        product = products.gather(0, index).squeeze(0)
    return torch.where(present.unsqueeze(1), product, 0.0).to(rows.dtype)


def grouped_mm(
    rows: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    if ends is None or rows.dim() != 2 or weight.dim() != 3:
        return NotImplemented
    product = grouped_rows(rows, weight, ends)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


DECOMPOSITIONS: Table = {
    aten.vdot.default: vdot,
    aten.addbmm.default: addbmm,
    aten.addr.default: addr,
    aten._trilinear.default: trilinear,
    aten._grouped_mm.default: grouped_mm,
}

LIBRARIES: Final[Mapping[str, Callable[..., Any]]] = {
    "transformers::grouped_mm_fallback": grouped_rows,
}
"""Ops that a library registers when it is imported, by qualified name."""
