"""Casts of floats to integers, towards zero whatever the target does.

IREE's bytecode for any CPU (`iree-vmvx`, 3.13) rounds to the nearest integer where torch, C and IREE's other
targets cut off: `truncate(graph)` cuts off before the cast.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import hops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.ops import CAST
from aotpipe.passes.scalars import value_of

_TRUNC: Final = torch.ops.aten.trunc.default
# Which have no fraction already.
_WHOLE: Final = tuple(getattr(torch.ops.aten, name).default for name in ("trunc", "floor", "ceil", "round"))


def truncate(graph: GraphModule) -> None:
    """Change the casts of a graph and of those inside of it."""
    for body in list(hops.walk(graph)):
        for node in body.graph.find_nodes(op="call_function", target=CAST):
            source = node.args[0]
            if isinstance(source, Node) and source.target not in _WHOLE and _cuts_off(source, node):
                node.update_arg(0, Emitter(body, node)(_TRUNC, source))
        body.recompile()


def _cuts_off(source: Node, node: Node) -> bool:
    given, made = value_of(source), value_of(node)
    return (
        isinstance(given, torch.Tensor)
        and given.dtype.is_floating_point
        and not (made.dtype.is_floating_point or made.dtype.is_complex or made.dtype is torch.bool)
    )
