"""Functions of two tensors and more, element by element: arithmetic, comparison, bits, choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.unary import like, truncate
from aotpipe.backends.xla.values import (
    BOOL,
    Array,
    DType,
    Out,
    Scalar,
    broadcast,
    cast,
    constant,
    is_array,
    is_float,
    result_dtype,
    wide,
)

aten = torch.ops.aten
Function = Callable[[Array, Array], Array]


def spread(out: Out, dtype: DType, *values: Any) -> list[Array]:
    """Operands in one dtype and in the result's shape."""
    return [broadcast(cast(value, dtype), out.shape) for value in values]


def promoted(function: Function) -> Callable[[Out, Any, Any], Array]:
    """An op computed in the dtype of its result, half precision in float32."""

    def lower(out: Out, left: Any, right: Any) -> Array:
        return function(*spread(out, wide(out.dtype), left, right))

    return lower


def exact(function: Function) -> Callable[[Out, Any, Any], Array]:
    """An op that does not round: computed in the dtype of its result."""

    def lower(out: Out, left: Any, right: Any) -> Array:
        return function(*spread(out, out.dtype, left, right))

    return lower


def compared(function: Function) -> Callable[[Out, Any, Any], Array]:
    """An op that compares in the dtype that its operands promote to."""

    def lower(out: Out, left: Any, right: Any) -> Array:
        return function(*spread(out, result_dtype(left, right), left, right))

    return lower


def logical(function: Function) -> Callable[[Out, Any, Any], Array]:
    """An op on what is not zero."""

    def lower(out: Out, left: Any, right: Any) -> Array:
        return function(*spread(out, BOOL, left, right))

    return lower


def add(out: Out, left: Any, right: Any, *, alpha: Scalar = 1) -> Array:
    """`left + alpha * right`; of bools their or."""
    a, b = spread(out, wide(out.dtype), left, right)
    if out.dtype == BOOL:
        return lax.bitwise_or(a, b) if alpha else a
    if alpha != 1:
        b = lax.mul(b, like(b, alpha))
    return lax.add(a, b)


def subtract(out: Out, left: Any, right: Any, *, alpha: Scalar = 1) -> Array:
    """`left - alpha * right`."""
    a, b = spread(out, wide(out.dtype), left, right)
    return lax.sub(a, lax.mul(b, like(b, alpha)) if alpha != 1 else b)


def multiply(a: Array, b: Array) -> Array:
    """Of bools their and."""
    return lax.bitwise_and(a, b) if a.dtype == BOOL else lax.mul(a, b)


def divide(out: Out, left: Any, right: Any, *, rounding_mode: str | None = None) -> Array:
    """True, truncating or flooring."""
    if rounding_mode is None:
        return lax.div(*spread(out, wide(out.dtype), left, right))
    a, b = spread(out, wide(out.dtype), left, right)
    if rounding_mode == "floor":
        return floor_divide(a, b)
    return truncate(lax.div(a, b)) if is_float(a.dtype) else lax.div(*_safe(a, b))


def _safe(a: Array, b: Array) -> tuple[Array, Array]:
    """Integers that can be divided: eager raises on zero, and the hardware traps on the least by -1."""
    if a.dtype.kind == "u":
        return a, lax.select(lax.eq(b, like(b, 0)), like(b, 1), b)
    least = like(a, int(jnp.iinfo(a.dtype).min))
    overflows = lax.bitwise_and(lax.eq(a, least), lax.eq(b, like(b, -1)))
    return a, lax.select(lax.bitwise_or(overflows, lax.eq(b, like(b, 0))), like(b, 1), b)


def floor_divide(a: Array, b: Array) -> Array:
    """The quotient towards minus infinity, as eager computes that of floats: from the exact remainder."""
    if not is_float(a.dtype):
        quotient = lax.div(*_safe(a, b))
        rest = lax.sub(a, lax.mul(quotient, b))
        lower = lax.bitwise_and(
            lax.ne(rest, like(a, 0)), lax.ne(lax.lt(rest, like(a, 0)), lax.lt(b, like(b, 0)))
        )
        return lax.sub(quotient, cast(lower, a.dtype))
    zero, one = like(a, 0), like(a, 1)
    rest = lax.rem(a, b)
    quotient = lax.div(lax.sub(a, rest), b)
    differs = lax.bitwise_and(lax.ne(rest, zero), lax.ne(lax.lt(b, zero), lax.lt(rest, zero)))
    quotient = lax.select(differs, lax.sub(quotient, one), quotient)
    floored = lax.floor(quotient)
    nearest = lax.select(lax.gt(lax.sub(quotient, floored), like(a, 0.5)), lax.add(floored, one), floored)
    signed_zero = lax.mul(zero, lax.div(a, b))
    result = lax.select(lax.ne(quotient, zero), nearest, signed_zero)
    return lax.select(lax.eq(b, zero), lax.div(a, b), result)


