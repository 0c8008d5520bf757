"""Joins the dims that vary before a view splits or joins others."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from aotpipe.backends.iree.fixes.graphs import each_node
from aotpipe.core.fixes import Fix
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten


def _joined(emit: Emitter, node: Node) -> Node | None:
    """Join the dims that vary in a dim of their own before a view whose result has at most one such dim."""
    source = node.args[0]
    assert isinstance(source, Node)
    sizes, wanted = _known(source), _known(node)
    varying = [dim for dim, size in enumerate(sizes) if size is None]
    if len(varying) < 2 or wanted.count(None) > 1:
        return None
    first, last = varying[0], varying[-1]
    if [*sizes[:first], None, *sizes[last + 1 :]] == wanted:
        return None
    joined = emit(_ATEN.flatten.using_ints, source, first, last)
    view = emit(_ATEN.view.default, joined, node.args[1])
    # The rest of the graph was traced with this shape.
    view.meta = dict(node.meta)
    return view


def _known(node: Node) -> list[int | None]:
    return [size if static(size) else None for size in value_of(node).shape]


FIX: Final = Fix(
    id="dynamic-views",
    fault="IREE takes the first dim of a view's operand and of its result for the same where several sizes "
    "of the operand vary: the result has other elements, or fewer",
    remedy="the dims that vary become one in a view of their own",
    targets=("iree-*",),
    program="`(x.view(n, 2 * m, 8) + 1).view(n * m, 16)`, where n and m vary; attention whose first dim is "
    "the sequence is made of it",
    upstream="https://github.com/llvm/torch-mlir/issues/4743",
    apply=each_node((_ATEN.view.default,), _joined),
)
