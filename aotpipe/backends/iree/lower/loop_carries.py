"""How values cross the border of an `scf.if`, `scf.while` or `scf.for` on IREE: as buffers, views and `i64`.

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
and bools have 64 bits while they cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from iree.compiler.dialects import arith
from iree.compiler.ir import (
    DenseI32ArrayAttr,
    IndexType,
    InsertionPoint,
    IntegerAttr,
    IntegerType,
    Operation,
    RankedTensorType,
    Type,
    TypeAttr,
    Value,
)

from aotpipe.backends.iree.lower.region_types import Dims, Room, dynamic_dims


class ViewBorder:
    """Tensors of static sizes cross as buffers, others as buffer views, whole numbers and bools as `i64`."""

    def packed_type(self, wanted: Type) -> Type:
        """The type as which a value of a builtin type crosses."""
        if isinstance(wanted, IntegerType):
            return IntegerType.get_signless(64)
        if not isinstance(wanted, RankedTensorType):
            return wanted
        return _buffer_type() if wanted.has_static_shape else _view_type()

    def placed(self, value: Value, /) -> Value:
        """A tensor of static sizes in a buffer that is there for all trips, where a loop is around."""
        return value if _loop_around() is None else _alias(value, [], _kept(value.type))

    def own(self, values: list[Value]) -> list[Value]:
        """Each tensor in a buffer of its own."""
        return [in_own_buffer(value) if _is_tensor(value) else value for value in values]

    def pack(self, values: list[Value]) -> list[Value]:
        """The buffers or views of such tensors, and numbers in 64 bits."""
        return [self._packed(value, self.packed_type(value.type)) for value in values]

    def _packed(self, value: Value, wanted: Type) -> Value:
        if _is_tensor(value):
            return _hidden(_export(value, wanted))
        return value if value.type == wanted else arith.ExtUIOp(wanted, value).result

    def room(self, wanted: Type, /) -> Room | None:
        """Two buffers for a tensor whose sizes are static."""
        return _Buffers(wanted) if self.packed_type(wanted) == _buffer_type() else None

    def hand_on(self, value: Value, /) -> Value:
        """A view of the same buffer, where the value is what was written to an unpacked one."""
        return _export(value, self.packed_type(value.type))

    def unpack(self, value: Value, wanted: Type, dims: Dims, /) -> Value:
        """The tensor of a view or buffer, which may be updated in place: unpack it once."""
        if isinstance(wanted, RankedTensorType):
            return _import(value, wanted, dims())
        return value if value.type == wanted else arith.TruncIOp(wanted, value).result


class _Buffers:
    """Two buffers of a loop, allocated before it and what is around it."""

    def __init__(self, wanted: RankedTensorType) -> None:
        self._buffers = [_kept(wanted) for _ in range(2)]

    def own(self, value: Value, last: Value | None) -> Value:
        """A tensor in the buffer that is not the last one: what computes it writes there, else it is copied.

        An alias is a wish: what is one number throughout is filled into another buffer. So what has crossed
        is compared, and not taken for one of these two.
        """
        first, second = self._buffers
        if last is None:
            return _alias(value, [], first)
        is_first = Operation.create(
            "util.cmp.eq", results=[IntegerType.get_signless(1)], operands=[last, first]
        ).result
        return _alias(value, [], arith.SelectOp(is_first, second, first).result)


def in_own_buffer(value: Value) -> Value:
    """A tensor's elements in a buffer of their own: what computes them writes there, else they are copied."""
    sizes = dynamic_dims(value)
    return _alias(value, sizes, _allocated(value.type, sizes))


def _allocated(wanted: RankedTensorType, sizes: Sequence[Value]) -> Value:
    room = Operation.create("flow.tensor.alloca", results=[wanted], operands=sizes).result
    return _export(room, _buffer_type())


def _kept(wanted: RankedTensorType) -> Value:
    """A buffer for a tensor of static sizes, allocated before the outermost loop around, if there is one."""
    loop = _loop_around()
    with InsertionPoint(loop) if loop else nullcontext():
        return _hidden(_allocated(wanted, []))


def _loop_around() -> Operation | None:
    """The outermost loop around the insertion point."""
    found = None
    inner = InsertionPoint.current.block.owner.operation
    while inner.parent is not None:
        if inner.name in ("scf.while", "scf.for"):
            found = inner
        inner = inner.parent.operation
    return found


def _alias(value: Value, sizes: Sequence[Value], buffer: Value) -> Value:
    return Operation.create(
        "hal.tensor.alias",
        results=[value.type],
        operands=[value, *sizes, buffer],
        attributes={"operandSegmentSizes": DenseI32ArrayAttr.get([1, len(sizes), 1, 0])},
    ).result


def _hidden(reference: Value) -> Value:
    """The same view or buffer, which no pass knows to be another one, or drops."""
    return Operation.create(
        "util.optimization_barrier", results=[reference.type], operands=[reference]
    ).result


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, RankedTensorType)


def _view_type() -> Type:
    return Type.parse("!hal.buffer_view")


def _buffer_type() -> Type:
    return Type.parse("!hal.buffer")


def _export(value: Value, wanted: Type) -> Value:
    return Operation.create(
        "hal.tensor.export",
        results=[wanted],
        operands=[value, *dynamic_dims(value)],
        attributes={"source_encoding": TypeAttr.get(value.type)},
    ).result


def _import(view: Value, wanted: RankedTensorType, known: Sequence[Value | None]) -> Value:
    dims = [
        size if size is not None else _view_dim(view, dim)
        for dim, size in enumerate(known)
        if wanted.is_dynamic_dim(dim)
    ]
    return Operation.create(
        "hal.tensor.import",
        results=[wanted],
        operands=[view, *dims],
        attributes={
            "target_encoding": TypeAttr.get(wanted),
            "operandSegmentSizes": DenseI32ArrayAttr.get([1, len(dims), 0, 0]),
        },
    ).result


def _view_dim(view: Value, dim: int) -> Value:
    return Operation.create(
        "hal.buffer_view.dim",
        results=[IndexType.get()],
        operands=[view],
        attributes={"index": IntegerAttr.get(IndexType.get(), dim)},
    ).result
