"""How tensors cross the border of an `scf.if`, `scf.while` or `scf.for` on IREE: as buffer views.

IREE 3.13 carries a tensor through these as several values (resource, offset, size, dims, fence) and gets that
wrong in four ways. The conversion of a loop takes the types of both its regions from its operands, and fails
or crashes once the canonicalizer has dropped another set of operands than of results: a carry that no trip
reads, an invariant one, the dims of a dynamic one. The passes over fences may not end. A branch that hands
one reference to two block arguments may hand it to one and leave the other null. And two carries that start
in one allocation are taken for one resource at the offsets of the later trips, so that the first trip reads
other memory. A buffer view is one opaque value, so that none of that applies.

In turn, IREE updates the tensor of a view in place. So a view's buffer is its own: what is packed is written
into a buffer allocated for it, that no other value and no other view has, and that no pass can merge with
one. What a trip only wrote a row of keeps its buffer: without views IREE copies the whole of it per trip.

The price is that the host waits for the carries, as it does for a condition anyway. The kernel that computes
a carry writes into that buffer itself; only what no kernel of the trip computes is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler.ir import (
    DenseI32ArrayAttr,
    IndexType,
    IntegerAttr,
    Operation,
    RankedTensorType,
    Type,
    TypeAttr,
    Value,
)

from aotpipe.backends.iree.borders import Dims, dynamic_dims


class ViewBorder:
    """Tensors cross as buffer views, numbers as they are."""

    def packed_type(self, wanted: Type) -> Type:
        """A buffer view's type for a tensor's."""
        return _view_type() if isinstance(wanted, RankedTensorType) else wanted

    def own(self, values: list[Value]) -> list[Value]:
        """Each tensor in a buffer of its own."""
        return [apart(value) if _is_tensor(value) else value for value in values]

    def pack(self, values: list[Value]) -> list[Value]:
        """The views of such buffers."""
        return [_hidden(_export(value)) if _is_tensor(value) else value for value in values]

    def hand_on(self, value: Value, /) -> Value:
        """A view of the same buffer, where the value is what was written to an unpacked one."""
        return _export(value)

    def unpack(self, value: Value, wanted: Type, dims: Dims, /) -> Value:
        """The tensor of a view, which may be updated in place: unpack a view once."""
        return _import(value, wanted, dims()) if isinstance(wanted, RankedTensorType) else value


def apart(value: Value) -> Value:
    """A tensor's elements in a buffer of their own: what computes them writes there, else they are copied."""
    sizes = dynamic_dims(value)
    room = Operation.create("flow.tensor.alloca", results=[value.type], operands=sizes).result
    return Operation.create(
        "hal.tensor.alias",
        results=[value.type],
        operands=[value, *sizes, _export(room, Type.parse("!hal.buffer"))],
        attributes={"operandSegmentSizes": DenseI32ArrayAttr.get([1, len(sizes), 1, 0])},
    ).result


def _hidden(view: Value) -> Value:
    """The same view, which no pass knows to be another one: a reference that two share may be null in one."""
    return Operation.create("util.optimization_barrier", results=[view.type], operands=[view]).result


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, RankedTensorType)


def _view_type() -> Type:
    return Type.parse("!hal.buffer_view")


def _export(value: Value, wanted: Type | None = None) -> Value:
    return Operation.create(
        "hal.tensor.export",
        results=[wanted or _view_type()],
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
