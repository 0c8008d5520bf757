"""Gives the columns that a product takes buffers of their own."""

from __future__ import annotations

from typing import Any, Final

from torch import fx

from aotpipe.backends.iree.fixes.graphs import GraphRewrite
from aotpipe.backends.iree.tuning import kernels, steps_after
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one
from aotpipe.passes.scalars import value_of

_PRODUCTS: Final = ops.overloads("bmm dot mm mv")
_CUTS: Final = ops.overloads("select.int slice.Tensor")
_SAME: Final = ops.REARRANGES | ops.overloads("t transpose.int")


def own_buffers(node: fx.Node) -> tuple[fx.Node, ...]:
    """The operands of a product that are columns; none of any other op."""
    if node.target not in (*_PRODUCTS, kernels.OP, steps_after.OP):
        return ()
    given: Any = node.args[0] if node.target is steps_after.OP else node.args
    operands = dict.fromkeys(each for each in given[:2] if isinstance(each, fx.Node))
    return tuple(each for each in operands if _is_vector(value_of(each)) and is_column(each))


def _is_vector(value: Any) -> bool:
    return sum(not is_one(size) for size in value.shape) <= 1


def is_column(node: fx.Node) -> bool:
    """Whether an operand was cut from a tensor along a dim that others come before."""
    while node.target in _SAME or node.target in _CUTS:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        if node.target in _CUTS:
            dim = ops.arguments(node)["dim"]
            sizes = value_of(source).shape
            if not isinstance(dim, int) or not all(map(is_one, sizes[: dim % len(sizes)])):
                return True
        node = source
    return False


def is_cut(node: fx.Node) -> bool:
    """Whether an operand was cut from a tensor along any dim."""
    while node.target in _SAME:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        node = source
    return node.target in _CUTS


FIX: Final = Fix(
    id="column-products",
    fault="with data tiling, IREE reads a vector that was cut across the rows of a tensor as if its "
    "elements lay beside each other",
    remedy="such an operand is copied to a buffer of its own",
    targets=("iree-cpu-*",),
    program="`m[:, 1] @ weight`",
    apply=GraphRewrite(own_buffers=own_buffers),
)
