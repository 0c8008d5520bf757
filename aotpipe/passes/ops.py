"""Ops by name, and what torch names with an underscore: ops, their classes, their schemas.

The private ops are what `item()`, asserts and casts become in every exported graph.
"""
# ruff: noqa: SLF001

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

_ATEN: Final = torch.ops.aten

ITEM: Final[Any] = _ATEN._local_scalar_dense.default
CAST: Final[Any] = _ATEN._to_copy.default
SYM_SQRT: Final[Any] = vars(torch)["_sym_sqrt"]
ASSERT_TENSOR: Final[Any] = _ATEN._assert_async.msg
ASSERT_TENSOR_SILENT: Final[Any] = _ATEN._assert_async.default
ASSERT_NUMBER: Final[Any] = _ATEN._assert_scalar.default
ASSERT_METADATA: Final[Any] = _ATEN._assert_tensor_metadata.default
UNSAFE_INDEX: Final[Any] = _ATEN._unsafe_index.Tensor
UNSAFE_INDEX_PUT: Final[Any] = _ATEN._unsafe_index_put.default


def overloads(names: str) -> frozenset[OpOverload]:
    """The ops of ATen with these names: `sum.dim_IntList`, or `exp`, which is `exp.default`."""
    pairs = (name.partition(".") for name in names.split())
    return frozenset(getattr(getattr(_ATEN, op), overload or "default") for op, _, overload in pairs)


def by_tensor(op: Any) -> Any:
    """The overload of an op that takes a tensor where this one takes a number as its second operand."""
    name = {"Scalar": "Tensor", "Scalar_mode": "Tensor_mode"}.get(op._overloadname, op._overloadname)
    return getattr(op.overloadpacket, name, None) or op.overloadpacket.default


REARRANGES: Final = overloads("alias clone expand permute squeeze.dim squeeze.dims unsqueeze view")
"""Ops whose result holds every element of their operand, and no other."""


def schema(node: Node) -> Any:
    """The schema of a node's ATen op; None for a Python function or a control-flow op."""
    return node.target._schema if isinstance(node.target, OpOverload) else None


def gives_view(node: Node) -> bool:
    """Whether the schema of a node's ATen op says that a result lies in the memory of an operand."""
    declared = schema(node)
    return declared is not None and any(each.alias_info is not None for each in declared.returns)


def written(node: Node) -> Iterator[Node]:
    """The operands that a node's ATen op writes to."""
    declared = schema(node)
    for argument, used in zip(declared.arguments if declared else (), node.args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(used, Node):
            yield used


COMPARISONS: Final = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
OF_NUMBERS: Final[Mapping[Any, Any]] = {
    **{each: getattr(_ATEN, each.__name__).Tensor for each in COMPARISONS},
    operator.add: _ATEN.add.Tensor,
    operator.sub: _ATEN.sub.Tensor,
    operator.mul: _ATEN.mul.Tensor,
    operator.neg: _ATEN.neg.default,
    operator.floordiv: _ATEN.floor_divide.default,
    operator.mod: _ATEN.remainder.Tensor,
    operator.and_: _ATEN.logical_and.default,
    operator.or_: _ATEN.logical_or.default,
    operator.not_: _ATEN.logical_not.default,
    torch.sym_not: _ATEN.logical_not.default,
    torch.sym_max: _ATEN.maximum.default,
    torch.sym_min: _ATEN.minimum.default,
}
"""Python's functions of numbers, and ATen's of tensors."""


def name_of(argument: Any) -> str:
    """The ATen name of a node's op without its overload, or of its Python function; empty for no node."""
    if not isinstance(argument, Node):
        return ""
    if argument.target is operator.getitem:
        return "getitem"
    declared = schema(argument) or getattr(OF_NUMBERS.get(argument.target), "_schema", None)
    return declared.name.rpartition("::")[2] if declared else ""


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of a node's op by their names in its schema, defaults included."""
    declared = schema(node).arguments if schema(node) else ()
    # A Python function of numbers has the operands of ATen's.
    names = [argument.name for argument in declared] or ["self", "other"]
    defaults = {argument.name: argument.default_value for argument in declared}
    return defaults | dict(zip(names, node.args, strict=False)) | node.kwargs


def storage(tensor: torch.Tensor) -> int:
    """A key of a fake tensor's memory, which has no address; unique among tensors that are alive."""
    return int(tensor.untyped_storage()._cdata)


def tensors(node: Node) -> Iterator[torch.Tensor]:
    """The tensors that a node gives."""
    for leaf in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(leaf, torch.Tensor):
            yield leaf


def record_names(graph: Graph) -> None:
    """Reserve the names of a graph's nodes: torch renames a body's placeholders without a record of it."""
    graph._graph_namespace._used_names.update(node.name for node in graph.nodes)
