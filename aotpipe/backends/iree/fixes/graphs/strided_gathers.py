"""Gives what a gather reads a buffer of its own where its elements lie apart."""

from __future__ import annotations

from typing import Final

from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import is_one
from aotpipe.passes.scalars import value_of

_GATHERS: Final = ops.overloads("embedding flip gather index.Tensor index_select take") | {ops.UNSAFE_INDEX}


def own_buffers(node: Node) -> tuple[Node, ...]:
    """The operand that an op reads at computed places, if its last dim is strided."""
    if node.target not in _GATHERS:
        return ()
    source = node.args[0]
    assert isinstance(source, Node)
    strides = value_of(source).stride()
    return (source,) if ops.gives_view(source) and strides and not is_one(strides[-1]) else ()


FIX: Final = Fix(
    id="strided-gathers",
    fault="IREE vectorizes a gather from a strided operand, and has no lowering for it "
    "(`LLVM Translation failed for operation: builtin.unrealized_conversion_cast`)",
    remedy="the operand gets a buffer of its own",
    targets=("iree-cpu-*",),
    program="`x[:, 1::2].flip([1]) * 2`, where the first size varies",
    diagnostic="LLVM Translation failed for operation",
    apply=GraphRewrite(own_buffers=own_buffers),
)
