"""Whole-number divisions: those that have no answer, and those that the compiler computes wrong.

By zero eager raises, where compiled code dies or gives any number; of the least number by -1 it gives the
least number, and some of its own kernels die. `guard(program)` asserts that no divisor is zero, and divides
by 1 in both cases, which gives eager's answer of the second. It comes before the decompositions, so that it
sees the model's own divisions alone. `mend` then takes out what the ranges prove needless, as
`runtime_asserts` does.

The compiler folds quotients and remainders of constants as those of unsigned numbers or of C, and divides
int64 by a number through floats, which lose the bits beyond 2**53. `mend(module, ranges)` writes the constant
where a result is known, and a division by truncation, which is exact, where the dividend may be large. It
comes after the ranges are known: those of what it writes are harder to tell.
"""

from __future__ import annotations

import copy
import operator
from typing import Any, Final, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.export import symbols
from aotpipe.passes import decompositions, hops, ops
from aotpipe.passes.emit import Emitter, rewrite
from aotpipe.passes.ranges import Ranges
from aotpipe.passes.ranges.intervals import FALSE, Interval, holds_floats
from aotpipe.passes.scalars import all_true, as_tensor, value_of

_ATEN: Final = torch.ops.aten
_ROUNDED: Final = _ATEN.div.Tensor_mode
_DIVISIONS: Final = (_ROUNDED, _ATEN.remainder.Scalar, _ATEN.remainder.Tensor)
_EXACT: Final = 2**53
"""The first whole number whose successor is no float64."""
_GUARDED: Final = frozenset({"div", "divide", "floor_divide", "remainder", "fmod"})


