"""Products of matrices: scaled sums around them, and products over nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotpipe.passes.decompositions.blas import Number, scaled_sum
from aotpipe.passes.decompositions.entries import Decomposition, Table, empty

aten = torch.ops.aten


def matmul(left: torch.Tensor, right: torch.Tensor) -> Any:
    """`mm` or `bmm`, by the rank of its operands."""
    if empty(left, right):
        # The compiler dies on a matmul with a size of 0 (SIGFPE in data tiling).
        shape = (*left.shape[:-1], right.shape[-1])
        return torch.zeros(shape, dtype=left.dtype, device=left.device)
    if left.dtype in (torch.bool, torch.uint8):
        op = torch.mm if left.dim() == 2 else torch.bmm
        return op(left.to(torch.int32), right.to(torch.int32)).to(left.dtype)
    return NotImplemented


def _added(product: Callable[..., torch.Tensor]) -> Decomposition:
    def decompose(
        bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
    ) -> torch.Tensor:
        return scaled_sum(bias, product(left, right), beta, alpha)

    return decompose


DECOMPOSITIONS: Table = {
    aten.mm.default: matmul,
    aten.bmm.default: matmul,
    aten.mv.default: lambda matrix, vector: torch.mm(matrix, vector.unsqueeze(1)).squeeze(1),
    aten.dot.default: lambda left, right: torch.mm(left.unsqueeze(0), right.unsqueeze(1)).reshape(()),
    aten.addmm.default: _added(torch.mm),
    aten.addmv.default: _added(torch.mv),
    aten.baddbmm.default: _added(torch.bmm),
}
