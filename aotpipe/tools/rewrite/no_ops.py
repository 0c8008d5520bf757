"""Which ops of a graph change nothing: a reshape to the same shape, a copy of what nobody else holds.

`replacement(node)` gives the node whose result is as good.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.tools.rewrite.torch_ops import ATEN, is_higher, is_op, name_of_higher, schema_of

_COPIES: Final = (ATEN.clone.default, ATEN.lift_fresh_copy.default)
_SAME_SHAPE: Final = (
    ATEN.reshape.default,
    ATEN.view.default,
    ATEN.expand.default,
    ATEN.contiguous.default,
)


def replacement(node: Node) -> Node | None:
    """The operand that can stand for a node's result; None where the op does something."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    operand = node.args[0]
    before, after = operand.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return None
    target = node.target
    if target is ATEN.detach_.default:
        return operand
    if before.dtype != after.dtype or before.device != after.device or not _is_same_layout(before, after):
        return None
    if target is ATEN.clone.default or (target is ATEN.to.dtype and _is_copy(node)):
        if _is_only_read(node):
            return operand
        if not _is_fresh(operand):
            return None
        return operand if len(operand.users) == 1 or _is_given_back(node, operand) else None
    if target in _SAME_SHAPE or target is ATEN.to.dtype:
        return operand
    return None


def is_plain_copy(node: Node) -> bool:
    """Whether a copy lies in memory as its operand does, so that nothing has to be said of that."""
    if node.target is not ATEN.clone.default or not isinstance(node.args[0], Node):
        return False
    before, after = node.args[0].meta.get("val"), node.meta.get("val")
    return (
        isinstance(before, torch.Tensor)
        and isinstance(after, torch.Tensor)
        and _is_same_layout(before, after)
    )


def _is_given_back(node: Node, operand: Node) -> bool:
    """Whether a copy is only a result, and what it was made of is none and is not written."""
    copies = [each for each in operand.users if _is_result(each)]
    if not _is_result(node) or copies[0] is not node:
        return False
    others = [each for each in operand.users if each is not node]
    return not any(each.op == "output" or _may_write(each) for each in others)


def _is_only_read(node: Node) -> bool:
    """Whether a copy is read, by ops that give no part of it, in a graph that writes nothing."""
    # A copy of a copy: one of both is needed.
    readers = [each for each in node.users if each.target not in _COPIES and not _is_view(each)]
    if len(readers) < len(node.users) or not all(
        is_op(each.target) or name_of_higher(each.target) == "cond" for each in readers
    ):
        return False
    return not any(is_op(each.target) and schema_of(each.target).is_mutable for each in node.graph.nodes)


def _is_view(node: Node) -> bool:
    return is_op(node.target) and any(each.alias_info is not None for each in schema_of(node.target).returns)


def _is_result(node: Node) -> bool:
    return node.target is ATEN.clone.default and [each.op for each in node.users] == ["output"]


def _may_write(node: Node) -> bool:
    """Whether an op writes into its operand, or gives a part of it that another one may write into."""
    if not is_op(node.target):
        return False
    return schema_of(node.target).is_mutable or (
        _is_view(node)
        and any(is_op(each.target) and schema_of(each.target).is_mutable for each in node.graph.nodes)
    )


def _is_copy(node: Node) -> bool:
    return len(node.args) > 3 and bool(node.args[3])


def _is_same_layout(before: torch.Tensor, after: torch.Tensor) -> bool:
    return _texts(before.shape) == _texts(after.shape) and (
        before.dim() == 0 or _texts(before.stride()) == _texts(after.stride())
    )


def _texts(sizes: Any) -> tuple[str, ...]:
    return tuple(map(str, sizes))


def _is_fresh(node: Node) -> bool:
    """Whether a node's result is memory of its own."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem and isinstance(node.args[0], Node) and is_higher(node.args[0].target):
        return True
    if not is_op(node.target):
        return False
    if node.target in _COPIES:
        return True
    inner = replacement(node)
    if inner is not None:
        return _is_fresh(inner) and len(inner.users) == 1
    returns = schema_of(node.target).returns
    composite = node.target in (
        ATEN.reshape.default,
        ATEN.contiguous.default,
        ATEN.to.dtype,
        ATEN.flatten.using_ints,
    )
    return len(returns) == 1 and returns[0].alias_info is None and not composite