def remainder(a: Array, b: Array) -> Array:
    """With the sign of the divisor."""
    zero = like(a, 0)
    if not is_float(a.dtype):
        rest = lax.rem(*_safe(a, b))
        if a.dtype.kind == "u":
            return rest
    else:
        rest = lax.rem(a, b)
    differs = lax.bitwise_and(lax.ne(rest, zero), lax.ne(lax.lt(rest, zero), lax.lt(b, zero)))
    return lax.select(differs, lax.add(rest, b), rest)


def fmod(a: Array, b: Array) -> Array:
    """With the sign of the dividend."""
    return lax.rem(a, b) if is_float(a.dtype) else lax.rem(*_safe(a, b))


def power(out: Out, base: Any, exponent: Any) -> Array:
    """Of integers by squaring; a negative exponent gives 0 but for bases 1 and -1."""
    a, b = spread(out, wide(out.dtype), base, exponent)
    if a.dtype == BOOL:
        return lax.bitwise_or(a, lax.bitwise_not(b))
    if a.dtype.kind not in "iu":
        if not is_array(exponent) and exponent == 2:
            return lax.mul(a, a)
        if not is_array(exponent) and exponent == 0.5:
            return lax.sqrt(a)
        return jnp.power(a, b)
    result, square, left = like(a, 1), a, b
    for _ in range(8 * a.dtype.itemsize - (a.dtype.kind == "i")):
        odd = lax.ne(lax.bitwise_and(left, like(left, 1)), like(left, 0))
        result = lax.select(odd, lax.mul(result, square), result)
        square = lax.mul(square, square)
        left = lax.shift_right_logical(left, like(left, 1))
        if not is_array(exponent) and int(exponent) >> (_ + 1) == 0:
            break
    if a.dtype.kind == "u":
        return result
    unit = lax.bitwise_or(lax.eq(a, like(a, 1)), lax.eq(a, like(a, -1)))
    even = lax.eq(lax.bitwise_and(b, like(b, 1)), like(b, 0))
    inverse = lax.select(unit, lax.select(even, lax.mul(a, a), a), like(a, 0))
    return lax.select(lax.lt(b, like(b, 0)), inverse, result)


def fmax(a: Array, b: Array) -> Array:
    """The larger; a number rather than NaN."""
    return jnp.where(lax.ne(a, a), b, jnp.where(lax.ne(b, b), a, lax.max(a, b)))


def fmin(a: Array, b: Array) -> Array:
    """The smaller; a number rather than NaN."""
    return jnp.where(lax.ne(a, a), b, jnp.where(lax.ne(b, b), a, lax.min(a, b)))


def _shift(function: Function) -> Function:
    """A shift; by the width or more, or by less than 0, as eager does it: all bits out."""

    def lower(a: Array, b: Array) -> Array:
        width = 8 * a.dtype.itemsize
        is_right = function is not lax.shift_left
        if a.dtype.kind == "u":
            return function(a, b)
        last = like(b, width - 1)
        outside = lax.bitwise_or(lax.lt(b, like(b, 0)), lax.gt(b, last))
        if is_right:
            return lax.shift_right_arithmetic(a, lax.select(outside, last, b))
        return lax.select(outside, like(a, 0), lax.shift_left(a, lax.select(outside, like(b, 0), b)))

    return lower


def _shift_right(a: Array, b: Array) -> Array:
    return lax.shift_right_logical(a, b) if a.dtype.kind == "u" else lax.shift_right_arithmetic(a, b)


def where(out: Out, condition: Array, yes: Any, no: Any) -> Array:
    """One or the other."""
    (chosen,) = spread(out, BOOL, condition)
    return lax.select(chosen, *spread(out, out.dtype, yes, no))


def clamp(out: Out, x: Array, low: Any = None, high: Any = None) -> Array:
    """Between bounds; NaN stays, and above the other bound the upper one counts."""
    (result,) = spread(out, out.dtype, x)
    if low is not None:
        result = lax.max(result, *spread(out, out.dtype, low))
    if high is not None:
        result = lax.min(result, *spread(out, out.dtype, high))
    return result


def clamp_max(out: Out, x: Array, high: Any) -> Array:
    """Below a bound."""
    return clamp(out, x, None, high)


def addcmul(out: Out, x: Array, left: Array, right: Array, *, value: Scalar = 1) -> Array:
    """`x + value * left * right`."""
    a, b, c = spread(out, wide(out.dtype), x, left, right)
    return lax.add(a, lax.mul(lax.mul(like(b, value), b), c))


