"""Shifts by less than zero, or by the width and more.

Eager shifts all bits out, C and the compilers leave the result undefined. `guard(module, ranges)` comes once
the ranges are known: most counts are numbers, or are proven to fit.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import ops
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.integer_division import of_dtype
from aotpipe.passes.ranges import Ranges
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_SHIFTS: Final = {
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), _ATEN.bitwise_left_shift.Tensor),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), _ATEN.bitwise_right_shift.Tensor),
}


def guard(module: GraphModule, ranges: Ranges) -> bool:
    """Give the shifts of a graph counts that fit; gives whether there was one that may not."""

    def may_fail(node: Node) -> bool:
        if ops.name_of(node) not in _SHIFTS:
            return False
        bits = torch.iinfo(value_of(node).dtype).bits
        return not ranges.space.within(ranges.of(node.args[1]), 0, bits - 1)

    return rewrite(module, [node for node in module.graph.nodes if may_fail(node)], _guarded)


def _guarded(emit: Emitter, node: Node) -> Node:
    dtype = value_of(node).dtype
    left, count = (of_dtype(emit, each, dtype) for each in node.args[:2])
    zero, last = (emit(_ATEN.full.default, [], end, dtype=dtype) for end in (0, torch.iinfo(dtype).bits - 1))
    beyond = emit(_ATEN.gt.Tensor, count, last)
    outside = emit(_ATEN.logical_or.default, beyond, emit(_ATEN.lt.Tensor, count, zero))
    shift = _SHIFTS[ops.name_of(node)]
    if shift is _ATEN.bitwise_right_shift.Tensor and dtype.is_signed:
        # What is left are copies of the sign.
        return emit(shift, left, emit(_ATEN.where.self, outside, last, count))
    shifted = emit(shift, left, emit(_ATEN.where.self, outside, zero, count))
    return emit(_ATEN.where.self, outside, zero, shifted)
