"""Rounds the numbers beside float32 tensors to float32, as torch does: to the nearest.

IREE turns float64 into float32 towards zero (3.13): 0.6 becomes 0.59999996. Torch compares with and divides
by the nearest float32, 0.60000002, so that `x > 0.6` and `(x / 0.6).floor()` differ. Where a program has
float64 tensors nothing is turned, and a number beside float32 ones would be compared in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

_WIDE: Final = (torch.float64, torch.complex128)
_MOST: Final = float(np.finfo(np.float32).max)


def are_narrowed(graphs: Iterable[GraphModule]) -> bool:
    """Whether a program of these graphs has float32 in the place of float64: where no tensor is one."""
    return not any(
        value.dtype in _WIDE
        for graph in graphs
        for module in graph.modules()
        if isinstance(module, GraphModule)
        for node in module.graph.nodes
        for value in _tensors(node)
    )


def round_to_nearest(graph: GraphModule, *, is_narrowed: bool) -> None:
    """Give the nodes of a graph and its subgraphs the nearest float32 of their numbers.

    Args:
        graph: Changed in place.
        is_narrowed: Whether the program has float32 in the place of float64; else only numbers beside tensors
            of other dtypes than float64 are rounded.
    """
    for module in (each for each in graph.modules() if isinstance(each, GraphModule)):
        for node in module.graph.nodes:
            if node.op == "call_function" and (is_narrowed or _is_narrow(node)):
                node.args = map_aggregate(node.args, _nearest)
                node.kwargs = map_aggregate(node.kwargs, _nearest)


def _is_narrow(node: Node) -> bool:
    taken = [each.meta.get("val") for each in node.all_input_nodes]
    tensors = [value for value in taken if isinstance(value, torch.Tensor)]
    return bool(tensors) and not any(value.dtype in _WIDE for value in [*tensors, *_tensors(node)])


def _tensors(node: Node) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [value for value in leaves if isinstance(value, torch.Tensor)]


def _nearest(value: Any) -> Any:
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) > _MOST:
        return value
    return float(np.float32(value))
