"""Gives the columns that a product takes buffers of their own."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx

from aotpipe.backends.iree.fixes.graphs import GraphRewrite
from aotpipe.core.fixes import Fix
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_PRODUCTS: Final = frozenset({_ATEN.mm.default, _ATEN.bmm.default, _ATEN.mv.default, _ATEN.dot.default})
_CUTS: Final = frozenset({_ATEN.slice.Tensor, _ATEN.select.int})
# What gives its operand's elements, in their order or another.
_SAME: Final = frozenset(
    {
        *(_ATEN.view.default, _ATEN.expand.default, _ATEN.clone.default, _ATEN.alias.default),
        *(_ATEN.permute.default, _ATEN.transpose.int, _ATEN.t.default),
        *(_ATEN.squeeze.dim, _ATEN.squeeze.dims, _ATEN.unsqueeze.default),
    }
)


def own_buffers(node: fx.Node) -> tuple[fx.Node, ...]:
    """The operands of a product that are columns; none of any other op."""
    if node.target not in _PRODUCTS:
        return ()
    operands = dict.fromkeys(each for each in node.args[:2] if isinstance(each, fx.Node))
    return tuple(each for each in operands if _is_vector(value_of(each)) and _is_column(each))


def _is_vector(value: Any) -> bool:
    """Whether all dims but one have one element."""
    return sum(not _is_one(size) for size in value.shape) <= 1


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _is_column(node: fx.Node) -> bool:
    """Whether an operand was cut from a tensor along a dim that others come before."""
    while node.target in _SAME or node.target in _CUTS:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        if node.target in _CUTS:
            dim = node.args[1] if len(node.args) > 1 else 0
            sizes = value_of(source).shape
            if not isinstance(dim, int) or not all(map(_is_one, sizes[: dim % len(sizes)])):
                return True
        node = source
    return False


FIX: Final = Fix(
    id="column-products",
    fault="with data tiling, IREE reads a vector that was cut across the rows of a tensor as if its "
    "elements lay beside each other",
    remedy="such an operand is copied to a buffer of its own",
    targets=("iree-cpu-*",),
    program="`m[:, 1] @ weight`",
    apply=GraphRewrite(own_buffers=own_buffers),
)
