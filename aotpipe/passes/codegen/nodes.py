"""What a node of a graph is: its op, what it writes, who reads it, and the user's line behind it.

An op's schema says what it is called, what it takes, gives and writes; nothing public of torch does.
`replacement(node)` gives the operand that can stand for a result where an op changes nothing: a reshape to
the same shape, a copy of what nobody else holds.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from aotpipe.model import source
from aotpipe.passes import alias_copies, hops, ops
from aotpipe.passes.if_conversion import are_alike

ATEN: Final[Any] = torch.ops.aten
# What torch finds by itself when it traces the written code again.
_NO_OPS: Final = frozenset({"_assert_tensor_metadata", "sym_constrain_range"})
_COPIES: Final = (ATEN.clone.default, ATEN.lift_fresh_copy.default)
_SAME_SHAPE: Final = (
    ATEN.reshape.default, ATEN.view.default, ATEN.expand.default, ATEN.contiguous.default, ATEN.to.dtype,
)  # fmt: skip


def name_of_higher(target: object) -> str:
    """`cond` for `torch.ops.higher_order.cond`, else nothing."""
    return str(target.name()) if isinstance(target, HigherOrderOperator) else ""  # type: ignore[no-untyped-call]


def is_mutable(node: Node) -> bool:
    """Whether an op writes into one of its operands."""
    schema = ops.schema(node)
    return schema is not None and bool(schema.is_mutable)


def is_effect(node: Node) -> bool:
    """Whether a node is there for more than its result: it writes, asserts, draws or runs graphs."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return isinstance(target, HigherOrderOperator)
    name = ops.name_of(node)
    drawn = torch.Tag.nondeterministic_seeded in target.tags
    return name not in _NO_OPS and (is_mutable(node) or drawn or "_assert" in name or "sym_constrain" in name)


def parts(node: Node) -> Mapping[int, list[Node]]:
    """The nodes that take one part each of a node's result; none where anything takes the whole."""
    found: dict[int, list[Node]] = {}
    if not isinstance(node.meta.get("val"), tuple | list):
        return {}
    for user in node.users:
        if user.target is not operator.getitem or not isinstance(user.args[1], int):
            return {}
        found.setdefault(user.args[1], []).append(user)
    return found


def times(user: Node, node: Node) -> int:
    """How often a node stands among another's arguments."""
    read: list[Node] = []
    torch.fx.node.map_arg((user.args, user.kwargs), read.append)
    return read.count(node)


def short(node: Node) -> str:
    """What a result is called for its op: `linear`, of a part `values` of topk, `chosen` of a branch."""
    target = node.target
    if isinstance(target, OpOverload):
        return ops.name_of(node).strip("_")
    if target is not operator.getitem:
        return str(node.name).rstrip("0123456789").rstrip("_") or str(node.name)
    whole: Any = node.args[0]
    index: Any = node.args[1]
    if higher := name_of_higher(whole.target):
        return {"cond": "chosen", "while_loop": "final"}.get(higher, "result")
    schema = ops.schema(whole)
    if schema is None:
        return "part"
    named = schema.returns[index].name if isinstance(index, int) and index < len(schema.returns) else ""
    return str(named or f"{ops.name_of(whole).strip('_')}_part")


def has_index_without_dims(node: Node) -> bool:
    """Whether a tensor is indexed by one of no dimensions: Python's brackets would ask it for its value."""
    if node.target is not ATEN.index.Tensor:
        return False
    indices: Any = node.args[1]
    return any(isinstance(each, Node) and each.meta["val"].dim() == 0 for each in indices)