def guard(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with divisors that are not zero, and asserts that none was."""
    found = [node for body in hops.walk(program.graph_module) for node in body.graph.nodes if _may_fail(node)]
    if not found:
        return program
    if not all(isinstance(value_of(node), FakeTensor) for node in found):
        # Inside of vmap a node's value has no batch, and nothing can be computed of it.
        program = decompositions.decompose(program, {})
    module = copy.deepcopy(program.graph_module)
    said = "RuntimeError: ZeroDivisionError"
    for body in hops.walk(module):
        for node in [node for node in body.graph.nodes if _may_fail(node)]:
            left, right = node.args[:2]
            node.update_arg(1, _safe_divisor(Emitter(body, node), left, right, said))
            node.target = ops.by_tensor(node.target)
        body.recompile()
    return hops.with_graph(program, module)


def guard_numbers(module: GraphModule) -> None:
    """Write divisions of Python's numbers by what may be zero as those of tensors, with asserts."""
    for body in list(hops.walk(module)):
        for node in list(body.graph.nodes):
            if node.target in (operator.floordiv, operator.mod) and _may_be_zero(node.args[1]):
                emit = Emitter(body, node)
                left, right = (as_tensor(emit, each, torch.int64) for each in node.args)
                divisor = _safe_divisor(emit, left, right, _OF_NUMBERS[node.target])
                found = _floor(emit, left, divisor)
                if node.target is operator.mod:
                    found = emit(_ATEN.sub.Tensor, left, emit(_ATEN.mul.Tensor, found, divisor))
                item = emit(ops.ITEM, found)
                item.meta["val"] = node.meta["val"]
                node.replace_all_uses_with(item)
                body.graph.erase_node(node)
        body.recompile()


_OF_NUMBERS: Final = {
    operator.floordiv: "ZeroDivisionError: integer division or modulo by zero",
    operator.mod: "ZeroDivisionError: integer modulo by zero",
}


def _may_be_zero(number: Any) -> bool:
    value = value_of(number)
    if not isinstance(value, torch.SymInt):
        return bool(value == 0)
    lowest, highest = symbols.bounds(value.node.shape_env.bound_sympy(value.node.expr))
    return lowest == 0 and (highest is None or highest >= 0)


def _may_fail(node: Node) -> bool:
    """Whether a node divides whole numbers of tensors by what may be 0 or -1."""
    name = ops.name_of(node).rstrip("_")
    if name not in _GUARDED or not ops.schema(node):
        return False
    if name.startswith("div") and node.kwargs.get("rounding_mode") is None:
        return False
    left, right = map(value_of, node.args[:2])
    dtype = torch.result_type(left, right)
    if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex:
        return False
    return not isinstance(right, int) or _wrapped(right, dtype) in (0, -1)


def _wrapped(number: int, dtype: torch.dtype) -> int:
    """A Python number as eager casts it to a dtype."""
    info = torch.iinfo(dtype)
    return int((number - info.min) % 2**info.bits + info.min)


def _safe_divisor(emit: Emitter, left: Any, right: Any, said: str) -> Node:
    """The divisor, 1 where it is zero or where the quotient would overflow; asserts the first."""
    dtype = torch.result_type(value_of(left), value_of(right))
    left, divisor = (of_dtype(emit, each, dtype) for each in (left, right))
    one = emit(_ATEN.full.default, [], 1, dtype=dtype)
    unsafe = emit(_ATEN.eq.Scalar, divisor, 0)
    holds = all_true(emit, emit(_ATEN.logical_not.default, unsafe))
    elements = value_of(left).numel()
    if str(value_of(left).shape) != str(value_of(divisor).shape) and _may_be_zero(elements):
        # Where there is nothing to divide, eager takes a zero.
        empty = emit(_ATEN.eq.Scalar, as_tensor(emit, emit(_ATEN.sym_numel.default, left)), 0)
        holds = emit(_ATEN.logical_or.default, holds, empty)
    emit(ops.ASSERT_TENSOR, holds, said)
    if dtype.is_signed:
        least = emit(_ATEN.eq.Scalar, left, torch.iinfo(dtype).min)
        overflows = emit(_ATEN.logical_and.default, least, emit(_ATEN.eq.Scalar, divisor, -1))
        unsafe = emit(_ATEN.logical_or.default, unsafe, overflows)
    return emit(_ATEN.where.self, unsafe, one, divisor)


def of_dtype(emit: Emitter, value: Any, dtype: torch.dtype) -> Node:
    """Write an operand as a tensor of a dtype, as eager casts it."""
    if not _is_tensor(value):
        whole = value if isinstance(value, Node) else _wrapped(int(value), dtype)
        return as_tensor(emit, whole, dtype)
    return value if value_of(value).dtype is dtype else emit(ops.CAST, value, dtype=dtype)


def mend(module: GraphModule, ranges: Ranges) -> bool:
    """Replace such divisions of a graph; gives whether there was one."""

    def mended(emit: Emitter, node: Node) -> Node | None:
        if (known := _known(node, ranges)) is not None:
            return _constant(emit, node, known)
        if _is_floor_by_number(node) and not ranges.space.within(ranges.of(node.args[0]), -_EXACT, _EXACT):
            left, right = node.args[:2]
            return _floor(emit, left, emit(_ATEN.full.default, [], right, dtype=torch.int64))
        return None

    guards = [node for node in module.graph.nodes if _is_guard(node) and ranges.of(node.args[0]) == FALSE]
    unneeded = rewrite(module, guards, lambda _, node: cast("Node", node.args[2]))
    divisions = (node for node in module.graph.nodes if node.target in _DIVISIONS)
    wrong = [node for node in divisions if not holds_floats(value_of(node))]
    return rewrite(module, wrong, mended) or unneeded


def _is_guard(node: Node) -> bool:
    """Whether a node selects among whole numbers, the second of the result's own shape."""
    if node.target is not _ATEN.where.self or holds_floats(value_of(node)):
        return False
    result, other = value_of(node), value_of(node.args[2])
    return str(result.shape) == str(other.shape) and result.dtype is other.dtype


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


def _floor(emit: Emitter, left: Any, divisor: Node) -> Node:
    """The truncated quotient, less one where the rest has the other sign than the divisor."""
    whole = emit(_ROUNDED, left, divisor, rounding_mode="trunc")
    rest = emit(_ATEN.sub.Tensor, left, emit(_ATEN.mul.Tensor, whole, divisor))
    zero = emit(_ATEN.full.default, [], 0, dtype=torch.int64)
    negative = emit(_ATEN.lt.Tensor, divisor, zero)
    differs = emit(_ATEN.ne.Tensor, emit(_ATEN.lt.Tensor, rest, zero), negative)
    inexact = emit(_ATEN.logical_and.default, emit(_ATEN.ne.Tensor, rest, zero), differs)
    less = emit(_ATEN.sub.Tensor, whole, emit(_ATEN.full.default, [], 1, dtype=torch.int64))
    return emit(_ATEN.where.self, inexact, less, whole)
