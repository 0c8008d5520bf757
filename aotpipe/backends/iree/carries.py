"""How tensors cross the border of an `scf.if` or `scf.while` on IREE: as buffer views.

IREE 3.13 carries a tensor through these as several values (resource, size, dims, fence) and gets that wrong
in three ways. The conversion of a loop takes the types of both its regions from its operands, and fails or
crashes once the canonicalizer has dropped another set of operands than of results: a carry that no trip
reads, an invariant one, the dims of a dynamic one. The passes over fences may not end. And a branch that
hands one reference to two block arguments may hand it to one and leave the other null. A buffer view is one
opaque value, so that the first two cannot happen; `distinct` keeps the third away: no two carries are one
view.

The price is that the host waits for the carries, as it does for the condition anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iree.compiler.dialects import arith, tensor
from iree.compiler.ir import (
    Block,
    BoolAttr,
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

from aotpipe.backends.iree.borders import Dims, dynamic_dims

# Ops whose result is their first operand's value.
_IDENTITIES: Final = frozenset(
    [
        "tensor.cast",
        "torch.aten.alias",
        "torch.aten.clone",
        "torch.aten.detach",
        "torch_c.from_builtin_tensor",
        "torch_c.to_builtin_tensor",
    ]
)


class ViewBorder:
    """Tensors cross as buffer views, numbers as they are."""

    def packed_type(self, wanted: Type) -> Type:
        """A buffer view's type for a tensor's."""
        return _view_type() if isinstance(wanted, RankedTensorType) else wanted

    def pack(self, values: list[Value]) -> list[Value]:
        """Distinct views of the tensors."""
        return [_export(value) if _is_tensor(value) else value for value in distinct(values)]

    def unpack(self, value: Value, wanted: Type, dims: Dims, /) -> Value:
        """The tensor of a view."""
        return _import(value, wanted, dims()) if isinstance(wanted, RankedTensorType) else value


def distinct(values: Sequence[Value]) -> list[Value]:
    """Values of which no two tensors are one to the compiler: a second computes its elements anew."""
    if sum(_is_tensor(value) for value in values) < 2:
        return list(values)
    numbers = _value_numbers(InsertionPoint.current.block)
    seen: set[object] = set()
    result = []
    for value in values:
        number = numbers.get(value, value)
        is_twin = _is_tensor(value) and number in seen
        seen.add(number)
        result.append(_anew(value) if is_twin else value)
    return result


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, RankedTensorType)


def _anew(value: Value) -> Value:
    """The same elements, by a choice that the compiler cannot foresee."""
    true = arith.ConstantOp(IntegerType.get_signless(1), BoolAttr.get(True)).result
    always = Operation.create("util.optimization_barrier", results=[true.type], operands=[true]).result
    sizes = iter(dynamic_dims(value))
    shape = [
        next(sizes) if value.type.is_dynamic_dim(dim) else value.type.get_dim_size(dim)
        for dim in range(value.type.rank)
    ]
    other = tensor.EmptyOp(shape, value.type.element_type).result
    return arith.SelectOp(always, value, other).result


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


def _value_numbers(block: Block) -> dict[Value, object]:
    """Equal numbers for values that ops of one block, without regions, compute alike.

    A value from elsewhere stands for itself.
    """
    numbers: dict[Value, object] = {}
    seen: dict[tuple[object, ...], object] = {}
    for view in block.operations:
        op = view.operation
        operands = tuple(numbers.get(operand, operand) for operand in op.operands)
        if op.name in _IDENTITIES:
            numbers[op.result] = operands[0]
            continue
        if len(op.regions):
            continue
        key = (op.name, _attributes(op), operands)
        for position, result in enumerate(op.results):
            numbers[result] = seen.setdefault((*key, position), result)
    return numbers


def _attributes(op: Operation) -> object:
    # The bindings cannot give a constant of complex elements; the text of a literal says all of it.
    if op.name == "torch.vtensor.literal":
        return str(op).partition("=")[2]
    return tuple(op.attributes.items())
