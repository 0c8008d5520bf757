"""Keeps XLA from computing an update of a tensor while it writes the tensor that the update reads."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.core.fixes import Fix

_UPDATES: Final = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
_SAME: Final = ("stablehlo.reshape", "stablehlo.convert", "stablehlo.optimization_barrier")
_APART: Final = (
    "stablehlo.dot_general",
    "stablehlo.convolution",
    "stablehlo.while",
    "stablehlo.sort",
    "stablehlo.custom_call",
)
"""Ops whose results are in memory before anything reads them."""


def keep_apart(module: Any) -> None:
    """Put a barrier behind each update of a tensor that is computed from the tensor.

    XLA moves a reshape of what is updated before the update, and then takes both for two tensors.
    """
    for update in list(_updates(module.operation)):
        if _reads(update.operands[1:], _source(update.operands[0])):
            _put_behind_barrier(update)


def _updates(operation: Any) -> Any:
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                yield from _updates(each.operation)
                if each.operation.name in _UPDATES:
                    yield each.operation


def _maker(value: Any) -> Any:
    """The op that gives a value; None of a block's argument."""
    made = getattr(value.owner, "operation", None)
    return made if getattr(made, "name", None) else None


def _source(value: Any) -> Any:
    """What a value is but for its shape."""
    while (made := _maker(value)) is not None and made.name in _SAME and len(made.operands) == 1:
        value = made.operands[0]
    return value


def _reads(values: Any, source: Any) -> bool:
    """Whether some values are computed from one, of which nothing is in memory before."""
    waiting, seen = list(values), set()
    while waiting:
        value = waiting.pop()
        if value == source:
            return True
        made = _maker(value)
        if made is None or made in seen or made.name in _APART:
            continue
        seen.add(made)
        waiting += made.operands
    return False


def _put_behind_barrier(update: Any) -> None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    [result] = update.results
    uses = list(result.uses)
    with ir.InsertionPoint.after(update), update.location:
        [barred] = stablehlo.OptimizationBarrierOp([result]).results
    for use in uses:
        use.owner.operands[use.operand_number] = barred


FIX: Final = Fix(
    id="updates-in-place",
    fault="XLA computes an update of a tensor while it writes the tensor that the update reads, where a "
    "reshape follows: it moves the reshape before the update, and takes both for two tensors",
    remedy="such an update has a barrier behind it",
    package="jaxlib",
    versions="==0.10.*",
    targets=("xla-cpu-*",),
    program="`x[1:] = x[:-1].clone()`, then `x.reshape(1, 4)`",
    upstream="https://github.com/openxla/xla/issues/49176",
    apply=keep_apart,
)
