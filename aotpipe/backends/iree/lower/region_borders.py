"""How values cross the border of an `scf.if`, `scf.while` or `scf.for` on IREE: as buffers, views and `i64`.

A torch tensor, int, float or bool becomes a ranked tensor of signless elements, `i64`, `f64` or `i1` first.

IREE 3.13 carries a tensor through these as several values (resource, offset, size, dims, fence) and gets that
wrong in four ways. The conversion of a loop takes the types of both its regions from its operands, and fails
or crashes once the canonicalizer has dropped another set of operands than of results: a carry that no trip
reads, an invariant one, the dims of a dynamic one. The passes over fences may not end. A branch that hands
one reference to two block arguments may hand it to one and leave the other null. And two carries that start
in one allocation are taken for one resource at the offsets of the later trips, so that the first trip reads
other memory. A buffer, or a buffer view where sizes vary, is one opaque value, so that none of that applies.

In turn, IREE updates the tensor of a buffer in place. So a buffer is the tensor's own: what is packed is
written into a buffer allocated for it, that no other value and no other view has, and that no pass can merge
with one. What a trip only wrote a row of keeps its buffer: without, IREE copies the whole of it per trip.

What a loop carries is written into two buffers in turns, if its sizes are static: they are allocated once,
before the outermost loop that is around. A trip waits for all that it computes, so that none is still read
when the next but one writes to it.

The price is that the host waits for the carries, as it does for a condition anyway. The kernel that computes
a carry writes into that buffer itself; only what no kernel of the trip computes is copied.

A branch of IREE's bytecode that moves an `i32` and an `i64` may write one over the other. So whole numbers
and bools have 64 bits while they cross. All functions emit at the current insertion point and location.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import Any, Final

from iree.compiler.dialects import arith, flow, hal, tensor, util
from iree.compiler.ir import (
    IndexType,
    InsertionPoint,
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

Slots = list[Value | None]
"""Values by position; None where there is none or where it is not needed."""


class ControlFlowError(NotImplementedError):
    """A higher-order op in a form that has no lowering."""


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
    are_tensors = isinstance(left, RankedTensorType) and isinstance(right, RankedTensorType)
    if not are_tensors or (left.rank, left.element_type) != (right.rank, right.element_type):
        raise ControlFlowError(f"one value is {left} here and {right} there")
    dims = [a if a == b else _DYNAMIC for a, b in zip(left.shape, right.shape, strict=True)]
    return RankedTensorType.get(dims, left.element_type)


def convert(value: Value, wanted: Type) -> Value:
    """Emit the casts between a torch type or its builtin type and another of the same kind."""
    if value.type == wanted:
        return value
    inner, outer = builtin_type(value.type), builtin_type(wanted)
    suffix = "builtin_tensor" if isinstance(inner, RankedTensorType) else str(inner)
    if value.type != inner:
        value = Operation.create(f"torch_c.to_{suffix}", results=[inner], operands=[value]).result
    if inner != outer:
        value = tensor.cast(outer, value)
    if wanted != outer:
        value = Operation.create(f"torch_c.from_{suffix}", results=[wanted], operands=[value]).result
    return value


def to_builtin(value: Value) -> Value:
    """The builtin value of a torch value; a builtin one is its own."""
    return convert(value, builtin_type(value.type))


def convert_all(values: Iterable[Value | None], types: Iterable[Type | None]) -> list[Value]:
    """Convert what is there; a slot is None in both or in neither."""
    pairs = zip(present(values), present(types), strict=True)
    return [convert(value, wanted) for value, wanted in pairs]


def to_i1(value: Value) -> Value:
    """A predicate as `i1`: a bool, or a tensor of one bool."""
    value = to_builtin(value)
    if isinstance(value.type, RankedTensorType):
        value = tensor.extract(value, [index_constant(0)] * value.type.rank)
    if value.type != IntegerType.get_signless(1):
        raise ControlFlowError(f"a predicate is {value.type}, not a bool")
    return value


def index_constant(number: int) -> Value:
    """A number as an index."""
    return arith.constant(IndexType.get(), number)


def dim_size(source: Value, dim: int) -> Value:
    """The size of a builtin tensor's dim, as an index."""
    return tensor.dim(source, index_constant(dim))


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
    value = convert(to_builtin(value), row)
    return tensor.InsertSliceOp(value, stack, [index], dynamic_dims(stack, 1), [], **_row(stack)).result


def packed_type(wanted: Type) -> Type:
    """The type as which a value of a builtin type crosses.

    Tensors of static sizes cross as buffers, others as buffer views, whole numbers and bools as `i64`.
    """
    if isinstance(wanted, IntegerType):
        return IntegerType.get_signless(64)
    if not isinstance(wanted, RankedTensorType):
        return wanted
    return _buffer_type() if wanted.has_static_shape else Type.parse("!hal.buffer_view")


