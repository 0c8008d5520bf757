"""Products of matrices: scaled sums around `mm` and `bmm`, and products over nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotpipe.passes.decompositions.entries import HALF, Table, empty

aten = torch.ops.aten
Number = int | float | complex


def mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if empty(left, right):
        # The compiler dies on a matmul with a size of 0 (SIGFPE in data tiling).
        return torch.zeros(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
    if left.dtype in (torch.bool, torch.uint8):
        return (left.to(torch.int32) @ right.to(torch.int32)).to(left.dtype)
    return NotImplemented


def bmm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if empty(left, right):
        return torch.zeros(left.shape[0], left.shape[1], right.shape[2], dtype=left.dtype, device=left.device)
    if left.dtype in (torch.bool, torch.uint8):
        return torch.bmm(left.to(torch.int32), right.to(torch.int32)).to(left.dtype)
    return NotImplemented


def mv(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return torch.mm(matrix, vector.unsqueeze(1)).squeeze(1)


def dot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.mm(left.unsqueeze(0), right.unsqueeze(1)).reshape(())


def vdot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return dot(left.conj_physical(), right)


def _scaled_sum(bias: torch.Tensor, product: torch.Tensor, beta: Number, alpha: Number) -> torch.Tensor:
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


def addmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    return _scaled_sum(bias, torch.mm(left, right), beta, alpha)


def addmv(
    bias: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    return _scaled_sum(bias, torch.mv(matrix, vector), beta, alpha)


def addbmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    batch, rows, inner = left.shape
    product = torch.mm(left.transpose(0, 1).reshape(rows, batch * inner), right.reshape(batch * inner, -1))
    return _scaled_sum(bias, product, beta, alpha)


def baddbmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    return _scaled_sum(bias, torch.bmm(left, right), beta, alpha)


def addr(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    product = left.unsqueeze(1) * right.unsqueeze(0)
    return _scaled_sum(bias, product.to(torch.result_type(bias, product)), beta, alpha)


def trilinear(
    one: torch.Tensor, two: torch.Tensor, three: torch.Tensor, *dims: Sequence[int], unroll_dim: int = 1
) -> Any:
    if one.dtype not in HALF:
        return NotImplemented
    # The compiler adds up its products in half precision.
    return aten._trilinear(one.float(), two.float(), three.float(), *dims, unroll_dim).to(one.dtype)


DECOMPOSITIONS: Table = {
    aten.mm.default: mm,
    aten.bmm.default: bmm,
    aten.mv.default: mv,
    aten.dot.default: dot,
    aten.vdot.default: vdot,
    aten.addmm.default: addmm,
    aten.addmv.default: addmv,
    aten.addbmm.default: addbmm,
    aten.baddbmm.default: baddbmm,
    aten.addr.default: addr,
    aten._trilinear.default: trilinear,
}
