"""Turns the product of one row and as many columns as vary into one of as many rows and one column."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import each_node
from aotpipe.core.fixes import Fix
from aotpipe.passes.decompositions.entries import is_one, static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten


def _turned(emit: Emitter, node: Node) -> Node | None:
    row, matrix = node.args
    if not is_one(value_of(row).shape[0]) or static(value_of(matrix).shape[1]):
        return None
    column = emit(_ATEN.mm.default, emit(_ATEN.t.default, matrix), emit(_ATEN.t.default, row))
    return emit(_ATEN.t.default, column)


FIX: Final = Fix(
    id="row-products",
    fault="with data tiling, IREE gives the product of one row and a matrix whose columns vary in number the "
    "size to which it pads the columns: what reads the result counts the padding too",
    remedy="the transposed product is computed, of the matrix's columns and the row",
    targets=("iree-cpu-*",),
    program="`(x @ w).exp().sum()` of `float32[1, 3]` and `float32[3, n]`, where n varies",
    apply=each_node([_ATEN.mm.default], _turned),
)
