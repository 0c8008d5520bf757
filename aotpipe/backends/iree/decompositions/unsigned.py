"""Ops of which one operand is a tensor of unsigned bytes: cast first to what eager promotes them to.

The compiler's own promotion takes bytes for signed, so that 200 enters a sum with another dtype as -56.
These entries come before those of the other groups, and leave every call without such a tensor to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import Decomposition, Table

aten = torch.ops.aten
Operand = torch.Tensor | float | int | bool


def _cast(operand: Operand, dtype: torch.dtype) -> Operand:
    return operand.to(dtype) if isinstance(operand, torch.Tensor) else operand


def _promoted(op: Callable[..., torch.Tensor]) -> Decomposition:
    """Of two operands."""

    def decompose(left: Operand, right: Operand, **options: Any) -> Any:
        dtype = torch.result_type(left, right)
        if not _differ((left, right), dtype):
            return NotImplemented
        return op(_cast(left, dtype), _cast(right, dtype), **options)

    return decompose


def _differ(operands: Sequence[Operand], dtype: torch.dtype) -> bool:
    dtypes = {operand.dtype for operand in operands if isinstance(operand, torch.Tensor)}
    return torch.uint8 in dtypes and dtypes != {dtype}


def _against_number(op: Callable[..., torch.Tensor]) -> Decomposition:
    """A comparison, which is one of signed bytes where the number is an integer."""

    def decompose(tensor: torch.Tensor, number: float) -> Any:
        if tensor.dtype != torch.uint8:
            return NotImplemented
        return op(tensor.to(torch.int32), number)

    return decompose


def where(condition: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Any:
    dtype = torch.result_type(left, right)
    if not _differ((left, right), dtype):
        return NotImplemented
    return torch.where(condition, left.to(dtype), right.to(dtype))


def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    dtype = tensors[0].dtype
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    if not _differ(tensors, dtype):
        return NotImplemented
    return torch.cat([tensor.to(dtype) for tensor in tensors], dim)


def reciprocal(tensor: torch.Tensor) -> Any:
    return 1 / tensor.to(torch.get_default_dtype()) if tensor.dtype == torch.uint8 else NotImplemented


_BINARY: Final = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_xor.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.remainder.Tensor,
    aten.lt.Tensor,
    aten.le.Tensor,
    aten.gt.Tensor,
    aten.ge.Tensor,
    aten.eq.Tensor,
    aten.ne.Tensor,
)
_COMPARISONS: Final = (
    aten.lt.Scalar,
    aten.le.Scalar,
    aten.gt.Scalar,
    aten.ge.Scalar,
    aten.eq.Scalar,
    aten.ne.Scalar,
)

DECOMPOSITIONS: Table = {
    **{op: _promoted(op) for op in _BINARY},
    **{op: _against_number(op) for op in _COMPARISONS},
    aten.where.self: where,
    aten.cat.default: cat,
    aten.reciprocal.default: reciprocal,
}
