"""Multiplies what a grouped convolution takes in the dtype of its sums."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite
from aotpipe.backends.iree.fixes.stablehlo import put_barrier, replace_operand
from aotpipe.core.fixes import Fix


def _widen_groups(operation: Any) -> bool:
    """Convert what a grouped convolution multiplies to the dtype of its sums, the kernel behind a barrier."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    wanted = ir.RankedTensorType(operation.results[0].type).element_type
    given = ir.RankedTensorType(operation.operands[0].type).element_type
    if operation.attributes["feature_group_count"].value == 1 or given == wanted:
        return False

    def convert(value: Any) -> Any:
        shape = list(ir.RankedTensorType(value.type).shape)
        return stablehlo.convert(ir.RankedTensorType.get(shape, wanted), value)

    for place in range(len(operation.operands)):
        replace_operand(operation, place, convert)
    # IREE takes conversions back into the convolution.
    put_barrier(operation, 1)
    return True


FIX: Final = Fix(
    id="grouped-dtypes",
    fault="IREE takes the kernel of a grouped convolution to have the dtype of its sums where each group "
    "has one channel",
    remedy="operands are converted to that dtype before, the kernel behind a barrier",
    targets=("iree-*",),
    program="`nn.Conv2d(8, 8, 3, groups=8)` of bfloat16, by `--dialect stablehlo`",
    diagnostic="expected collapsed type to be 'tensor<3x3x8xbf16>', but got 'tensor<3x3x8xf32>'",
    apply=Rewrite(("stablehlo.convolution",), _widen_groups),
)
