"""Cuts off what a convolution whose window takes one place does not read."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from aotpipe.backends.iree.fixes.rewrites import Rewrite
from aotpipe.backends.iree.fixes.stablehlo import replace_operand
from aotpipe.core.fixes import Fix

# Of the operand, the kernel and the result: the dims that the window moves along come last.
_DIMS: Final = re.compile(r"\[b, f(, \d)+\]x\[[io], [io](, \d)+\]->\[b, f(, \d)+\]")


def _cut_unread(operation: Any) -> bool:
    """Cut off what lies behind a window that takes one place: padding first, then rows."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    attributes = operation.attributes
    if not _DIMS.search(str(attributes["dimension_numbers"])):
        return False
    values = *operation.operands, operation.results[0]
    shape, taken, given = (list(ir.RankedTensorType(value.type).shape) for value in values)
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
        starts, steps = [0] * len(limits), [1] * len(limits)
        replace_operand(operation, 0, lambda value: stablehlo.slice(value, starts, limits, steps))
    if (padding == attributes["padding"]).all() and limits == shape:
        return False
    attributes["padding"] = ir.DenseElementsAttr.get(padding, context=operation.context)
    return True


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
