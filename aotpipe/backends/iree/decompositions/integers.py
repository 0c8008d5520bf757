"""Bits and unsigned bytes: the compiler knows bitwise ops of two tensors, and takes bytes for signed numbers.

A byte of 200 would enter a sum with another dtype as -56. The entries of `OF_BYTES` cast bytes first to what
eager promotes them to. They come before those of the other groups, and leave calls without bytes to these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import Table, Value, promoted
from aotpipe.passes.decompositions.pointwise import of_tensors
from aotpipe.passes.ops import overloads

aten = torch.ops.aten


def in_int32(op: Callable[..., torch.Tensor], *operands: Value, **options: Any) -> torch.Tensor:
    """What an op gives of small integers or bools of one dtype, computed as signed words."""
    dtype = next(each.dtype for each in operands if isinstance(each, torch.Tensor))
    wider = (each.to(torch.int32) if isinstance(each, torch.Tensor) else each for each in operands)
    return op(*wider, **options).to(dtype)


def _byte_shift(op: Callable[..., torch.Tensor], left: torch.Tensor, right: Value) -> Any:
    one, two = promoted(left, right)
    if one.dtype != torch.uint8:
        return NotImplemented
    return (op(one.to(torch.int32), two.to(torch.int32)) & 255).to(torch.uint8)


def _promoted(op: Callable[..., torch.Tensor], left: Value, right: Value, **options: Any) -> Any:
    dtype = torch.result_type(left, right)
    if not _differ((left, right), dtype):
        return NotImplemented
    operands = (each.to(dtype) if isinstance(each, torch.Tensor) else each for each in (left, right))
    return op(*operands, **options)


def _differ(operands: Sequence[Value], dtype: torch.dtype) -> bool:
    dtypes = {operand.dtype for operand in operands if isinstance(operand, torch.Tensor)}
    return torch.uint8 in dtypes and dtypes != {dtype}


def where(condition: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Any:
    return _promoted(lambda one, two: torch.where(condition, one, two), left, right)


def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    if not _differ(tensors, dtype):
        return NotImplemented
    return torch.cat([tensor.to(dtype) for tensor in tensors], dim)


def reciprocal(tensor: torch.Tensor) -> Any:
    return 1 / tensor.to(torch.get_default_dtype()) if tensor.dtype == torch.uint8 else NotImplemented


_BINARY: Final = overloads(
    "maximum minimum add.Tensor sub.Tensor mul.Tensor div.Tensor remainder.Tensor lt.Tensor le.Tensor "
    "gt.Tensor ge.Tensor eq.Tensor ne.Tensor bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor"
)

DECOMPOSITIONS: Table = {
    aten.bitwise_and.Scalar: of_tensors(torch.bitwise_and),
    aten.bitwise_and.Scalar_Tensor: of_tensors(torch.bitwise_and),
    aten.bitwise_or.Scalar: of_tensors(torch.bitwise_or),
    aten.bitwise_or.Scalar_Tensor: of_tensors(torch.bitwise_or),
    aten.bitwise_xor.Scalar: of_tensors(torch.bitwise_xor),
    aten.bitwise_xor.Scalar_Tensor: of_tensors(torch.bitwise_xor),
    aten.bitwise_left_shift.Tensor_Scalar: of_tensors(torch.bitwise_left_shift),
    aten.bitwise_left_shift.Scalar_Tensor: of_tensors(torch.bitwise_left_shift),
    aten.bitwise_right_shift.Tensor_Scalar: of_tensors(torch.bitwise_right_shift),
    aten.bitwise_right_shift.Scalar_Tensor: of_tensors(torch.bitwise_right_shift),
    aten.bitwise_left_shift.Tensor: partial(_byte_shift, torch.bitwise_left_shift),
    aten.bitwise_right_shift.Tensor: partial(_byte_shift, torch.bitwise_right_shift),
}
OF_BYTES: Table = {
    **{op: partial(_promoted, op) for op in _BINARY},
    aten.where.self: where,
    aten.cat.default: cat,
    aten.reciprocal.default: reciprocal,
}
