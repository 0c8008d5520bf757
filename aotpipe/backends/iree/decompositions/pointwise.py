"""Elementwise arithmetic where the compiler's own loses a NaN, an infinity or bits, or is missing.

Its maximum, minimum and clamp drop the NaN of a left operand, its floor division of floats and `fmod` know no
infinities, it divides integers through floats, has no powers of integers, and computes those of floats not by
C's rules for signs, zeros and infinities. It has a complex type with sums and products, and lowers few
functions of it: casts and functions of complex numbers are written here over pairs of reals.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch._decomp import decomposition_table

from aotpipe.backends.iree.decompositions.integers import in_int32
from aotpipe.passes.decompositions.entries import HALF, Number, Table, Value, floating, promoted, widened
from aotpipe.passes.decompositions.pointwise import conjugate, of_tensors

aten = torch.ops.aten


def is_nan(tensor: torch.Tensor) -> torch.Tensor:
    return tensor != tensor


def _compared(op: Callable[..., torch.Tensor], tensor: torch.Tensor, number: Number) -> Any:
    """A comparison with a number of the tensor's own kind.

    Of a constant tensor and a number of the other kind the compiler folds the bits of one as the other's; of
    bytes and an integer it compares signed bytes.
    """
    if tensor.is_floating_point():
        whole = isinstance(number, int)
        return op(tensor, float(number)) if whole else NotImplemented
    if isinstance(number, float) and not tensor.is_complex():
        return op(tensor.to(torch.get_default_dtype()), number)
    if tensor.is_complex() or (tensor.dtype == torch.bool and isinstance(number, int) and number in (0, 1)):
        return NotImplemented
    if tensor.dtype == torch.bool:
        return op(tensor.to(torch.int64), number)
    # Eager compares as many bits of the number as the tensor's dtype has, and the compiler all of them.
    info = torch.iinfo(tensor.dtype)
    if isinstance(number, int):
        held = (number - info.min) % 2**info.bits + info.min
        if tensor.dtype == torch.uint8:
            return op(tensor.to(torch.int32), held)
        return NotImplemented if held == number else op(tensor, held)
    if info.bits >= 32:
        return NotImplemented  # a size has no more bits
    size = torch.full((), number, dtype=torch.int64).to(tensor.dtype)
    return op(tensor.to(torch.int32), size.to(torch.int32))


def _extremum(is_beyond: Callable[..., torch.Tensor], left: torch.Tensor, right: torch.Tensor) -> Any:
    """`maximum` or `minimum`: a NaN is beyond every number."""
    if not left.is_floating_point():
        return NotImplemented
    return torch.where(is_beyond(left, right) | is_nan(left), left, right)


def _number_extremum(
    is_beyond: Callable[..., torch.Tensor], left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """`fmax` or `fmin`: a number comes before a NaN."""
    left, right = torch.broadcast_tensors(*promoted(left, right))
    return torch.where(is_beyond(left, right) | is_nan(right), left, right)


def clamp(tensor: torch.Tensor, min: Number | None = None, max: Number | None = None) -> Any:
    dtype = tensor.dtype
    for bound in (min, max):
        dtype = dtype if bound is None else torch.promote_types(dtype, torch.result_type(tensor, bound))
    if not dtype.is_floating_point:
        return NotImplemented if tensor.dtype == dtype else torch.clamp(tensor.to(dtype), min, max)
    held = tensor.to(dtype)
    if min is not None:
        held = torch.where(held < min, torch.full_like(held, min), held)
    if max is not None:
        held = torch.where(held > max, torch.full_like(held, max), held)
    return held


def clamp_tensor(
    tensor: torch.Tensor, min: torch.Tensor | None = None, max: torch.Tensor | None = None
) -> torch.Tensor:
    held = tensor if min is None else torch.maximum(*promoted(tensor, min))
    return held if max is None else torch.minimum(*promoted(held, max))


def isfinite(tensor: torch.Tensor) -> torch.Tensor:
    # What is not finite differs from itself when it is taken away; `x == x` the compiler takes for true.
    return tensor - tensor == 0 if tensor.is_floating_point() else torch.ones_like(tensor, dtype=torch.bool)


def multiply(left: Value, right: Value) -> Any:
    if isinstance(left, torch.Tensor) == isinstance(right, torch.Tensor):
        return NotImplemented
    # The compiler dies on a product of bytes and a number.
    are_bytes = torch.result_type(left, right) in (torch.int8, torch.uint8)
    return in_int32(torch.mul, left, right) if are_bytes else NotImplemented


def div_mode(left: torch.Tensor, right: Value, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return torch.true_divide(left, right)
    one, two = promoted(left, right)
    dtype = one.dtype
    if dtype in (torch.uint8, torch.int8, torch.bool):
        # The compiler takes bytes for signed, and dies on a floor of signed ones. Of bytes none is negative:
        # rounding down is rounding to zero.
        rounding_mode = rounding_mode if dtype.is_signed else "trunc"
        return in_int32(torch.div, one, two, rounding_mode=rounding_mode)
    if not dtype.is_floating_point:
        if dtype == torch.int64 and rounding_mode == "floor" and not isinstance(right, torch.Tensor):
            # Of places in a tensor, mostly, whose range is to be known: see `divisions`.
            return NotImplemented
        if rounding_mode == "floor":
            return _integer_floor(one, two)
        is_promoted = left is not one or right is not two
        return torch.div(one, two, rounding_mode="trunc") if is_promoted else NotImplemented
    one, two = widened(one, two)
    if rounding_mode == "trunc":
        return torch.trunc(one / two).to(dtype)
    return _floor_quotient(one, two).to(dtype)


def _integer_floor(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """By truncation, which alone is exact: the compiler floors through floats."""
    whole = torch.div(left, right, rounding_mode="trunc")
    rest = left - whole * right
    return torch.where((rest != 0) & ((rest < 0) != (right < 0)), whole - 1, whole)


def _floor_quotient(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Python's `//` of floats as eager computes it, from the remainder, so that it is exact."""
    rest = torch.fmod(left, right)
    whole = (left - rest) / right
    whole = torch.where((rest != 0) & ((right < 0) != (rest < 0)), whole - 1, whole)
    down = torch.floor(whole)
    down = torch.where(whole - down > 0.5, down + 1, down)
    # A zero has the sign of the quotient.
    down = torch.where(whole == 0, left / right * 0.0, down)
    return torch.where(right == 0, left / right, down)


