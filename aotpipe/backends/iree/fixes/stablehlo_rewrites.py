"""Rewrites StableHLO where IREE 3.13 would compute it wrong or refuse it; the values stay what they are.

`mend(function)` changes a function of jaxlib's in place:

- What is written into an array and made of it is computed first. IREE writes in place: where the update is a
  slice of the array itself, it reads what it just wrote. Other updates are left as they are: a barrier on a
  tensor was seen to lose the wait for what makes it (`carries`).
- A convolution whose window takes one place takes nothing beyond it. IREE drops that dim and keeps the rows
  that no window reads ("inferred input/output operand #1 has shape's dimension #0 to be 4, but found 3").
- Operands of a grouped convolution have the dtype of its sums. IREE takes the kernel to have that anyway
  where each group has one channel ("expected collapsed type to be 'tensor<3x3x8xbf16>', but got
  'tensor<3x3x8xf32>'").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

# Of the operand, the kernel and the result: the dims that the window moves along come last.
_DIMS: Final = re.compile(r"\[b, f(, \d)+\]x\[[io], [io](, \d)+\]->\[b, f(, \d)+\]")


def mend(function: Any) -> None:
    """Rewrite a function in place."""
    from jaxlib.mlir import ir

    found: list[Any] = []

    def look(operation: Any) -> Any:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    function.operation.walk(look)
    for operation in found:
        match operation.name:
            case "stablehlo.scatter":
                count = len(operation.operands)
                _compute_first(operation, range(count // 2 + 1, count))
            case "stablehlo.dynamic_update_slice":
                _compute_first(operation, [1])
            case "stablehlo.convolution":
                _cut_unread(operation)
                _widen_groups(operation)


def _compute_first(operation: Any, places: Sequence[int]) -> None:
    """Put a barrier between the op and those of some operands that are made of what it writes into."""
    written = list(operation.operands)[: max(1, len(places))]
    for place in places:
        if _is_made_of(operation.operands[place], written):
            _put_barrier(operation, place)


def _put_barrier(operation: Any, place: int) -> None:
    """Have an operand computed by itself."""
    from jaxlib.mlir import ir

    operand = operation.operands[place]
    barrier = ir.Operation.create(
        "stablehlo.optimization_barrier",
        results=[operand.type],
        operands=[operand],
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    operation.operands[place] = barrier.result


def _is_made_of(value: Any, others: Sequence[Any]) -> bool:
    """Whether a value is computed from one of others, or is one."""
    from jaxlib.mlir import ir

    seen: set[Any] = set()
    left = [value]
    while left:
        each = left.pop()
        if each in others:
            return True
        if isinstance(each.owner, ir.Block) or each in seen:
            continue
        seen.add(each)
        left.extend(each.owner.operands)
    return False


def _cut_unread(operation: Any) -> None:
    """Cut off what lies behind a window that takes one place: padding first, then rows."""
    from jaxlib.mlir import ir

    attributes = operation.attributes
    if not _DIMS.search(str(attributes["dimension_numbers"])):
        return
    operand, kernel = operation.operands[0], operation.operands[1]
    shape = list(ir.RankedTensorType(operand.type).shape)
    taken = ir.RankedTensorType(kernel.type).shape
    given = ir.RankedTensorType(operation.results[0].type).shape
    padding = np.array(attributes["padding"])
    limits = list(shape)
    for number, axis in enumerate(range(2, len(shape))):
        spread, dilation = attributes["lhs_dilation"][number], attributes["rhs_dilation"][number]
        if given[axis] != 1 or spread != 1:
            continue
        window = (taken[axis] - 1) * dilation + 1
        beyond = int(padding[number].sum()) + shape[axis] - window
        padding[number, 1] -= min(beyond, max(int(padding[number, 1]), 0))
        limits[axis] = window - int(padding[number].sum())
    if limits != shape:
        operation.operands[0] = _first_rows(operation, operand, limits)
    attributes["padding"] = ir.DenseElementsAttr.get(padding, context=operation.context)


def _widen_groups(operation: Any) -> None:
    """Convert what a grouped convolution multiplies to the dtype of its sums, the kernel behind a barrier."""
    from jaxlib.mlir import ir

    wanted = ir.RankedTensorType(operation.results[0].type).element_type
    given = ir.RankedTensorType(operation.operands[0].type).element_type
    if operation.attributes["feature_group_count"].value == 1 or given == wanted:
        return
    for place, operand in enumerate(operation.operands):
        shape = list(ir.RankedTensorType(operand.type).shape)
        with operation.context, operation.location:
            operation.operands[place] = ir.Operation.create(
                "stablehlo.convert",
                results=[ir.RankedTensorType.get(shape, wanted)],
                operands=[operand],
                ip=ir.InsertionPoint(operation),
            ).result
    # IREE takes conversions back into the convolution.
    _put_barrier(operation, 1)


def _first_rows(operation: Any, operand: Any, limits: Sequence[int]) -> Any:
    """What lies before some limits of an operand."""
    from jaxlib.mlir import ir

    kind = ir.RankedTensorType(operand.type)
    with operation.context, operation.location:
        return ir.Operation.create(
            "stablehlo.slice",
            results=[ir.RankedTensorType.get(list(limits), kind.element_type)],
            operands=[operand],
            attributes={
                "start_indices": ir.DenseI64ArrayAttr.get([0] * len(limits)),
                "limit_indices": ir.DenseI64ArrayAttr.get(list(limits)),
                "strides": ir.DenseI64ArrayAttr.get([1] * len(limits)),
            },
            ip=ir.InsertionPoint(operation),
        ).result
