"""The values that cross a region's border: torch types, the builtin types they cross as, casts between them.

A torch tensor, int, float or bool crosses as a ranked tensor of signless elements, `i64`, `f64` or `i1`. All
functions emit at the current insertion point and location.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from typing import Any, Final, Protocol

from iree.compiler.dialects import arith, tensor
from iree.compiler.ir import (
    IndexType,
    IntegerAttr,
    IntegerType,
    Operation,
    RankedTensorType,
    ShapedType,
    Type,
    Value,
)

_VTENSOR: Final = re.compile(r"!torch\.vtensor<\[(?P<dims>[^\]]*)\],(?P<element>.+)>")
_SIGN: Final = re.compile(r"\b[su]i(?=\d)")
# A torch scalar's builtin type.
_SCALARS: Final = {"!torch.int": "i64", "!torch.float": "f64", "!torch.bool": "i1"}
_DYNAMIC: Final = ShapedType.get_dynamic_size()

Dims = Callable[[], list[Value | None]]
"""Emits the sizes of a tensor's dims, as indices: None for a static one and for one not known."""


class ControlFlowError(NotImplementedError):
    """A higher-order op in a form that has no lowering."""


class Room(Protocol):
    """Two places for a tensor that a loop carries, used in turns: a trip reads one and writes the other."""

    def own(self, value: Value, last: Value | None) -> Value:
        """A tensor in the place that the trip was not given (`last`, packed): the first, before any trip."""


class Border(Protocol):
    """A way for builtin values to cross the border of a region."""

    def packed_type(self, wanted: Type) -> Type:
        """The type as which a value of a builtin type crosses."""

    def placed(self, value: Value, /) -> Value:
        """A tensor where the host reads it."""

    def own(self, values: list[Value]) -> list[Value]:
        """Values that cross together, each with elements of its own: nothing else may have them."""

    def pack(self, values: list[Value]) -> list[Value]:
        """Such values as they cross."""

    def room(self, wanted: Type, /) -> Room | None:
        """Make room for what a loop carries as a builtin type; None where each trip makes its own."""

    def hand_on(self, value: Value, /) -> Value:
        """The only value made of one that was unpacked, as it crosses again: it may keep its buffer."""

    def unpack(self, value: Value, wanted: Type, dims: Dims, /) -> Value:
        """The builtin value of one that has crossed; `dims` gives its sizes, None for one not known."""


class OpenBorder:
    """Builtin values cross as they are."""

    def packed_type(self, wanted: Type) -> Type:
        """The same type."""
        return wanted

    def placed(self, value: Value, /) -> Value:
        """The same value."""
        return value

    def own(self, values: list[Value]) -> list[Value]:
        """The same values."""
        return values

    def pack(self, values: list[Value]) -> list[Value]:
        """The same values."""
        return values

    def room(self, _wanted: Type, /) -> Room | None:
        """None."""
        return None

    def hand_on(self, value: Value, /) -> Value:
        """The same value."""
        return value

    def unpack(self, value: Value, _wanted: Type, _dims: Dims, /) -> Value:
        """The same value."""
        return value


def present(items: Iterable[Any]) -> list[Any]:
    """The items that are not None."""
    return [item for item in items if item is not None]


def builtin_type(torch_type: Type) -> Type:
    """The builtin type of a torch type; a builtin type is its own."""
    text = str(torch_type)
    if text in _SCALARS:
        return Type.parse(_SCALARS[text])
    found = _VTENSOR.fullmatch(text)
    if not found:
        return torch_type
    dims = "".join(f"{dim}x" for dim in found["dims"].split(",") if dim)
    return Type.parse(f"tensor<{dims}{_SIGN.sub('i', found['element'])}>")


def join(kept: Collection[int], *rows: Sequence[Type | None]) -> list[Type | None]:
    """For each kept position the builtin type that each row's type there can be cast to and from.

    None for the other positions, and where a row has none.
    """
    return [
        None if position not in kept or None in slot else reduce(_join_two, map(builtin_type, slot))
        for position, slot in enumerate(zip(*rows, strict=False))
    ]


