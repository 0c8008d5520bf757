"""Rewrites StableHLO where IREE 3.13 would compute it wrong or refuse it; the values stay what they are.

`mend(function)` changes a function of jaxlib's in place:

- What is written into an array and made of it is computed first. IREE writes in place: where the update is a
  slice of the array itself, it reads what it just wrote. Other updates are left as they are: a barrier on a
  tensor was seen to lose the wait for what makes it (`carries`).
- A convolution whose window takes one place takes nothing beyond it. IREE drops that dim and keeps the rows
  that no window reads ("inferred input/output operand #1 has shape's dimension #0 to be 4, but found 3").
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


def _compute_first(operation: Any, places: Sequence[int]) -> None:
    """Put a barrier between the op and those of some operands that are made of what it writes into."""
    from jaxlib.mlir import ir

    written = list(operation.operands)[: max(1, len(places))]
    for place in places:
        operand = operation.operands[place]
        if not _is_made_of(operand, written):
            continue
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
