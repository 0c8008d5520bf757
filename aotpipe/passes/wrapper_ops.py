"""Puts the bodies of wrapper ops in their place.

A wrapper runs its one body exactly once and says something about it that a compiled program does not need:
`hints_wrapper`, `strict_mode`, `wrap`, `tag_activation_checkpoint`, `invoke_subgraph`, and
`wrap_with_set_grad_enabled`, as there are no gradients. `inline(program)` gives a program without them, or
the program itself where there are none; the program given is left as it was. (`wrap_with_autocast` does
change numbers; torch writes its casts into the graph when it decomposes.)
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.passes import hops
from aotpipe.passes.extract import graft

_HOP: Final = torch.ops.higher_order
Parts = Callable[[Sequence[Any]], tuple[Any, Sequence[Any]]]
_PARTS: Final[Mapping[object, Parts]] = {
    _HOP.hints_wrapper: lambda args: (args[0], args[1]),
    _HOP.strict_mode: lambda args: (args[0], args[1]),
    _HOP.wrap: lambda args: (args[0], args[1:]),
    _HOP.tag_activation_checkpoint: lambda args: (args[0], args[1:]),
    _HOP.invoke_subgraph: lambda args: (args[0], args[2:]),
    _HOP.wrap_with_set_grad_enabled: lambda args: (args[1], args[2:]),
}
"""The reference to the body and the operands, among the arguments of each wrapper."""


def inline(program: ExportedProgram) -> ExportedProgram:
    """Give the same program with the bodies of wrappers in place of their calls."""
    modules = [each for each in program.graph_module.modules() if isinstance(each, GraphModule)]
    if not any(_calls(module) for module in modules):
        return program
    module = copy.deepcopy(program.graph_module)
    _inline_all(module)
    return hops.with_graph(program, module)


def _calls(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if node.op == "call_function" and node.target in _PARTS]


def _inline_all(module: GraphModule) -> None:
    for call in _calls(module):
        reference, operands = _PARTS[call.target](call.args)
        body = hops.subgraph(module, reference)
        _inline_all(body)
        # Writes to operands and asserts have no users, and belong to the body all the same.
        results = graft(module, call, body, operands, hops.output_values(body), everything=True)
        if isinstance(body.graph.output_node().args[0], tuple | list):
            for user in list(call.users):
                assert user.target is operator.getitem
                user.replace_all_uses_with(results[int(str(user.args[1]))])
                module.graph.erase_node(user)
        else:
            call.replace_all_uses_with(results[0])
        module.graph.erase_node(call)
        if not reference.users:
            module.graph.erase_node(reference)
    hops.drop_unused_subgraphs(module)
    for child in module.children():
        if isinstance(child, GraphModule):
            _inline_all(child)
    module.recompile()
