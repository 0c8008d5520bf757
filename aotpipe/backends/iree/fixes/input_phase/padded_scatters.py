"""Keeps a scatter and the padding of what it gives in kernels of their own."""

from __future__ import annotations

import re
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import VIEWS, Rewrite, fusion_barrier, maker, origin, replace_uses
from aotpipe.core.fixes import Fix

# A transpose of dims of size 1 is a view, too.
_MOVES: Final = (*VIEWS, "linalg.transpose")


def _apart(pad: Any) -> bool:
    """Put the result of a scatter behind a fusion barrier."""
    from aotpipe.backends.iree.lower.region_borders import dynamic_dims

    source = origin(pad.operands[0], _MOVES)
    if maker(source).name != "iree_linalg_ext.scatter":
        return False
    replace_uses(source, lambda: fusion_barrier(source, dynamic_dims(source)))
    return True


FIX: Final = Fix(
    id="padded-scatters",
    fault="IREE makes one kernel of a scatter of a single row and of what pads its result, which has no loop "
    "to distribute over workgroups",
    remedy="the padding reads the result behind a fusion barrier",
    targets=("iree-*",),
    program="`F.pad(x.index_put((i,), y), (1, 1))` of one index",
    diagnostic="write affecting operations on global resources are restricted to workgroup distributed",
    apply=Rewrite(
        ("tensor.pad",), _apart, re.compile(rb"\A(?=.*(scatter|index_put))(?=.*(pad|conv))", re.DOTALL)
    ),
)
