"""Cuts off what a convolution whose window takes one place does not read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from aotpipe.backends.iree.fixes.rewrites import Rewrite
from aotpipe.core.fixes import Fix

# Of the operand, the kernel and the result: the dims that the window moves along come last.
_DIMS: Final = re.compile(r"\[b, f(, \d)+\]x\[[io], [io](, \d)+\]->\[b, f(, \d)+\]")


def _cut_unread(operation: Any) -> bool:
    """Cut off what lies behind a window that takes one place: padding first, then rows."""
    from jaxlib.mlir import ir

    attributes = operation.attributes
    if not _DIMS.search(str(attributes["dimension_numbers"])):
        return False
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
    if (padding == attributes["padding"]).all() and limits == shape:
        return False
    attributes["padding"] = ir.DenseElementsAttr.get(padding, context=operation.context)
    return True


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


FIX: Final = Fix(
    id="unread-rows",
    fault="IREE drops the dim of a convolution whose window takes one place, and keeps the rows that no "
    "window reads",
    remedy="padding and rows beyond the window are cut off before",
    targets=("iree-*",),
    program="`nn.Conv1d(3, 4, 2, stride=3)` of `float32[1, 3, 3]`, by `--dialect stablehlo`",
    diagnostic="inferred input/output operand #1 has shape's dimension #0 to be",
    apply=Rewrite(("stablehlo.convolution",), _cut_unread),
)
