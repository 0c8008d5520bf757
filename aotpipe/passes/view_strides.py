"""Lets a view follow a value whose strides a decomposition changed.

Some of eager's kernels give strides of their own (attention on CPU gives those of its transposed output), and
models view what only those strides allow. A decomposition gives other strides, and torch refuses the view.
`relax(program)` gives a program whose views are reshapes, which copy where they must, except where a write to
the view or its base could be seen through the other; the program given is left as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.passes import alias_copies, hops, ops

_ATEN = torch.ops.aten


def relax(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with reshapes in place of views."""
    module = copy.deepcopy(program.graph_module)
    for body in hops.walk(module):
        written = {alias_copies.owner(node) for node in _written(body)}
        for node in body.graph.nodes:
            if node.target is _ATEN.view.default and alias_copies.owner(node) not in written:
                node.target = _ATEN.reshape.default
        body.recompile()
    return hops.with_graph(program, module)


def _written(body: GraphModule) -> Iterator[Node]:
    """The operands that a node writes to."""
    for node in body.graph.nodes:
        schema = ops.schema(node)
        if schema is None or not schema.is_mutable:
            continue
        for argument, used in zip(schema.arguments, node.args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(used, Node):
                yield used
