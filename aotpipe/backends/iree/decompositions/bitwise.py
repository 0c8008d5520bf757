"""Bits: the compiler knows each op of two tensors, and shifts unsigned bytes as signed ones.

Python's operators have names of their own in torch (`__lshift__`), and a form for a number on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from aotpipe.backends.iree.decompositions.pointwise import Value, promoted
from aotpipe.passes.decompositions.entries import Decomposition, Table

aten = torch.ops.aten


def _of_tensors(op: Callable[..., torch.Tensor]) -> Decomposition:
    def decompose(left: Value, right: Value) -> torch.Tensor:
        return op(*promoted(left, right))

    return decompose


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


_AND: Final = _of_tensors(torch.bitwise_and)
_OR: Final = _of_tensors(torch.bitwise_or)
_XOR: Final = _of_tensors(torch.bitwise_xor)
_LEFT: Final = _of_tensors(torch.bitwise_left_shift)
_RIGHT: Final = _of_tensors(torch.bitwise_right_shift)

DECOMPOSITIONS: Table = {
    aten.__and__.Scalar: _AND,
    aten.__and__.Tensor: _AND,
    aten.bitwise_and.Scalar: _AND,
    aten.bitwise_and.Scalar_Tensor: _AND,
    aten.__or__.Scalar: _OR,
    aten.__or__.Tensor: _OR,
    aten.bitwise_or.Scalar: _OR,
    aten.bitwise_or.Scalar_Tensor: _OR,
    aten.__xor__.Scalar: _XOR,
    aten.__xor__.Tensor: _XOR,
    aten.bitwise_xor.Scalar: _XOR,
    aten.bitwise_xor.Scalar_Tensor: _XOR,
    aten.__lshift__.Scalar: _LEFT,
    aten.__lshift__.Tensor: _LEFT,
    aten.bitwise_left_shift.Tensor: shift_left,
    aten.bitwise_left_shift.Tensor_Scalar: _LEFT,
    aten.bitwise_left_shift.Scalar_Tensor: _LEFT,
    aten.__rshift__.Scalar: _RIGHT,
    aten.__rshift__.Tensor: _RIGHT,
    aten.bitwise_right_shift.Tensor: shift_right,
    aten.bitwise_right_shift.Tensor_Scalar: _RIGHT,
    aten.bitwise_right_shift.Scalar_Tensor: _RIGHT,
}
