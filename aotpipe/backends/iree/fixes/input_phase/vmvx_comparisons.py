"""Compares floats so that IREE's bytecode sees a NaN: by predicates that it has right."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, replace_uses
from aotpipe.core.fixes import Fix

# The predicates of arith.cmpf by their values.
_OEQ, _OGT, _OGE, _OLT, _OLE, _ONE, _ORD, _, _UGT, _UGE, _ULT, _, _UNE, _UNO = range(1, 15)
_WRONG: Final[Mapping[int, tuple[tuple[int, ...], bool]]] = {
    _OEQ: ((_OGT, _OLT, _UNO), False),
    _OGE: ((_OLT, _UNO), False),
    _OLE: ((_OGT, _UNO), False),
    _ONE: ((_OGT, _OLT), True),
    _ORD: ((_UNO,), False),
    _UGT: ((_OGT, _UNO), True),
    _UGE: ((_OLT,), False),
    _ULT: ((_OLT, _UNO), True),
    _UNE: ((_OGT, _OLT, _UNO), True),
}
"""What the bytecode gets wrong: the predicates of which one holds where it does, or where it does not."""
_WRONG_OF_ONE_NUMBER: Final = frozenset({_OEQ, _OLE, _UGT, _ULT, _UNE})


def _see_nans(comparison: Any) -> bool:
    predicate, operands = comparison.attributes["predicate"].value, list(comparison.operands)
    differ = any(getattr(operand.owner, "name", "") == "arith.constant" for operand in operands)
    if predicate not in _WRONG or (differ and predicate in _WRONG_OF_ONE_NUMBER):
        return False
    from iree.compiler.dialects import arith

    def compare() -> Any:
        others, holds = _WRONG[predicate]
        found = reduce(arith.ori, [arith.cmpf(other, *operands) for other in others])
        return found if holds else arith.xori(found, arith.constant(found.type, 1))

    replace_uses(comparison.results[0], compare)
    comparison.erase()
    return True


FIX: Final = Fix(
    id="vmvx-comparisons",
    fault="IREE's bytecode takes NaN for equal to itself (`x != x` is false, `isnan` too), and "
    "`oge`, `uge`, `one` and `ord` of NaN for another predicate",
    remedy="they are computed from `ogt`, `olt` and `uno`",
    targets=("iree-vmvx",),
    program="`torch.isnan(x)`; `x.max(1)`, `x.sort(1)` and `x.argmax(1)` of NaN are made of it",
    apply=Rewrite(("arith.cmpf",), _see_nans),
)
