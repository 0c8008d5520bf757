"""Makes tensors of float64 of the numbers that stand in a tensor's place beside float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.fixes.graphs import GraphRewrite, modules
from aotpipe.core.fixes import Fix
from aotpipe.passes import ops
from aotpipe.passes.emit import Emitter


def _widened(graphs: Sequence[GraphModule]) -> None:
    for module in modules(graphs):
        for node in list(module.graph.nodes):
            if node.op == "call_function" and any(each.dtype is torch.float64 for each in ops.tensors(node)):
                _widen(module, node)


def _widen(module: GraphModule, node: Node) -> None:
    declared = ops.schema(node)
    for place, (number, argument) in enumerate(
        zip(node.args, declared.arguments if declared else (), strict=False)
    ):
        if isinstance(number, float) and isinstance(argument.type, torch.TensorType):
            made = Emitter(module, node)(torch.ops.aten.full.default, [], number, dtype=torch.float64)
            node.update_arg(place, made)


FIX: Final = Fix(
    id="double-numbers",
    fault="IREE's importer makes a tensor of float32 of a number that stands where an op takes a tensor",
    remedy="beside float64 it is a tensor of float64",
    targets=("iree-*",),
    program="`0.1 - x` of float64",
    apply=GraphRewrite(_widened),
)
