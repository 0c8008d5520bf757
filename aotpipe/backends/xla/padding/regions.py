"""What control flow must know of padding: how many rows a scan goes over.

A map computes rows that nobody reads, and a branch or a loop sees its operands with plain axes; a scan alone
carries what it computed of one row to the next, and must stop where the rows do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from aotpipe.backends.xla.padding.layout import Arena, Padded
from aotpipe.backends.xla.padding.sizes import scalar


def lengths(arena: Arena, node: Node, args: Any) -> Mapping[str, Any]:
    """The further arguments of a region's lowering."""
    if node.target is not torch.ops.higher_order.scan:
        return {}
    rows = [each for each in args[2] if isinstance(each, Padded)]
    if not any(each.is_padded(0) for each in rows):
        return {}
    return {"length": scalar(arena.true(next(each.axes[0] for each in rows if each.is_padded(0))))}