def fmod(one: torch.Tensor, two: torch.Tensor) -> Any:
    dtype = one.dtype
    if dtype in (torch.uint8, torch.bool):
        return in_int32(torch.fmod, one, two)
    if not dtype.is_floating_point:
        return one - torch.div(one, two, rounding_mode="trunc") * two
    one, two = widened(one, two)
    # Of absolute values it is the remainder, which is exact.
    rest = torch.remainder(one.abs(), two.abs())
    return torch.where(one < 0, -rest, torch.where(one == 0, one + rest, rest)).to(dtype)


def remainder(left: Value, right: Value) -> Any:
    one, two = promoted(left, right)
    if one.dtype in (torch.uint8, torch.int8, torch.bool):
        return in_int32(torch.remainder, one, two)
    if one.dtype in HALF:
        return torch.remainder(one.float(), two.float()).to(one.dtype)
    # Of a constant tensor and a number the compiler folds C's remainder, which has the dividend's sign.
    if one is not left or (one.is_floating_point() and two is not right):
        return torch.remainder(one, two)
    return NotImplemented


def true_divide(left: Value, right: Value) -> Any:
    dtype = torch.result_type(left, right)
    dtype = dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
    one, two = (
        value.to(dtype)
        if isinstance(value, torch.Tensor) and value.dtype in (torch.uint8, torch.bool)
        else value
        for value in (left, right)
    )
    return NotImplemented if one is left and two is right else torch.true_divide(one, two)


