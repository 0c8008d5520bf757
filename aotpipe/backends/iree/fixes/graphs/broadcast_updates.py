"""Expands what an update repeats to all places, where only a run knows how many there are."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import each_node
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one, static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_UPDATES: Final = (_ATEN.index_put.default, ops.UNSAFE_INDEX_PUT)


def _expanded(emit: Emitter, node: Node) -> Node | None:
    """Expand the values of an update at a number of places that varies to the shape of what they replace."""
    tensor, indices, values, *more = node.args
    # Only its sizes are read: the compiler drops it.
    replaced = emit(_ATEN.index.Tensor, tensor, indices)
    shape, given = value_of(replaced).shape, value_of(values).shape
    padded = [1] * (len(shape) - len(given)) + list(given)
    is_repeated = any(is_one(one) and not is_one(size) for one, size in zip(padded, shape, strict=True))
    if all(map(static, shape)) or not is_repeated:
        node.graph.erase_node(replaced)
        return None
    sizes = [
        size if static(size) else emit(_ATEN.sym_size.int, replaced, dim) for dim, size in enumerate(shape)
    ]
    return emit(node.target, tensor, indices, emit(_ATEN.expand.default, values, sizes), *more)


FIX: Final = Fix(
    id="broadcast-updates",
    fault="IREE writes a value that an update repeats to the first place even where there is no place",
    remedy="the value is expanded to the shape of what is replaced",
    targets=("iree-*",),
    program="`y[x.nonzero()[:, 0]] = 0.0`, where no element of x is true",
    apply=each_node(_UPDATES, _expanded),
)
