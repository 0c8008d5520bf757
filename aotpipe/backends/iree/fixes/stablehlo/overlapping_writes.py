"""Computes what is written into an array, and is made of it, before anything is written.

Other updates are left as they are: a barrier on a tensor was seen to lose the wait for what makes it
(`lower/region_borders.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite
from aotpipe.backends.iree.fixes.stablehlo import put_barrier
from aotpipe.core.fixes import Fix


def _compute_first(operation: Any) -> bool:
    """Put a barrier between the op and those of its operands that are made of what it writes into."""
    operands = list(operation.operands)
    # A scatter takes arrays, the places, and as many updates; another op an array, an update, and the places.
    is_scatter = operation.name == "stablehlo.scatter"
    count, end = (len(operands) // 2, len(operands)) if is_scatter else (1, 2)
    made = [place for place in range(count, end) if _is_made_of(operands[place], operands[:count])]
    for place in made:
        put_barrier(operation, place)
    return bool(made)


def _is_made_of(value: Any, others: Sequence[Any]) -> bool:
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


FIX: Final = Fix(
    id="overlapping-writes",
    fault="IREE writes in place: where an update of StableHLO is a slice of the array that it updates, IREE "
    "reads what it has just written",
    remedy="a barrier has the update computed first",
    targets=("iree-*",),
    program="`x.index_copy(0, places, x[:3])`, by `--dialect stablehlo`",
    apply=Rewrite(("stablehlo.scatter", "stablehlo.dynamic_update_slice"), _compute_first),
)