def gcd(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    dtype = one.dtype
    one, two = one.to(torch.int64).abs(), two.to(torch.int64).abs()
    # Fibonacci numbers are the slowest: a pair of n bits takes at most 1.45 n steps.
    for _ in range(math.ceil(1.45 * torch.iinfo(dtype).bits) + 1):
        divisor = torch.where(two == 0, 1, two)
        one, two = torch.where(two == 0, one, two), torch.where(two == 0, two, torch.fmod(one, divisor))
    return one.to(dtype)


def lcm(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    common = torch.gcd(one, two)
    part = torch.div(one, torch.where(common == 0, 1, common), rounding_mode="trunc")
    return (part * two).abs()


_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def signbit(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor < 0
    # The first bit, which zeros and NaN have, too.
    return tensor.view(_BITS[tensor.element_size()]) < 0


def copysign(left: torch.Tensor, right: Value) -> torch.Tensor:
    one, two = (floating(tensor) for tensor in promoted(left, right))
    size = one.abs()
    return torch.where(torch.signbit(two), -size, size)


def sgn(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_complex():
        return torch.sign(tensor)
    size = tensor.abs()
    whole = torch.where(size == 0, 1.0, size)
    return torch.complex(tensor.real / whole, tensor.imag / whole)


def hypot(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    dtype = one.dtype
    one, two = (tensor.abs() for tensor in widened(one, two))
    high, low = torch.maximum(one, two), torch.minimum(one, two)
    ratio = low / torch.where(high == 0, 1.0, high)
    size = high * torch.sqrt(1 + ratio * ratio)
    return torch.where((one == math.inf) | (two == math.inf), math.inf, size).to(dtype)


def nextafter(one: torch.Tensor, two: torch.Tensor) -> Any:
    if one.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    integer = torch.int32 if one.dtype == torch.float32 else torch.int64
    bits = one.view(integer)
    # Away from zero is one more, whatever the sign is.
    step = torch.where((one < two) == (one > 0), 1, -1).to(integer)
    moved = (bits + step).view(one.dtype)
    least = torch.ones_like(bits).view(one.dtype)
    moved = torch.where(one == 0, torch.where(two > 0, least, -least), moved)
    moved = torch.where(one == two, two, moved)
    return torch.where(is_nan(one) | is_nan(two), math.nan, moved)


def pow_scalar(base: torch.Tensor, exponent: Number) -> Any:
    dtype = torch.result_type(base, exponent)
    if base.is_complex():
        return NotImplemented
    values = base.to(dtype)
    if not isinstance(exponent, int | float):
        # A number that only a run knows is compared with none.
        return pow_tensor(values, torch.full((), exponent, dtype=dtype, device=base.device))
    if not dtype.is_floating_point or (float(exponent).is_integer() and abs(exponent) <= 16):
        return _integer_power(values, int(exponent))
    if abs(exponent) == 0.5:
        # As eager has it, also for -inf, of which C's power would be inf.
        root = widened(values)[0]
        return (root.sqrt() if exponent > 0 else root.rsqrt()).to(dtype)
    return pow_tensor(values, torch.full((), exponent, dtype=dtype, device=base.device))


def _integer_power(base: torch.Tensor, exponent: int) -> torch.Tensor:
    dtype = base.dtype
    base = base.to(torch.int32) if dtype in (torch.uint8, torch.bool) else widened(base)[0]
    left, square, product = abs(exponent), base, torch.ones_like(base)
    first = True
    while left:
        if left & 1:
            product, first = (square if first else product * square), False
        left >>= 1
        square = square * square if left else square
    return (product if exponent >= 0 else 1 / product).to(dtype)


def pow_tensor(base: torch.Tensor, exponent: torch.Tensor) -> Any:
    dtype = base.dtype
    if dtype.is_complex:
        return NotImplemented
    if not dtype.is_floating_point:
        return _integer_powers(base, exponent).to(dtype)
    return _power(*widened(base, exponent)).to(dtype)


def _integer_powers(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    base, exponent = base.to(torch.int64), exponent.to(torch.int64)
    square, left, product = base, exponent, torch.ones_like(base)
    # Every bit of the exponent counts, as large powers wrap around like eager's.
    for _ in range(63):
        product = torch.where(left & 1 != 0, product * square, product)
        square, left = square * square, left >> 1
    # Of negative powers only those of 1 and -1 are whole.
    sign = torch.where(base == -1, 1 - 2 * (exponent & 1), torch.where(base == 1, 1, 0))
    return torch.where(exponent < 0, sign, product)


def _power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Of the absolute base through logarithms, then C's rules for signs, zeros and infinities."""
    size = base.abs()
    # Squared, as an exponential is inexact next to its largest values.
    root = torch.exp2(0.5 * (exponent * torch.log2(size)))
    power = root * root
    power = torch.where((size == 1) & ~is_nan(exponent), 1.0, power)
    whole = torch.floor(exponent) == exponent
    odd = whole & (torch.floor(exponent * 0.5) * 2 != exponent)
    power = torch.where(odd & torch.signbit(base), -power, power)
    power = torch.where((base < 0) & ~whole & (base != -math.inf) & ~is_nan(exponent), math.nan, power)
    return torch.where((exponent == 0) | (base == 1), 1.0, power)


def to_copy(tensor: torch.Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    if dtype is not None and tensor.is_floating_point() and tensor.element_size() == 1:
        # IREE rounds 8-bit floats to integers by `math.floor`, which it has not for them.
        return NotImplemented if dtype.is_floating_point else tensor.to(torch.float32).to(dtype)
    if dtype is None or dtype.is_complex == tensor.is_complex():
        return NotImplemented
    if tensor.is_complex():
        return tensor.real.to(dtype) if dtype != torch.bool else (tensor.real != 0) | (tensor.imag != 0)
    real = tensor.to(dtype.to_real())
    return torch.complex(real, torch.zeros_like(real))


def absolute(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.uint8:
        return tensor.clone()
    return torch.hypot(tensor.real, tensor.imag) if tensor.is_complex() else NotImplemented


def angle(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.atan2(tensor.imag, tensor.real)
    values = tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())
    straight = torch.where(values < 0, math.pi, 0.0).to(values.dtype)
    return torch.where(values != values, values, straight)


def negation(tensor: torch.Tensor) -> Any:
    if tensor.is_complex():
        return torch.complex(-tensor.real, -tensor.imag)
    if tensor.is_floating_point():
        return NotImplemented
    # The importer negates integers through floats, which lose bits.
    return torch.zeros_like(tensor) - tensor


def exponential(tensor: torch.Tensor) -> Any:
    return torch.polar(torch.exp(tensor.real), tensor.imag) if tensor.is_complex() else NotImplemented


DECOMPOSITIONS: Table = {
    **{
        getattr(aten, name).Scalar: partial(_compared, getattr(torch, name))
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
    },
    aten.maximum.default: of_tensors(partial(_extremum, operator.gt)),
    aten.minimum.default: of_tensors(partial(_extremum, operator.lt)),
    aten.fmax.default: partial(_number_extremum, operator.ge),
    aten.fmin.default: partial(_number_extremum, operator.le),
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp_tensor,
    aten.hardtanh.default: decomposition_table[aten.hardtanh.default],
    aten.isfinite.default: isfinite,
    aten.mul.Tensor: multiply,
    aten.div.Tensor: true_divide,
    aten.div.Tensor_mode: div_mode,
    aten.div.Scalar_mode: div_mode,
    aten.fmod.Tensor: of_tensors(fmod),
    aten.fmod.Scalar: of_tensors(fmod),
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.gcd.default: of_tensors(gcd),
    aten.lcm.default: of_tensors(lcm),
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten.copysign.Scalar: copysign,
    aten.sgn.default: sgn,
    aten.hypot.default: of_tensors(hypot),
    aten.nextafter.default: of_tensors(nextafter),
    aten.pow.Tensor_Scalar: pow_scalar,
    aten.pow.Tensor_Tensor: of_tensors(pow_tensor),
    aten.pow.Scalar: of_tensors(pow_tensor),
    aten._to_copy.default: to_copy,
    aten._conj_physical.default: conjugate,
    aten.conj_physical.default: conjugate,
    aten.abs.default: absolute,
    aten.angle.default: angle,
    aten.neg.default: negation,
    aten.exp.default: exponential,
}
