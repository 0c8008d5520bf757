"""Bits: the compiler knows each op of two tensors, and shifts unsigned bytes as signed ones.

Each has a form for a number on either side.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import Table, Value, promoted
from aotpipe.passes.decompositions.pointwise import of_tensors

aten = torch.ops.aten


def shift_left(left: torch.Tensor, right: Value) -> Any:
    return _byte_shift(left, right, to_left=True)


def shift_right(left: torch.Tensor, right: Value) -> Any:
    return _byte_shift(left, right, to_left=False)


def _byte_shift(left: torch.Tensor, right: Value, *, to_left: bool) -> Any:
    one, two = promoted(left, right)
    if one.dtype != torch.uint8:
        return NotImplemented
    one, two = one.to(torch.int32), two.to(torch.int32)
    shifted = torch.bitwise_left_shift(one, two) if to_left else torch.bitwise_right_shift(one, two)
    return (shifted & 255).to(torch.uint8)


_AND: Final = of_tensors(torch.bitwise_and)
_OR: Final = of_tensors(torch.bitwise_or)
_XOR: Final = of_tensors(torch.bitwise_xor)
_LEFT: Final = of_tensors(torch.bitwise_left_shift)
_RIGHT: Final = of_tensors(torch.bitwise_right_shift)

DECOMPOSITIONS: Table = {
    aten.bitwise_and.Scalar: _AND,
    aten.bitwise_and.Scalar_Tensor: _AND,
    aten.bitwise_or.Scalar: _OR,
    aten.bitwise_or.Scalar_Tensor: _OR,
    aten.bitwise_xor.Scalar: _XOR,
    aten.bitwise_xor.Scalar_Tensor: _XOR,
    aten.bitwise_left_shift.Tensor: shift_left,
    aten.bitwise_left_shift.Tensor_Scalar: _LEFT,
    aten.bitwise_left_shift.Scalar_Tensor: _LEFT,
    aten.bitwise_right_shift.Tensor: shift_right,
    aten.bitwise_right_shift.Tensor_Scalar: _RIGHT,
    aten.bitwise_right_shift.Scalar_Tensor: _RIGHT,
}