def _join_two(left: Type, right: Type) -> Type:
    if left == right:
        return left
    if not (isinstance(left, RankedTensorType) and isinstance(right, RankedTensorType)):
        raise ControlFlowError(f"one value is {left} here and {right} there")
    if left.rank != right.rank or left.element_type != right.element_type:
        raise ControlFlowError(f"one value is {left} here and {right} there")
    dims = [a if a == b else _DYNAMIC for a, b in zip(left.shape, right.shape, strict=True)]
    return RankedTensorType.get(dims, left.element_type)


def convert(value: Value, wanted: Type) -> Value:
    """Emit the casts between a torch type or its builtin type and another of the same kind."""
    if value.type == wanted:
        return value
    inner, outer = builtin_type(value.type), builtin_type(wanted)
    if value.type != inner:
        suffix = "builtin_tensor" if isinstance(inner, RankedTensorType) else str(inner)
        value = Operation.create(f"torch_c.to_{suffix}", results=[inner], operands=[value]).result
    if inner != outer:
        value = tensor.CastOp(outer, value).result
    if wanted != outer:
        suffix = "builtin_tensor" if isinstance(outer, RankedTensorType) else str(outer)
        value = Operation.create(f"torch_c.from_{suffix}", results=[wanted], operands=[value]).result
    return value


def convert_all(values: Iterable[Value | None], types: Iterable[Type | None]) -> list[Value]:
    """Convert what is there; a slot is None in both or in neither."""
    pairs = zip(present(values), present(types), strict=True)
    return [convert(value, wanted) for value, wanted in pairs]


def to_i1(value: Value) -> Value:
    """A predicate as `i1`: a bool, or a tensor of one bool."""
    value = convert(value, builtin_type(value.type))
    if isinstance(value.type, RankedTensorType):
        value = tensor.ExtractOp(value, [index_constant(0)] * value.type.rank).result
    if value.type != IntegerType.get_signless(1):
        raise ControlFlowError(f"a predicate is {value.type}, not a bool")
    return value


def index_constant(number: int) -> Value:
    """A number as an index."""
    return arith.ConstantOp(IndexType.get(), IntegerAttr.get(IndexType.get(), number)).result


def dim_size(source: Value, dim: int) -> Value:
    """The size of a builtin tensor's dim, as an index."""
    return tensor.DimOp(source, index_constant(dim)).result


def _row(source: Value) -> dict[str, list[int]]:
    """The static part of a slice that takes one row of dim 0, whole in the other dims."""
    rank = source.type.rank
    return {
        "static_offsets": [_DYNAMIC] + [0] * (rank - 1),
        "static_sizes": [1, *source.type.shape[1:]],
        "static_strides": [1] * rank,
    }


def dynamic_dims(source: Value, start: int = 0) -> list[Value]:
    """The sizes, as indices, of the dims from `start` on that a builtin value's type does not give."""
    if not isinstance(source.type, RankedTensorType):
        return []
    return [
        dim_size(source, dim) for dim in range(start, source.type.rank) if source.type.is_dynamic_dim(dim)
    ]


def extract_row(source: Value, index: Value) -> Value:
    """`source[index]` of a builtin tensor."""
    row = RankedTensorType.get(source.type.shape[1:], source.type.element_type)
    slice_ = tensor.ExtractSliceOp(row, source, [index], dynamic_dims(source, 1), [], **_row(source))
    return slice_.result


def insert_row(value: Value, stack: Value, index: Value) -> Value:
    """The builtin tensor `stack` with `stack[index] = value`."""
    row = RankedTensorType.get(stack.type.shape[1:], stack.type.element_type)
    value = convert(convert(value, builtin_type(value.type)), row)
    return tensor.InsertSliceOp(value, stack, [index], dynamic_dims(stack, 1), [], **_row(stack)).result
