"""Whole-number divisions that the compiler computes wrong.

It folds quotients and remainders of constants as those of unsigned numbers or of C, and divides int64 by a
number through floats, which lose the bits beyond 2**53. `mend(module, ranges)` writes the constant where a
result is known, and a division by truncation, which is exact, where the dividend may be large. It comes after
the ranges are known: those of what it writes are harder to tell.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.ranges import Ranges
from aotpipe.passes.ranges.intervals import Interval, holds_floats
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_ROUNDED: Final = _ATEN.div.Tensor_mode
_DIVISIONS: Final = (_ROUNDED, _ATEN.remainder.Scalar, _ATEN.remainder.Tensor)
_EXACT: Final = 2**53
"""The first whole number whose successor is no float64."""


def mend(module: GraphModule, ranges: Ranges) -> bool:
    """Replace such divisions of a graph; gives whether there was one."""

    def mended(emit: Emitter, node: Node) -> Node | None:
        if (known := _known(node, ranges)) is not None:
            return _constant(emit, node, known)
        if _is_floor_by_number(node) and not ranges.space.within(ranges.of(node.args[0]), -_EXACT, _EXACT):
            return _floor(emit, *node.args[:2])
        return None

    divisions = (node for node in module.graph.nodes if node.target in _DIVISIONS)
    return rewrite(module, [node for node in divisions if not holds_floats(value_of(node))], mended)


def _known(node: Node, ranges: Ranges) -> int | None:
    """The result, where dividend and divisor are known to be one number each."""
    (left, highest), (right, widest) = (_ends(ranges.of(operand)) for operand in node.args[:2])
    if left is None or right is None or left != highest or right != widest or not right:
        return None
    if node.target is not _ROUNDED:
        return left % right
    down = left // right
    return down + int(node.kwargs["rounding_mode"] == "trunc" and down < 0 and down * right != left)


def _ends(interval: Interval) -> tuple[int | None, int | None]:
    low, high = (int(end) if isinstance(end, int) else None for end in (interval.low, interval.high))
    return low, high


def _constant(emit: Emitter, node: Node, value: int) -> Node | None:
    result = value_of(node)
    if all(isinstance(size, int) for size in result.shape):
        return emit(_ATEN.full.default, list(result.shape), value, dtype=result.dtype)
    # An operand of the result's shape brings the sizes that vary.
    shapes = {str(value_of(operand).shape): operand for operand in node.args[:2] if _is_tensor(operand)}
    like = shapes.get(str(result.shape))
    return None if like is None else emit(_ATEN.full_like.default, like, value, dtype=result.dtype)


def _is_floor_by_number(node: Node) -> bool:
    mode = node.kwargs.get("rounding_mode")
    by_number = node.target is _ROUNDED and not _is_tensor(node.args[1])
    return by_number and mode == "floor" and value_of(node).dtype is torch.int64


def _is_tensor(operand: Any) -> bool:
    return isinstance(value_of(operand), torch.Tensor)


def _floor(emit: Emitter, left: Any, right: Any) -> Node:
    """The truncated quotient, less one where the rest has the other sign than the divisor."""
    divisor = emit(_ATEN.full.default, [], right, dtype=torch.int64)
    whole = emit(_ROUNDED, left, divisor, rounding_mode="trunc")
    rest = emit(_ATEN.sub.Tensor, left, emit(_ATEN.mul.Tensor, whole, divisor))
    zero = emit(_ATEN.full.default, [], 0, dtype=torch.int64)
    negative = emit(_ATEN.lt.Tensor, divisor, zero)
    differs = emit(_ATEN.ne.Tensor, emit(_ATEN.lt.Tensor, rest, zero), negative)
    inexact = emit(_ATEN.logical_and.default, emit(_ATEN.ne.Tensor, rest, zero), differs)
    less = emit(_ATEN.sub.Tensor, whole, emit(_ATEN.full.default, [], 1, dtype=torch.int64))
    return emit(_ATEN.where.self, inexact, less, whole)
