"""Which ops of a graph change nothing: a reshape to the same shape, a copy of what nobody else holds.

`nothing(node)` gives the node whose result is as good.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.written.torchops import ATEN, is_op, schema_of

_COPIES: Final = (ATEN.clone.default, ATEN.lift_fresh_copy.default)
_SAME_SHAPE: Final = (
    ATEN.reshape.default,
    ATEN.view.default,
    ATEN.expand.default,
    ATEN.contiguous.default,
)


def nothing(node: Node) -> Node | None:
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
        return operand if _is_fresh(operand) and len(operand.users) == 1 else None
    if target in _SAME_SHAPE or target is ATEN.to.dtype:
        return operand
    return None


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
    if node.op != "call_function" or not is_op(node.target):
        return False
    if node.target in _COPIES:
        return True
    inner = nothing(node)
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
