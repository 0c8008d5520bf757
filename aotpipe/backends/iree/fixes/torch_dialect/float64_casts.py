"""Casts float64 to integers and to float32 by its bits, for IREE's bytecode, which has no such casts."""

from __future__ import annotations

import re
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, replace_uses
from aotpipe.core.fixes import Fix

_FLOAT64: Final = re.compile(r"!torch\.vtensor<\[[^\]]*\],f64>")
_NARROWER: Final = re.compile(r"!torch\.vtensor<\[[^\]]*\],([su]i(8|16|32|64)|f32)>")


def _cast_by_bits(copy: Any) -> bool:
    source, result = copy.operands[0], copy.result
    if not _FLOAT64.fullmatch(str(source.type)) or not _NARROWER.fullmatch(str(result.type)):
        return False
    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert, to_builtin

    def cast() -> Any:
        return convert(_generic(to_builtin(source), builtin_type(result.type)), result.type)

    replace_uses(result, cast)
    copy.erase()
    return True


def _generic(source: Any, wanted: Any) -> Any:
    from iree.compiler import ir
    from iree.compiler.dialects import arith, linalg

    from aotpipe.backends.iree.lower.region_borders import dynamic_dims

    same = ir.AffineMap.get_identity(wanted.rank)
    empty = ir.Operation.create("tensor.empty", results=[wanted], operands=dynamic_dims(source)).result

    @linalg.generic([source], [empty], [same, same], ["parallel"] * wanted.rank)  # type: ignore[untyped-decorator]
    def kernel(number: Any, _: Any) -> Any:
        if isinstance(wanted.element_type, ir.F32Type):
            return _narrowed(number)
        whole = _whole(number)
        return whole if wanted.element_type == whole.type else arith.trunci(wanted.element_type, whole)

    return kernel


def _whole(number: Any) -> Any:
    """Emit the whole part of a float64: (2**52 + fraction) * 2**(exponent - 1075).

    What does not fit is the least number, as on x86.
    """
    from iree.compiler.dialects import arith

    i64, constant = _int64()

    def limited(shift: Any) -> Any:
        return arith.minsi(arith.maxsi(shift, zero), constant(63))

    zero, bias = constant(0), constant(1075)
    bits = arith.bitcast(i64, number)
    exponent = arith.andi(arith.shrui(bits, constant(52)), constant(2047))
    digits = arith.ori(arith.andi(bits, constant(2**52 - 1)), constant(2**52))
    down, up = limited(arith.subi(bias, exponent)), limited(arith.subi(exponent, bias))
    size = arith.shli(arith.shrui(digits, down), up)
    is_negative = arith.cmpi(arith.CmpIPredicate.slt, bits, zero)
    signed = arith.select(is_negative, arith.subi(zero, size), size)
    is_beyond = arith.cmpi(arith.CmpIPredicate.sge, exponent, constant(1086))
    return arith.select(is_beyond, constant(-(2**63)), signed)


def _narrowed(number: Any) -> Any:
    """Emit the float32 nearest to a float64, of two the even one.

    The exponent is 896 less than float64's, and 29 bits of the fraction are cut off; of what is too small for
    that the fraction is shifted further.
    """
    from iree.compiler import ir
    from iree.compiler.dialects import arith

    i64, constant = _int64()
    i32 = ir.IntegerType.get_signless(32)

    def rounded(value: Any, shift: Any) -> Any:
        one = constant(1)
        odd = arith.andi(arith.shrui(value, shift), one)
        below = arith.subi(arith.shli(one, arith.subi(shift, one)), one)
        return arith.shrui(arith.addi(value, arith.addi(below, odd)), shift)

    bits = arith.bitcast(i64, number)
    size = arith.andi(bits, constant(2**63 - 1))
    exponent = arith.shrui(size, constant(52))
    digits = arith.ori(arith.andi(bits, constant(2**52 - 1)), constant(2**52))
    infinity = constant(0x7F800000)
    normal = arith.minui(rounded(arith.subi(size, constant(896 << 52)), constant(29)), infinity)
    further = arith.minsi(arith.maxsi(arith.subi(constant(926), exponent), constant(1)), constant(62))
    is_small = arith.cmpi(arith.CmpIPredicate.ule, exponent, constant(896))
    found = arith.select(is_small, rounded(digits, further), normal)
    is_nan = arith.cmpi(arith.CmpIPredicate.ugt, size, constant(2047 << 52))
    found = arith.select(is_nan, constant(0x7FC00000), found)
    sign = arith.shli(arith.shrui(bits, constant(63)), constant(31))
    return arith.bitcast(ir.F32Type.get(), arith.trunci(i32, arith.ori(sign, found)))


def _int64() -> tuple[Any, Any]:
    """The type, and what emits a constant of it."""
    from iree.compiler import ir
    from iree.compiler.dialects import arith

    i64 = ir.IntegerType.get_signless(64)
    return i64, lambda value: arith.constant(i64, value)


FIX: Final = Fix(
    id="float64-casts",
    fault="IREE's bytecode has no cast of float64 to integers or to float32",
    remedy="the result is computed from the number's bits",
    targets=("iree-vmvx",),
    program="`x.double().long()` (`models/silero_vad.py`), `x.double().float()`",
    diagnostic="failed to legalize operation 'arith.fptosi'",
    apply=Rewrite(("torch.aten._to_copy",), _cast_by_bits),
)