def placed(value: Value) -> Value:
    """A tensor of static sizes in a buffer that is there for all trips, where a loop is around."""
    return value if _loop_around() is None else hal.tensor_alias(value, [], _kept(value.type))


def pack(values: Iterable[Value]) -> list[Value]:
    """Values as they cross: the buffers or views of tensors that own them, and numbers in 64 bits."""
    return [_packed(value, packed_type(value.type)) for value in values]


def _packed(value: Value, wanted: Type) -> Value:
    if isinstance(value.type, RankedTensorType):
        return _hidden(_export(value, wanted))
    return value if value.type == wanted else arith.extui(wanted, value)


def hand_on(value: Value) -> Value:
    """The only value made of one that was unpacked, as it crosses again: it keeps its buffer."""
    return _export(value, packed_type(value.type))


def unpack(value: Value, wanted: Type, sizes: Callable[[], Sequence[Value | None]]) -> Value:
    """The builtin value of one that has crossed. A tensor may be updated in place: unpack it once.

    `sizes` emits the sizes of a tensor's dims, as indices: None for a static one and for one not known.
    """
    if not isinstance(wanted, RankedTensorType):
        return value if value.type == wanted else arith.trunci(wanted, value)
    dims = [
        hal.buffer_view_dim(value, dim) if size is None else size
        for dim, size in enumerate(sizes())
        if wanted.is_dynamic_dim(dim)
    ]
    return hal.tensor_import(wanted, value, wanted, dims)


class Carries:
    """The carries of a loop that is about to be written, as builtin types; None for one that is not needed.

    Two buffers for each tensor of static sizes are allocated before the loop and what is around it.
    """

    def __init__(self, types: Sequence[Type | None]) -> None:
        self._types = types
        self._buffers = [
            [_kept(wanted) for _ in range(2)] if wanted and packed_type(wanted) == _buffer_type() else None
            for wanted in types
        ]

    def own(self, values: Sequence[Value | None], crossed: Sequence[Value] = ()) -> Slots:
        """What is carried on, converted, each tensor with elements of its own.

        `crossed` are those that the trip was given first, packed; none before the first trip.
        """
        last = iter(crossed)
        owned: Slots = []
        for value, wanted, buffers in zip(values, self._types, self._buffers, strict=True):
            if value is None or wanted is None:
                owned.append(None)
                continue
            given, made = next(last, None), convert(value, wanted)
            owned.append(_in_turns(made, buffers, given) if buffers else in_own_buffer(made))
        return owned


def _in_turns(value: Value, buffers: Sequence[Value], last: Value | None) -> Value:
    """A tensor in the buffer that is not the last one: what computes it writes there, else it is copied.

    An alias is a wish: what is one number throughout is filled into another buffer. So what has crossed is
    compared, and not taken for one of these two.
    """
    first, second = buffers
    if last is None:
        return hal.tensor_alias(value, [], first)
    other = arith.select(util.cmp_eq(last, first), second, first)
    return hal.tensor_alias(value, [], other)


def in_own_buffer(value: Value) -> Value:
    """A tensor's elements in a buffer of their own: what computes them writes there, else they are copied.

    What is no tensor stays as it is.
    """
    if not isinstance(value.type, RankedTensorType):
        return value
    sizes = dynamic_dims(value)
    return hal.tensor_alias(value, sizes, _allocated(value.type, sizes))


def _allocated(wanted: RankedTensorType, sizes: Sequence[Value]) -> Value:
    return _export(flow.tensor_alloca(wanted, sizes), _buffer_type())


def _kept(wanted: RankedTensorType) -> Value:
    """A buffer for a tensor of static sizes, allocated before the outermost loop around, if there is one."""
    loop = _loop_around()
    with InsertionPoint(loop) if loop else nullcontext():
        return _hidden(_allocated(wanted, []))


def _loop_around() -> Operation | None:
    found = None
    inner = InsertionPoint.current.block.owner.operation
    while inner.parent is not None:
        if inner.name in ("scf.while", "scf.for"):
            found = inner
        inner = inner.parent.operation
    return found


def _hidden(reference: Value) -> Value:
    """The same view or buffer, which no pass knows to be another one, or drops."""
    return util.optimization_barrier([reference.type], [reference])


def _buffer_type() -> Type:
    return Type.parse("!hal.buffer")


def _export(value: Value, wanted: Type) -> Value:
    return hal.tensor_export(wanted, value, value.type, dynamic_dims(value))
