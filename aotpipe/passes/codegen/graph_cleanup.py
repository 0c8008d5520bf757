"""Makes a graph plainer before it is written: its branches hold what a person would have put there.

`simplify(graph)` changes a graph and the graphs under it. A branch that only sets flags becomes `|`, `&` and
`~`, one that only chooses between two tensors `torch.where`; what nothing reads is not computed, operands
that neither side reads are not passed, and what changes nothing is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotpipe.passes import hops
from aotpipe.passes.codegen.nodes import ATEN, has_writes, is_effect, parts, replacement
from aotpipe.passes.emit import Emitter
from aotpipe.passes.if_conversion import are_alike


def simplify(graph: GraphModule) -> None:
    """Make a graph, and those under it, plainer; it computes the same."""
    for child in graph.children():
        if isinstance(child, GraphModule):
            simplify(child)
    for call in hops.calls(graph):
        if call.is_cond and isinstance(call.node.args[0], Node):
            _Branch(call, call.node.args[0]).simplify()
    for node in graph.graph.nodes:
        if (same := replacement(node)) is not None:
            node.replace_all_uses_with(same, propagate_meta=False)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or is_effect(node))


class _Branch:
    def __init__(self, call: hops.Call, test: Node) -> None:
        self._graph = call.owner.graph
        self._node = call.node
        self._emit = Emitter(call.owner, call.node)
        self._sides = call.subgraphs
        self._operands = call.operands(3)
        self._test = test

    def simplify(self) -> None:
        for getter in [each for each in self._node.users if not each.users]:
            self._graph.erase_node(getter)
        taken = parts(self._node)
        # A graph that stands at two places is written for both.
        counts = {len(hops.output_values(side)) for side in self._sides}
        if not taken or self._sides[0] is self._sides[1] or len(counts) > 1:
            return
        for index, getters in taken.items():
            self._choose(index, getters)
        if not self._node.users:
            self._graph.erase_node(self._node)
            return
        self._drop_results(parts(self._node))
        self._drop_operands()

    def _choose(self, index: int, getters: Sequence[Node]) -> None:
        """Replace a result that each side only passes on, or sets to a truth, by a selection."""
        then, other = (self._simple(side, hops.output_values(side)[index]) for side in self._sides)
        if then is None or other is None or not self._is_truth(self._test):
            return
        for getter in getters:
            made = self._selected(then, other)
            if made is None:
                return
            getter.replace_all_uses_with(made, propagate_meta=False)
            self._graph.erase_node(getter)

    def _selected(self, then: Node | bool, other: Node | bool) -> Node | None:
        match then, other:
            case (bool(), bool()):
                return None if then is other else self._test if then else self._negated()
            case (bool() as fixed, Node() as value) | (Node() as value, bool() as fixed):
                if not self._is_truth(value):
                    return None
                test = self._test if fixed is isinstance(then, bool) else self._negated()
                op = ATEN.bitwise_or.Tensor if fixed else ATEN.bitwise_and.Tensor
                return self._emit(op, test, value)
            case (Node(), Node()) if are_alike(then.meta.get("val"), other.meta.get("val")):
                return self._emit(ATEN.where.self, self._test, then, other)
            case _:
                return None

    def _negated(self) -> Node:
        return self._emit(ATEN.bitwise_not.default, self._test)

    def _simple(self, side: GraphModule, result: Any) -> Node | bool | None:
        """What a side gives, if it is an operand or a truth that is set; None where it is computed."""
        while isinstance(result, Node) and result.target is ATEN.clone.default and not has_writes(side.graph):
            result = result.args[0]
        if not isinstance(result, Node):
            return None
        if result.op == "placeholder":
            operand = self._operands[hops.placeholders(side).index(result)]
            return operand if isinstance(operand, Node) else None
        if result.target is ATEN.full.default and result.args[0] == [] and isinstance(result.args[1], bool):
            return result.args[1]
        return None

    @staticmethod
    def _is_truth(node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() == 0

    def _drop_results(self, taken: Mapping[int, Sequence[Node]]) -> None:
        used = sorted(taken)
        if len(used) == len(hops.output_values(self._sides[0])):
            return
        for side in self._sides:
            results = hops.output_values(side)
            side.graph.output_node().args = (tuple(results[index] for index in used),)
            side.graph.eliminate_dead_code()
        for place, index in enumerate(used):
            for getter in taken[index]:
                getter.args = (self._node, place)
        self._node.meta["val"] = tuple(self._node.meta["val"][index] for index in used)

    def _drop_operands(self) -> None:
        inputs = [hops.placeholders(side) for side in self._sides]
        if any(len(each) != len(self._operands) for each in inputs):
            return
        kept = []
        for operand, *pair in zip(self._operands, *inputs, strict=True):
            if any(each.users for each in pair):
                kept.append(operand)
                continue
            for each in pair:
                each.graph.erase_node(each)
        self._node.args = (*self._node.args[:3], tuple(kept))
