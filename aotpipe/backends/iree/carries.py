"""How tensors cross the border of an `scf.if`, `scf.while` or `scf.for` on IREE: as buffer views.

IREE 3.13 carries a tensor through these as several values (resource, offset, size, dims, fence) and gets that
wrong in four ways. The conversion of a loop takes the types of both its regions from its operands, and fails
or crashes once the canonicalizer has dropped another set of operands than of results: a carry that no trip
reads, an invariant one, the dims of a dynamic one. The passes over fences may not end. A branch that hands
one reference to two block arguments may hand it to one and leave the other null. And two carries that start
in one allocation are taken for one resource at the offsets of the later trips, so that the first trip reads
other memory. A buffer view is one opaque value, so that none of that applies.

In turn, IREE updates the tensor of a view in place. So a view's buffer is its own: what is packed is first
computed anew, into a buffer that no other value and no other view has, and that no pass can merge with one.
What a trip only wrote a row of keeps its buffer: without views IREE copies the whole of it per trip.

The price is that the host waits for the carries, as it does for a condition anyway, and a copy of each
per trip, which is fused with what computes it where that is elementwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler.dialects import arith
from iree.compiler.ir import (
    BoolAttr,
    ComplexType,
    DenseI32ArrayAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    Operation,
    RankedTensorType,
    Type,
    TypeAttr,
    Value,
)

from aotpipe.backends.iree.borders import ControlFlowError, Dims, dynamic_dims


class ViewBorder:
    """Tensors cross as buffer views, numbers as they are."""

    def packed_type(self, wanted: Type) -> Type:
        """A buffer view's type for a tensor's."""
        return _view_type() if isinstance(wanted, RankedTensorType) else wanted

    def pack(self, values: list[Value]) -> list[Value]:
        """A view of its own for each tensor."""
        return [_export(anew(value)) if _is_tensor(value) else value for value in values]

    def hand_on(self, value: Value, /) -> Value:
        """A view of the same buffer, where the value is what was written to an unpacked one."""
        return _export(value)

    def unpack(self, value: Value, wanted: Type, dims: Dims, /) -> Value:
        """The tensor of a view, which may be updated in place: unpack a view once."""
        return _import(value, wanted, dims()) if isinstance(wanted, RankedTensorType) else value

    def peek(self, value: Value, wanted: Type, dims: Dims, /) -> Value:
        """The elements of a view that is unpacked elsewhere too."""
        return anew(self.unpack(value, wanted, dims)) if isinstance(wanted, RankedTensorType) else value


def anew(value: Value) -> Value:
    """A tensor's elements in a buffer of their own: chosen in a way that the compiler cannot foresee.

    Raises:
        ControlFlowError: The elements are complex.
    """
    bools = RankedTensorType.get(value.type.shape, IntegerType.get_signless(1))
    # A value of the host has no half precision, so that the bool is widened where the elements are.
    other = Operation.create(
        "flow.tensor.splat", results=[bools], operands=[_hidden_true(), *dynamic_dims(value)]
    ).result
    element = value.type.element_type
    if isinstance(element, ComplexType):
        raise ControlFlowError("complex numbers are carried through a loop or a branch")
    if not isinstance(element, IntegerType):
        other = arith.UIToFPOp(value.type, other).result
    elif element.width > 1:
        other = arith.ExtUIOp(value.type, other).result
    return arith.SelectOp(_hidden_true(), value, other).result


def _hidden_true() -> Value:
    # Only on numbers: on tensors a barrier loses the wait for the ops that write them.
    true = arith.ConstantOp(IntegerType.get_signless(1), BoolAttr.get(True)).result
    return Operation.create("util.optimization_barrier", results=[true.type], operands=[true]).result


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, RankedTensorType)


def _view_type() -> Type:
    return Type.parse("!hal.buffer_view")


def _export(value: Value) -> Value:
    return Operation.create(
        "hal.tensor.export",
        results=[_view_type()],
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
