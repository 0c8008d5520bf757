"""Products of matrices and vectors by way of `mm`, with their scaled sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import HALF, Table

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


DECOMPOSITIONS: Table = {
    aten.vdot.default: vdot,
    aten.addbmm.default: addbmm,
    aten.addr.default: addr,
    aten._trilinear.default: trilinear,
}
