"""Products of matrices: scaled sums around `mm` and `bmm`, and products over nothing."""

from __future__ import annotations

import torch

from aotpipe.passes.decompositions.blas import Number, scaled_sum
from aotpipe.passes.decompositions.entries import Table, empty

aten = torch.ops.aten


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


def addmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    return scaled_sum(bias, torch.mm(left, right), beta, alpha)


def addmv(
    bias: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    return scaled_sum(bias, torch.mv(matrix, vector), beta, alpha)


def baddbmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    return scaled_sum(bias, torch.bmm(left, right), beta, alpha)


DECOMPOSITIONS: Table = {
    aten.mm.default: mm,
    aten.bmm.default: bmm,
    aten.mv.default: mv,
    aten.dot.default: dot,
    aten.addmm.default: addmm,
    aten.addmv.default: addmv,
    aten.baddbmm.default: baddbmm,
}
