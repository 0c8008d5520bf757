"""Makes one index of several, where only a run knows how many elements they choose."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import each_node
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_READS: Final = (_ATEN.index.Tensor, ops.UNSAFE_INDEX)


def _joined(emit: Emitter, node: Node) -> Node | None:
    """Join several indices, each within its size by now, to one of the dims that they index as a whole."""
    source: Any = node.args[0]
    indices: Any = node.args[1]
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    values = [value_of(indices[dim]) for dim in dims]
    ranks = {value.dim() for value in values}
    if len(dims) < 2 or ranks == {0} or all(static(size) for value in values for size in value.shape):
        return None
    if any(value.dtype == torch.bool for value in values):
        return None
    rank = value_of(source).dim()
    first, last = dims[0], dims[-1]
    if dims != list(range(first, last + 1)):
        # The chosen elements come first in what is read.
        order = [*dims, *(dim for dim in range(rank) if dim not in dims)]
        source, first, last = emit(_ATEN.permute.default, source, order), 0, len(dims) - 1
    position = indices[dims[0]]
    for place, dim in enumerate(dims[1:], first + 1):
        size = value_of(source).shape[place]
        count = size if static(size) else emit(_ATEN.sym_size.int, source, place)
        position = emit(_ATEN.add.Tensor, emit(_ATEN.mul.Tensor, position, count), indices[dim])
    flat = emit(_ATEN.flatten.using_ints, source, first, last)
    return emit(_ATEN.index.Tensor, flat, [*[None] * first, position])


FIX: Final = Fix(
    id="dynamic-indices",
    fault="IREE's importer does not broadcast several indices whose sizes vary",
    remedy="the indices become one, of the dims that they index as one dim",
    targets=("iree-*",),
    program="`x[:, i, j]`, where i and j are of two dims that vary",
    diagnostic="failed to legalize operation 'torch.aten.index.Tensor_hacked_twin'",
    apply=each_node(_READS, _joined),
)
