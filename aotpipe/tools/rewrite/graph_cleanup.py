"""Makes a graph plainer before it is written: its branches hold what a person would have put there.

`simplify(graph)` changes a graph and the graphs under it. A branch that only sets flags becomes `|`, `&` and
`~`, one that only chooses between two tensors `torch.where`; results of a branch that nothing reads are not
computed, and operands that neither side reads are not passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotpipe.tools.rewrite.nodes import at, parts
from aotpipe.tools.rewrite.torch_ops import ATEN, is_op, name_of_higher, schema_of


def simplify(graph: GraphModule) -> None:
    """Make a graph, and those under it, plainer; it computes the same."""
    for child in graph.children():
        if isinstance(child, GraphModule):
            simplify(child)
    for node in list(graph.graph.nodes):
        if name_of_higher(node.target) == "cond" and isinstance(node.args[0], Node):
            _Branch(graph, node).simplify()


class _Branch:
    """One `torch.cond`."""

    def __init__(self, graph: GraphModule, node: Node) -> None:
        self._graph = graph
        self._node = node
        sides: Any = node.args[1:3]
        self._sides: list[GraphModule] = [at(graph, str(each.target)) for each in sides]
        self._test: Any = node.args[0]

    def simplify(self) -> None:
        for getter in [each for each in self._node.users if not each.users]:
            self._graph.graph.erase_node(getter)
        taken = parts(self._node)
        # A graph that stands at two places is written for both.
        if not taken or self._sides[0] is self._sides[1] or len({len(_results(s)) for s in self._sides}) > 1:
            return
        for index, getters in taken.items():
            self._chosen(index, getters)
        if not self._node.users:
            self._graph.graph.erase_node(self._node)
            return
        self._drop_results(parts(self._node))
        self._drop_operands()

    def _chosen(self, index: int, getters: Sequence[Node]) -> None:
        """Put a selection in the place of a result that both sides only hand on, or set."""
        then, other = (self._simple(side, _results(side)[index]) for side in self._sides)
        if then is None or other is None or not self._is_truth(self._test):
            return
        for getter in getters:
            with self._graph.graph.inserting_before(self._node):
                made = self._selected(then, other)
            if made is None:
                return
            getter.replace_all_uses_with(made, propagate_meta=False)
            self._graph.graph.erase_node(getter)

    def _selected(self, then: Node | bool, other: Node | bool) -> Node | None:
        test = self._test
        match then, other:
            case (True, False):
                return test  # type: ignore[no-any-return]
            case (False, True):
                return self._made(ATEN.bitwise_not.default, test)
            case (bool(), bool()):
                return None
            case (bool(), Node()):
                found = test if then else self._made(ATEN.bitwise_not.default, test)
                op = ATEN.bitwise_or.Tensor if then else ATEN.bitwise_and.Tensor
                return self._made(op, found, other) if self._is_truth(other) else None
            case (Node(), bool()):
                found = self._made(ATEN.bitwise_not.default, test) if other else test
                op = ATEN.bitwise_or.Tensor if other else ATEN.bitwise_and.Tensor
                return self._made(op, found, then) if self._is_truth(then) else None
            case (Node(), Node()) if _is_alike(then, other):
                return self._made(ATEN.where.self, test, then, other)
            case _:
                return None

    def _made(self, op: Any, *args: Node) -> Node:
        node = self._graph.graph.call_function(op, args)
        node.meta = {"val": args[-1].meta["val"], "stack_trace": self._node.meta.get("stack_trace")}
        return node

    def _simple(self, side: GraphModule, result: Any) -> Node | bool | None:
        """What a side gives, if it is an operand or a truth that is set; None where it is computed."""
        writes = any(is_op(each.target) and schema_of(each.target).is_mutable for each in side.graph.nodes)
        while isinstance(result, Node) and result.target is ATEN.clone.default and not writes:
            result = result.args[0]
        if not isinstance(result, Node):
            return None
        if result.op == "placeholder":
            place = [each for each in side.graph.nodes if each.op == "placeholder"].index(result)
            operands: Any = self._node.args[3]
            operand = operands[place]
            return operand if isinstance(operand, Node) else None
        if result.target is ATEN.full.default and result.args[0] == [] and isinstance(result.args[1], bool):
            return result.args[1]
        return None

    @staticmethod
    def _is_truth(node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() == 0

    def _drop_results(self, taken: Any) -> None:
        """Leave out what nothing reads."""
        used = sorted(taken)
        if len(used) == len(_results(self._sides[0])):
            return
        for side in self._sides:
            results = _results(side)
            side.graph.output_node().args = (tuple(results[index] for index in used),)
            side.graph.eliminate_dead_code()
        for place, index in enumerate(used):
            for getter in taken[index]:
                getter.args = (self._node, place)
        self._node.meta["val"] = tuple(self._node.meta["val"][index] for index in used)

    def _drop_operands(self) -> None:
        """Leave out what neither side reads."""
        inputs = [[each for each in side.graph.nodes if each.op == "placeholder"] for side in self._sides]
        operands: Any = self._node.args[3]
        if any(len(each) != len(operands) for each in inputs):
            return
        unread = [at for at, pair in enumerate(zip(*inputs, strict=True)) if not any(p.users for p in pair)]
        for place in unread:
            for side, mine in zip(self._sides, inputs, strict=True):
                side.graph.erase_node(mine[place])
        kept = tuple(each for place, each in enumerate(operands) if place not in unread)
        self._node.args = (*self._node.args[:3], kept)


def _results(side: GraphModule) -> list[Any]:
    returned: Any = side.graph.output_node().args[0]
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def _is_alike(then: Node, other: Node) -> bool:
    first, second = then.meta.get("val"), other.meta.get("val")
    return (
        isinstance(first, torch.Tensor)
        and isinstance(second, torch.Tensor)
        and first.dtype == second.dtype
        and list(map(str, first.shape)) == list(map(str, second.shape))
    )
