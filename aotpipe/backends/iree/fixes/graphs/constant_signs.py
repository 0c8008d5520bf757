"""Computes `sign` and `trunc` by comparisons: the compiler folds those of constants wrong."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import each_node
from aotpipe.core.fixes import Fix
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten


def _by_comparisons(emit: Emitter, node: Node) -> Node | None:
    (x,) = node.args
    if not value_of(node).is_floating_point():
        return None
    negative = emit(_ATEN.lt.Scalar, x, 0.0)
    if node.target is _ATEN.trunc.default:
        return emit(_ATEN.where.self, negative, emit(_ATEN.ceil.default, x), emit(_ATEN.floor.default, x))
    minus, zero, one = (
        emit(_ATEN.full.default, [], sign, dtype=value_of(node).dtype) for sign in (-1.0, 0.0, 1.0)
    )
    below = emit(_ATEN.where.self, negative, minus, zero)
    return emit(_ATEN.where.self, emit(_ATEN.gt.Scalar, x, 0.0), one, below)


FIX: Final = Fix(
    id="constant-signs",
    fault="IREE folds the sign of a positive constant to -1, of a float64 to 0, and `trunc` is made of it",
    remedy="both are computed by comparisons",
    targets=("iree-*",),
    program="`x + torch.full((3,), 2.5).to(torch.int64)`",
    apply=each_node({_ATEN.sign.default, _ATEN.trunc.default}, _by_comparisons),
)