def replacement(node: Node) -> Node | None:
    """The operand that can stand for a node's result; None where the op does something."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    operand, target = node.args[0], node.target
    if target is ATEN.detach_.default:
        return operand
    before: Any = operand.meta.get("val")
    after: Any = node.meta.get("val")
    if not _is_same_layout(before, after) or before.device != after.device:
        return None
    copies = target is ATEN.to.dtype and len(node.args) > 3 and bool(node.args[3])
    if target is ATEN.clone.default or copies:
        if _is_only_read(node):
            return operand
        is_own = _is_fresh(operand) and (len(operand.users) == 1 or _is_given_back(node, operand))
        return operand if is_own else None
    return operand if target in _SAME_SHAPE else None


def is_plain_copy(node: Node) -> bool:
    """Whether a copy lies in memory as its operand does, so that nothing has to be said of that."""
    operand = node.args[0] if node.target is ATEN.clone.default else None
    return isinstance(operand, Node) and _is_same_layout(operand.meta.get("val"), node.meta.get("val"))


def _is_given_back(node: Node, operand: Node) -> bool:
    """Whether a copy serves only as a result, and its operand is neither a result nor written."""
    copies = [each for each in operand.users if _is_result(each)]
    if not _is_result(node) or copies[0] is not node:
        return False
    others = [each for each in operand.users if each is not node]
    # A part of what it was made of may be written by another op.
    shares = has_writes(node.graph)
    return not any(
        each.op == "output" or is_mutable(each) or (shares and ops.gives_view(each)) for each in others
    )


def _is_only_read(node: Node) -> bool:
    """Whether ops only read a copy and none gives a view of it, in a graph that writes nothing."""
    return not has_writes(node.graph) and all(
        # A copy of a copy: one of both is needed.
        each.target not in _COPIES
        and not ops.gives_view(each)
        and (isinstance(each.target, OpOverload) or name_of_higher(each.target) == "cond")
        for each in node.users
    )


def has_writes(graph: Graph) -> bool:
    """Whether an op of a graph writes in place."""
    return any(map(is_mutable, graph.nodes))


def _is_result(node: Node) -> bool:
    return node.target is ATEN.clone.default and [each.op for each in node.users] == ["output"]


def _is_same_layout(before: Any, after: Any) -> bool:
    """Whether two values are tensors of one shape and dtype that lie in memory alike."""
    return are_alike(before, after) and list(map(str, before.stride())) == list(map(str, after.stride()))


def _is_fresh(node: Node) -> bool:
    """Whether a node's result lies in memory of its own."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return isinstance(node.args[0].target, HigherOrderOperator)
    schema = ops.schema(node)
    returns: Sequence[Any] = schema.returns if schema else ()
    composite = (ATEN.reshape.default, ATEN.contiguous.default, ATEN.to.dtype, ATEN.flatten.using_ints)
    return len(returns) == 1 and returns[0].alias_info is None and node.target not in composite


def unlifted(program: ExportedProgram) -> GraphModule:
    """A program's graph with its parameters and buffers as attributes, and its writes as ops."""
    return program.module(check_guards=False)


def writes(program: ExportedProgram) -> tuple[list[str], list[int]]:
    """What a program writes in place: buffers by path, and inputs by their place among the inputs."""
    graph = unlifted(program)
    inputs = hops.placeholders(graph)
    buffers: dict[str, None] = {}
    given: set[int] = set()
    for node in graph.graph.nodes:
        for value in ops.written(node) if node.target is not ATEN.detach_.default else ():
            root = alias_copies.owner(value)
            if root.op == "get_attr":
                buffers[str(root.target)] = None
            elif root.op == "placeholder":
                given.add(inputs.index(root))
    return list(buffers), sorted(given)


def is_own_copy(node: Node) -> bool:
    """Whether a node copies to an attribute what was written to it in place: torch.export ends so."""
    if node.target is not ATEN.copy_.default:
        return False
    target, value = node.args[:2]
    while isinstance(value, Node) and value.op == "call_function" and _gives_what_it_writes(value):
        value = value.args[0]
    attributes = [each.target for each in (target, value) if isinstance(each, Node) and each.op == "get_attr"]
    return len(attributes) == 2 and attributes[0] == attributes[1]


def _gives_what_it_writes(node: Node) -> bool:
    schema = ops.schema(node)
    returns: Sequence[Any] = schema.returns if schema else ()
    return len(returns) == 1 and returns[0].alias_info is not None and returns[0].alias_info.is_write


class Lines:
    """The lines of a graph's nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._place = {node: _place(node) for node in nodes}
        computed = [node for node in nodes if node.op == "call_function"]
        self._last = {
            node
            for node, after in zip(computed, [*computed[1:], None], strict=True)
            if after is None or self._place[node] != self._place[after]
        }

    def is_same(self, node: Node, other: Node) -> bool:
        """Whether two nodes come from one line, as far as is known."""
        return self._place.get(node) == self._place.get(other)

    def target(self, node: Node) -> str | None:
        """The variable that a line gives its result to, where this node is the last of the line."""
        place = self._place.get(node)
        return _targets(place[0]).get(place[1]) if place is not None and node in self._last else None


def _place(node: Node) -> tuple[str, int] | None:
    """The innermost frame of a file that is not torch's own."""
    found = source.frames_of(node.meta.get("stack_trace"))
    return next((each for each in reversed(found) if source.is_model_code(each[0])), None)


@functools.lru_cache(maxsize=64)
def _targets(path: str) -> dict[int, str]:
    """For each line of a file that is a whole assignment to one variable, that variable."""
    tree = source.syntax(path)
    found: dict[int, str] = {}
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AugAssign(target=ast.Name(id=name))
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                found |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), name)
    return found
