"""Rounds the numbers beside float32 tensors to float32, as torch does: to the nearest.

Torch compares with and divides by the nearest float32, 0.60000002, so that `x > 0.6` and `(x / 0.6).floor()`
differ from what they are in eager if 0.6 becomes 0.59999996. Where a program has float64 tensors IREE keeps
numbers as they are, and one beside float32 tensors would be compared in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from aotpipe.backends.iree.fixes.graphs import GraphRewrite, modules
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops

_WIDE: Final = (torch.float64, torch.complex128)
_MOST: Final = float(np.finfo(np.float32).max)


def are_narrowed(graphs: Sequence[GraphModule]) -> bool:
    """Whether IREE computes a program in float32 in place of float64: where no tensor is one."""
    return not any(
        value.dtype in _WIDE
        for module in modules(graphs)
        for node in module.graph.nodes
        for value in ops.tensors(node)
    )


def round_to_nearest(graphs: Sequence[GraphModule]) -> None:
    """Give the nodes of a program's graphs the nearest float32 of their numbers, in place.

    In a program with float64 tensors only numbers beside tensors of other dtypes are rounded.
    """
    is_narrowed = are_narrowed(graphs)
    for module in modules(graphs):
        for node in module.graph.nodes:
            if node.op == "call_function" and (is_narrowed or _is_narrow(node)):
                node.args = map_aggregate(node.args, _nearest)
                node.kwargs = map_aggregate(node.kwargs, _nearest)


def _is_narrow(node: Node) -> bool:
    beside = [value for used in node.all_input_nodes for value in ops.tensors(used)]
    return bool(beside) and not any(value.dtype in _WIDE for value in [*beside, *ops.tensors(node)])


def _nearest(value: Any) -> Any:
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) > _MOST:
        return value
    return float(np.float32(value))


FIX: Final = Fix(
    id="float-rounding",
    fault="IREE rounds float64 numbers to float32 towards zero: 0.6 becomes 0.59999996",
    remedy="numbers beside float32 tensors are rounded to the nearest float32 before",
    targets=("iree-*",),
    program="`x > 0.6` of 0.6",
    apply=GraphRewrite(round_to_nearest),
)
