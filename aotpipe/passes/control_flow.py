"""The normal form of control flow in a decomposed graph.

`normalize(module)` changes a graph and its subgraphs in place so that

- no two calls share a subgraph, so that what one call implies for its body holds for that body;
- a body's nodes carry the user's line of their call where they have none of their own;
- a body returns no input, no view of one and no value twice: such results are clones;
- a tensor predicate is 0-d;
- nothing is left that only torch's own tracing needs (`detach`, `_assert_tensor_metadata`, ...).
"""

from __future__ import annotations

import copy
from typing import Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import alias_copies, hops, ops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.source_lines import source_line

_ATEN: Final = torch.ops.aten
_IDENTITIES: Final = frozenset(
    {_ATEN.detach.default, _ATEN.alias.default, _ATEN.lift_fresh_copy.default, _ATEN.lift_fresh.default}
)
# The signature, or a runtime assert beside them, says what they assert.
_STATEMENTS: Final = frozenset(
    {ops.ASSERT_METADATA, _ATEN.sym_constrain_range.default, _ATEN.sym_constrain_range_for_size.default}
)


def normalize(module: GraphModule) -> None:
    """Bring a graph and all its subgraphs into normal form."""
    ops.record_names(module.graph)
    _strip(module)
    seen: set[int] = set()
    for call in hops.calls(module):
        _own_subgraphs(call, seen)
        _scalar_predicate(call)
        for body in call.subgraphs:
            _inherit_line(call.node, body)
            normalize(body)
            alias_copies.clone_shared(body)
    hops.drop_unused_subgraphs(module)
    module.graph.lint()
    module.recompile()


def _strip(module: GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.target in _IDENTITIES:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
        elif node.target in _STATEMENTS:
            module.graph.erase_node(node)


def _own_subgraphs(call: hops.Call, seen: set[int]) -> None:
    for index in call.layout.subgraphs:
        reference = call.node.args[index]
        assert isinstance(reference, Node)
        body = call.owner.get_submodule(str(reference.target))
        if id(body) not in seen:
            seen.add(id(body))
            continue
        name = f"{reference.target}_{call.node.name}_{index}"
        call.owner.add_submodule(name, copy.deepcopy(body))
        with call.owner.graph.inserting_before(call.node):
            own = call.owner.graph.get_attr(name)
        own.meta = dict(reference.meta)
        call.node.update_arg(index, own)
        if not reference.users:
            call.owner.graph.erase_node(reference)


def _scalar_predicate(call: hops.Call) -> None:
    if call.is_cond:
        pred = call.node.args[0]
        if isinstance(pred, Node) and _has_dims(pred):
            call.node.update_arg(0, Emitter(call.owner, call.node)(_ATEN.view.default, pred, []))
    if call.is_while:
        test = call.subgraphs[0]
        (pred,) = hops.output_values(test)
        if isinstance(pred, Node) and _has_dims(pred):
            flat = Emitter(test, test.graph.output_node(), cause=pred)(_ATEN.view.default, pred, [])
            hops.set_output_values(test, [flat])


def _has_dims(node: Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _inherit_line(call: Node, body: GraphModule) -> None:
    for node in body.graph.nodes:
        if node.op == "call_function" and source_line(node) is None and "stack_trace" in call.meta:
            node.meta["stack_trace"] = call.meta["stack_trace"]
