"""What is private in torch about ops, in one place: public by its use, and by no name.

An op's schema says what it is called, what it takes, gives and writes; nothing public does.
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import torch
from torch._C import FunctionSchema
from torch._ops import HigherOrderOperator, OpOverload

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
