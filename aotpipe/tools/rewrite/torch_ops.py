"""What ops say of themselves: names, schemas, and what a graph of them writes in place.

An op's schema says what it is called, what it takes, gives and writes; nothing public of torch does.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import torch
from torch._C import FunctionSchema
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node

ATEN: Final[Any] = torch.ops.aten


def is_op(target: object) -> TypeGuard[OpOverload[..., Any]]:
    """Whether a node calls an op, and not a function of Python."""
    return isinstance(target, OpOverload)


def is_higher(target: object) -> TypeGuard[HigherOrderOperator]:
    """Whether a node calls an op that takes graphs: `cond`, `while_loop`, `scan`."""
    return isinstance(target, HigherOrderOperator)


def schema_of(op: OpOverload[..., Any]) -> FunctionSchema:
    """The schema of an op."""
    found: FunctionSchema = op._schema  # noqa: SLF001
    return found


def name_of(target: object) -> str:
    """`aten::add` for an op, else nothing."""
    return str(schema_of(target).name) if is_op(target) else ""


def short_of(target: object) -> str:
    """`add` for `aten::add`."""
    return name_of(target).partition("::")[2]


def overload_of(op: OpOverload[..., Any]) -> str:
    """`Tensor` for `aten::add.Tensor`."""
    return str(op._overloadname)  # noqa: SLF001


def is_function_of_torch(name: str) -> bool:
    """Whether `torch.NAME` is the op of that name, and no function of Python over it."""
    return callable(getattr(torch._C._VariableFunctions, name, None))  # noqa: SLF001


def is_functional(name: str) -> bool:
    """Whether `torch.nn.functional.NAME` is the op of that name."""
    found = getattr(torch.nn.functional, name, None)
    return found is not None and found is getattr(torch._C._nn, name, None)  # noqa: SLF001


def name_of_higher(target: object) -> str:
    """`cond` for `torch.ops.higher_order.cond`, else nothing."""
    return str(target.name()) if is_higher(target) else ""  # type: ignore[no-untyped-call]


# Each may give its operand itself, or a view of it, which their schemas do not say.
_VIEWS: Final = frozenset(
    {
        ATEN.reshape.default, ATEN.flatten.using_ints, ATEN.contiguous.default, ATEN.to.dtype,
        ATEN.to.dtype_layout, ATEN.to.device, ATEN.to.other, ATEN.type_as.default, ATEN.unflatten.int,
        ATEN.chunk.default, ATEN.split.sizes, ATEN.tensor_split.indices, ATEN.tensor_split.sections,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Writes:
    """What a program writes in place.

    Attributes:
        buffers: By path.
        inputs: By their place among the inputs.
    """

    buffers: tuple[str, ...]
    inputs: tuple[int, ...]


def writes(graph: GraphModule) -> Writes:
    """What a graph whose buffers are attributes writes."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    buffers: dict[str, None] = {}
    given: dict[int, None] = {}
    for node in graph.graph.nodes:
        for target in _written(node):
            root = _root(target)
            if root.op == "get_attr":
                buffers[str(root.target)] = None
            elif root.op == "placeholder":
                given[inputs.index(root)] = None
    return Writes(tuple(buffers), tuple(sorted(given)))


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
    returns = schema_of(node.target).returns if is_op(node.target) else ()
    return len(returns) == 1 and returns[0].alias_info is not None and returns[0].alias_info.is_write


def _written(node: Node) -> Iterator[Node]:
    """The operands that a node writes."""
    if node.op != "call_function" or not is_op(node.target) or node.target is ATEN.detach_.default:
        return
    for argument, value in zip(schema_of(node.target).arguments, node.args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Node):
            yield value


def _root(node: Node) -> Node:
    """What a node is a view of."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node):
        target = node.target
        is_part = target is operator.getitem
        aliases = is_op(target) and any(each.alias_info is not None for each in schema_of(target).returns)
        if not (is_part or aliases or target in _VIEWS):
            break
        node = node.args[0]
    return node
