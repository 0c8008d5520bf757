"""A zero that the compiler does not know to be one: a copy that depends on it is merged with no other."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import parents

_ZERO: Final = "__aotpipe_zero"
_GLOBAL: Final = f"""
util.global private @{_ZERO} : tensor<i32>
util.initializer {{
  %zero = arith.constant dense<0> : tensor<i32>
  %opaque = util.optimization_barrier %zero : tensor<i32>
  util.global.store %opaque, @{_ZERO} : tensor<i32>
  util.return
}}"""


def define(op: Any) -> None:
    """Put the zero into an op's module, unless it is there."""
    from iree.compiler import ir

    *_, module = parents(op)
    body = module.regions[0].blocks[0]
    if any(
        each.name == "util.global" and _ZERO in str(each.attributes["sym_name"]) for each in body.operations
    ):
        return
    made = ir.Module.parse(_GLOBAL)
    for each in reversed(list(made.body.operations)):
        ir.InsertionPoint.at_block_begin(body).insert(each.operation.detach_from_parent())


def copied(value: Any, number: int = 0) -> Any:
    """Emit a kernel that copies a tensor; the compiler takes copies of other numbers for other tensors."""
    from iree.compiler import ir
    from iree.compiler.dialects import arith, linalg, tensor, util

    from aotpipe.backends.iree.lower.region_borders import dynamic_dims

    kind, word = value.type, ir.IntegerType.get_signless(32)
    element, same = kind.element_type, ir.AffineMap.get_identity(kind.rank)
    maps = [same, ir.AffineMap.get(kind.rank, 0, []), same]
    sizes = iter(dynamic_dims(value))
    shape = [next(sizes) if kind.is_dynamic_dim(dim) else kind.shape[dim] for dim in range(kind.rank)]
    zero = util.global_load(ir.RankedTensorType.get([], word), _ZERO)
    outputs = [tensor.empty(shape, element)]

    @linalg.generic([value, zero], outputs, maps, ["parallel"] * kind.rank)  # type: ignore[untyped-decorator]
    def copy(given: Any, zero: Any, _: Any) -> Any:
        # It is less than all numbers that are not; what is given otherwise is never computed.
        is_copied = arith.cmpi(arith.CmpIPredicate.slt, zero, arith.constant(word, number + 1))
        return arith.select(is_copied, given, _number(element, zero))

    return copy


def _number(element: Any, zero: Any) -> Any:
    """The zero as an element of a tensor."""
    from iree.compiler import ir
    from iree.compiler.dialects import arith
    from iree.compiler.dialects import complex as complex_

    if isinstance(element, ir.IntegerType):
        cast = arith.trunci if element.width < zero.type.width else arith.extui
        return zero if element == zero.type else cast(element, zero)
    if isinstance(element, ir.FloatType):
        return arith.sitofp(element, zero)
    part = arith.sitofp(element.element_type, zero)
    return complex_.create_(element, part, part)
