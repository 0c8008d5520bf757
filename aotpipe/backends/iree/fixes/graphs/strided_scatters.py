"""Gives what a scatter updates a buffer of its own where it is cut from a tensor."""

from __future__ import annotations

from typing import Final

from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite
from aotpipe.backends.iree.fixes.graphs.column_products import is_column, is_cut
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.scalars import value_of

_SCATTERS: Final = ops.overloads("index_put scatter.src scatter.value scatter_add scatter_reduce.two") | {
    ops.UNSAFE_INDEX_PUT
}


def own_buffers(node: Node) -> tuple[Node, ...]:
    """The operand that an op updates at computed places, if it was cut from columns, or varies in size."""
    if node.target not in _SCATTERS:
        return ()
    target = node.args[0]
    assert isinstance(target, Node)
    varies = not all(map(static, value_of(target).shape))
    return (target,) if is_column(target) or (varies and is_cut(target)) else ()


FIX: Final = Fix(
    id="strided-scatters",
    fault="IREE copies columns, and rows of a size that varies, that a scatter updates where nothing "
    "distributes the copy, and refuses the program where a size varies",
    remedy="such columns and rows get a buffer of their own",
    targets=("iree-cpu-*",),
    program="`m[i, max(0, i - 3):i + 1] = 0.0` for each row of m, where its size varies",
    diagnostic="restricted to workgroup distributed contexts",
    apply=GraphRewrite(own_buffers=own_buffers),
)
