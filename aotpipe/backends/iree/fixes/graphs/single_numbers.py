"""Gives one number of a tensor, seen with more dims, a buffer of its own before it is put into another."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_PUTS: Final = (_ATEN.cat.default, _ATEN.index_put.default)


def own_buffers(node: Node) -> tuple[Node, ...]:
    """The operands of one element that are views."""
    if node.target not in _PUTS:
        return ()
    return tuple(each for each in node.all_input_nodes if each.target in ops.REARRANGES and _is_one(each))


def _is_one(node: Node) -> bool:
    shape = value_of(node).shape
    return len(shape) > 1 and all(map(is_one, shape))


FIX: Final = Fix(
    id="single-numbers",
    fault="IREE puts a number of a tensor that is seen with more dims into another tensor without the step "
    'between, and refuses what it made: "expected rank to be smaller or equal to the other rank"',
    remedy="the number gets a buffer of its own",
    targets=("iree-*",),
    program="`torch.cat([x[0].view(1, 1), y])` of `float32[4]` and `float32[2, 1]`",
    apply=GraphRewrite(own_buffers=own_buffers),
)
