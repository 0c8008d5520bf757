"""Compares signed 64-bit integers as unsigned ones, where a Vulkan driver would compare them wrongly.

Mesa's compiler turns `int64(a) <= 12`, where `a` is an int32, into a comparison of 32 bits that is false for
each `a`. It knows the pattern by its widened operand: with both sign bits flipped, the unsigned comparison
says the same and the pattern is gone. What the host compares stays.
"""

from __future__ import annotations

from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, parents
from aotpipe.core.fixes import Fix

# The predicates of arith.cmpi: slt, sle, sgt, sge, and the unsigned ones in the same order.
_SIGNED: Final = range(2, 6)
_TO_UNSIGNED: Final = 4
_KERNELS: Final = ("linalg.", "iree_linalg_ext.")


def _flip_signs(comparison: Any) -> bool:
    predicate = comparison.attributes["predicate"]
    if predicate.value not in _SIGNED or str(comparison.operands[0].type) != "i64":
        return False
    if not any(around.name.startswith(_KERNELS) for around in parents(comparison)):
        return False
    from iree.compiler import ir
    from iree.compiler.dialects import arith

    with ir.InsertionPoint(comparison), comparison.location:
        sign = arith.constant(comparison.operands[0].type, -(2**63))
        for place, operand in enumerate(list(comparison.operands)):
            comparison.operands[place] = arith.xori(operand, sign)
    comparison.attributes["predicate"] = ir.IntegerAttr.get(predicate.type, predicate.value + _TO_UNSIGNED)
    return True


FIX: Final = Fix(
    id="int64-comparisons",
    fault="Mesa's lavapipe takes `int64(a) <= 12` of an int32 `a` for false, whatever `a` is",
    remedy="signed comparisons of 64 bits become unsigned ones of flipped sign bits",
    package="mesa",
    versions="==22.3.*",
    targets=("iree-vulkan",),
    program="`y = x.long(); return y + 1, (y <= 12).sum()` of an `int32[24]`",
    apply=Rewrite(("arith.cmpi",), _flip_signs),
)