def addcdiv(out: Out, x: Array, left: Array, right: Array, *, value: Scalar = 1) -> Array:
    """`x + value * left / right`."""
    a, b, c = spread(out, wide(out.dtype), x, left, right)
    return lax.add(a, lax.mul(like(b, value), lax.div(b, c)))


def complex_(out: Out, real: Array, imaginary: Array) -> Array:
    """A complex of its parts."""
    return lax.complex(*(broadcast(part, out.shape) for part in (real, imaginary)))


def _each(packet: Any, lower: Callable[..., Array], *overloads: str) -> dict[Any, Callable[..., Array]]:
    """Entries for some overloads of an op."""
    return {getattr(packet, name): lower for name in overloads}


_TENSOR_SCALAR: Final = ("Tensor", "Scalar")


def gcd(left: Array, right: Array) -> Array:
    """The greatest common divisor, of numbers without signs: with them that of the lowest never ends."""
    if left.dtype.kind == "u":
        return jnp.gcd(left, right)
    unsigned = np.dtype(f"u{left.dtype}")
    sizes = [lax.convert_element_type(lax.abs(each), unsigned) for each in (left, right)]
    return lax.convert_element_type(jnp.gcd(*sizes), left.dtype)


def lcm(left: Array, right: Array) -> Array:
    """The least common multiple, which is not negative."""
    common = gcd(left, right)
    one = constant(1, left.dtype, left.shape)
    part = lax.div(left, lax.select(lax.eq(common, constant(0, left.dtype, left.shape)), one, common))
    product = lax.mul(part, right)
    return product if left.dtype.kind == "u" else lax.abs(product)


OPS: Final[dict[Any, Callable[..., Any]]] = {
    **_each(aten.add, add, *_TENSOR_SCALAR),
    **_each(aten.sub, subtract, *_TENSOR_SCALAR),
    **_each(aten.mul, promoted(multiply), *_TENSOR_SCALAR),
    **_each(aten.div, divide, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **_each(aten.floor_divide, promoted(floor_divide), "default", "Scalar"),
    **_each(aten.remainder, promoted(remainder), "Tensor", "Scalar", "Scalar_Tensor"),
    **_each(aten.fmod, promoted(fmod), *_TENSOR_SCALAR),
    **_each(aten.pow, power, "Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    **_each(aten.eq, compared(lax.eq), *_TENSOR_SCALAR),
    **_each(aten.ne, compared(lax.ne), *_TENSOR_SCALAR),
    **_each(aten.lt, compared(lax.lt), *_TENSOR_SCALAR),
    **_each(aten.le, compared(lax.le), *_TENSOR_SCALAR),
    **_each(aten.gt, compared(lax.gt), *_TENSOR_SCALAR),
    **_each(aten.ge, compared(lax.ge), *_TENSOR_SCALAR),
    **_each(aten.bitwise_and, exact(lax.bitwise_and), "Tensor", "Scalar", "Scalar_Tensor"),
    **_each(aten.bitwise_or, exact(lax.bitwise_or), "Tensor", "Scalar", "Scalar_Tensor"),
    **_each(aten.bitwise_xor, exact(lax.bitwise_xor), "Tensor", "Scalar", "Scalar_Tensor"),
    **_each(
        aten.bitwise_left_shift, exact(_shift(lax.shift_left)), "Tensor", "Tensor_Scalar", "Scalar_Tensor"
    ),
    **_each(
        aten.bitwise_right_shift, exact(_shift(_shift_right)), "Tensor", "Tensor_Scalar", "Scalar_Tensor"
    ),
    aten.logical_and.default: logical(lax.bitwise_and),
    aten.logical_or.default: logical(lax.bitwise_or),
    aten.logical_xor.default: logical(lax.bitwise_xor),
    aten.maximum.default: exact(lax.max),
    aten.minimum.default: exact(lax.min),
    aten.fmax.default: exact(fmax),
    aten.fmin.default: exact(fmin),
    aten.atan2.default: promoted(lax.atan2),
    aten.copysign.Tensor: promoted(jnp.copysign),
    aten.copysign.Scalar: promoted(jnp.copysign),
    aten.hypot.default: promoted(jnp.hypot),
    aten.nextafter.default: exact(lax.nextafter),
    aten.gcd.default: exact(gcd),
    aten.lcm.default: exact(lcm),
    aten.xlogy.Tensor: promoted(jsp.xlogy),
    aten.special_zeta.default: promoted(lax.zeta),
    aten.where.self: where,
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp,
    aten.clamp_min.default: clamp,
    aten.clamp_min.Tensor: clamp,
    aten.clamp_max.default: clamp_max,
    aten.clamp_max.Tensor: clamp_max,
    aten.addcmul.default: addcmul,
    aten.addcdiv.default: addcdiv,
    aten.complex.default: complex_,
}
