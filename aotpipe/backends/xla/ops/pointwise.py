"""Functions of tensors, element by element: arithmetic, comparison, bits, choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.padding.rules import elementwise
from aotpipe.backends.xla.values import (
    BOOL,
    Array,
    DType,
    Out,
    Scalar,
    cast,
    constant,
    is_array,
    is_complex,
    is_float,
    result_dtype,
    wide,
)

aten = torch.ops.aten
Function = Callable[[Array], Array]


def floating(function: Function) -> Callable[[Out, Array], Array]:
    """An op that gives floats: computed as eager does, half precision in float32, integers as floats."""
    return lambda out, x: function(cast(x, wide(out.dtype)))


def same(function: Function) -> Callable[[Out, Array], Array]:
    """An op of the tensor in its own dtype."""
    return lambda _, x: function(x)


def like(x: Array, value: Scalar) -> Array:
    """A number in the dtype and shape of an array."""
    return constant(value, x.dtype, x.shape)


def scaled(x: Array, factor: Any) -> Array:
    """An array times a number; as it is where the number is known to be 1."""
    return x if not is_array(factor) and factor == 1 else x * like(x, factor)


def round_(_: Out, x: Array, *, decimals: int = 0) -> Array:
    """To the nearest, ties to even; of `decimals` in the steps of eager."""
    if not is_float(x.dtype):
        return x
    value, power = cast(x, wide(x.dtype)), 10.0 ** abs(decimals)
    if decimals > 0:
        return _nearest(value * power) / power
    return _nearest(value / power) * power if decimals else _nearest(value)


def _nearest(x: Array) -> Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def sign(_: Out, x: Array) -> Array:
    """-1, 0 or 1, and of a complex the direction; of NaN and -0.0 eager gives 0.0."""
    if x.dtype == BOOL:
        return x
    return lax.select((x < 0) | (x > 0), lax.sign(x), like(x, 0)) if is_float(x.dtype) else lax.sign(x)


def elu(out: Out, x: Array, alpha: Scalar = 1.0, scale: Scalar = 1.0, input_scale: Scalar = 1.0) -> Array:
    """Exponential below zero."""
    x = cast(x, wide(out.dtype))
    low = lax.expm1(x * like(x, input_scale)) * like(x, alpha)
    return lax.select(x > 0, x, low) * like(x, scale)


def leaky_relu(out: Out, x: Array, slope: Scalar = 0.01) -> Array:
    """A slope below zero and at it; jax's own has none at zero."""
    x = cast(x, wide(out.dtype))
    return lax.select(x > 0, x, x * like(x, slope))


def digamma(x: Array) -> Array:
    """At zero the infinity on the side of its sign; XLA has NaN there."""
    return lax.select(x == 0, -1 / x, lax.digamma(x))


def angle(out: Out, x: Array) -> Array:
    """The direction; of a negative real pi."""
    if is_complex(x.dtype):
        return lax.atan2(lax.imag(x), lax.real(x))
    value = cast(x, out.dtype)
    turned = lax.select(value < 0, like(value, math.pi), like(value, 0))
    return lax.select(value != value, value, turned)


Lowering = Callable[[Out, Any, Any], Array]


def spread(out: Out, dtype: DType, *values: Any) -> list[Array]:
    """Operands in one dtype and in the result's shape."""
    return [jnp.broadcast_to(cast(value, dtype), out.shape) for value in values]


def promoted(function: Callable[[Array, Array], Array]) -> Lowering:
    """An op computed in the dtype of its result, half precision in float32."""
    return lambda out, left, right: function(*spread(out, wide(out.dtype), left, right))


def exact(function: Callable[[Array, Array], Array]) -> Lowering:
    """An op that does not round: computed in the dtype of its result."""
    return lambda out, left, right: function(*spread(out, out.dtype, left, right))


def compared(function: Callable[[Array, Array], Array]) -> Lowering:
    """An op that compares in the dtype that its operands promote to."""
    return lambda out, left, right: function(*spread(out, result_dtype(left, right), left, right))


def logical(function: Callable[[Array, Array], Array]) -> Lowering:
    """An op on what is not zero."""
    return lambda out, left, right: function(*spread(out, BOOL, left, right))


def add(out: Out, left: Any, right: Any, *, alpha: Scalar = 1) -> Array:
    """`left + alpha * right`; of bools their or."""
    a, b = spread(out, wide(out.dtype), left, right)
    if out.dtype == BOOL:
        return a | (b & like(b, alpha))
    return a + scaled(b, alpha)


def subtract(out: Out, left: Any, right: Any, *, alpha: Scalar = 1) -> Array:
    """`left - alpha * right`."""
    a, b = spread(out, wide(out.dtype), left, right)
    return a - scaled(b, alpha)


def divide(out: Out, left: Any, right: Any, *, rounding_mode: str | None = None) -> Array:
    """True, truncating or flooring."""
    a, b = spread(out, wide(out.dtype), left, right)
    if rounding_mode == "floor":
        return floor_divide(a, b)
    if rounding_mode is None:
        return lax.div(a, b)
    return jnp.trunc(_exactly(a, b)) if is_float(a.dtype) else lax.div(a, b)


def _exactly(a: Array, b: Array) -> Array:
    """A quotient that is rounded once: of a divisor that is spread over `a` XLA takes the reciprocal."""
    return lax.div(a, lax.optimization_barrier(b))


def _differ(rest: Array, b: Array) -> Array:
    """Where the sign of a remainder is not that of the divisor."""
    return (rest != 0) & ((rest < 0) != (b < 0))


def floor_divide(a: Array, b: Array) -> Array:
    """The quotient towards minus infinity, as eager computes that of floats: from the exact remainder."""
    if not is_float(a.dtype):
        quotient = lax.div(a, b)
        return quotient - cast(_differ(a - quotient * b, b), a.dtype)
    rest = lax.rem(a, b)
    quotient = (a - rest) / b
    quotient = lax.select(_differ(rest, b), quotient - 1, quotient)
    floored = lax.floor(quotient)
    nearest = lax.select(quotient - floored > 0.5, floored + 1, floored)
    result = lax.select(quotient != 0, nearest, like(a, 0) * (a / b))
    return lax.select(b == 0, a / b, result)


def remainder(a: Array, b: Array) -> Array:
    """With the sign of the divisor."""
    rest = lax.rem(a, b)
    return lax.select(_differ(rest, b), rest + b, rest)


def power(out: Out, base: Any, exponent: Any) -> Array:
    """Of integers by squaring; a negative exponent gives 0 but for bases 1 and -1."""
    a, b = spread(out, wide(out.dtype), base, exponent)
    if a.dtype == BOOL:
        return a | ~b
    if a.dtype.kind not in "iu":
        if not is_array(exponent) and exponent in (2, 0.5):
            return a * a if exponent == 2 else lax.sqrt(a)
        return jnp.power(a, b)
    result, square, left = like(a, 1), a, b
    for bit in range(8 * a.dtype.itemsize - (a.dtype.kind == "i")):
        result = lax.select((left & 1) != 0, result * square, result)
        square = square * square
        left = lax.shift_right_logical(left, like(left, 1))
        if not is_array(exponent) and int(exponent) >> (bit + 1) == 0:
            break
    if a.dtype.kind == "u":
        return result
    inverse = lax.select((a == 1) | (a == -1), lax.select((b & 1) == 0, a * a, a), like(a, 0))
    return lax.select(b < 0, inverse, result)


def clamp(out: Out, x: Array, low: Any = None, high: Any = None) -> Array:
    """Between bounds; NaN stays, and above the other bound the upper one counts."""
    (result,) = spread(out, out.dtype, x)
    if low is not None:
        result = lax.max(result, *spread(out, out.dtype, low))
    return result if high is None else lax.min(result, *spread(out, out.dtype, high))


def _plus(function: Callable[[Array, Array, Array], Array]) -> Callable[..., Array]:

    def lower(out: Out, x: Array, left: Array, right: Array, *, value: Scalar = 1) -> Array:
        a, b, c = spread(out, wide(out.dtype), x, left, right)
        return a + function(like(b, value), b, c)

    return lower


def gcd(left: Array, right: Array) -> Array:
    """The greatest common divisor, of numbers without signs: with them that of the lowest never ends."""
    unsigned = np.dtype(f"uint{8 * left.dtype.itemsize}")
    sizes = [lax.convert_element_type(jnp.abs(each), unsigned) for each in (left, right)]
    return lax.convert_element_type(jnp.gcd(*sizes), left.dtype)


def lcm(left: Array, right: Array) -> Array:
    """The least common multiple, which is not negative."""
    common = gcd(left, right)
    return jnp.abs(lax.div(left, lax.select(common == 0, like(left, 1), common)) * right)


def _each(packet: Any, overloads: str = "Tensor Scalar") -> tuple[Any, ...]:
    return tuple(getattr(packet, name) for name in overloads.split())


_BITWISE: Final = "Tensor Scalar Scalar_Tensor"
_SHIFTS: Final = "Tensor Tensor_Scalar Scalar_Tensor"
_FLOATING: Final = (
    "acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh "
    "erf erfc exp exp2 expm1 lgamma log log1p sqrt"
).split()
_SAME: Final = "abs ceil floor isfinite isinf isnan logical_not signbit trunc".split()
_COMPARED: Final = "eq ne lt le gt ge".split()
_BITS: Final = "bitwise_and bitwise_or bitwise_xor".split()

OPS: Final[dict[Any, Any]] = {
    # What jax calls as torch does.
    **{getattr(aten, name).default: floating(getattr(lax, name)) for name in _FLOATING},
    **{getattr(aten, name).default: same(getattr(jnp, name)) for name in _SAME},
    **{_each(getattr(aten, name)): compared(getattr(lax, name)) for name in _COMPARED},
    **{_each(getattr(aten, name), _BITWISE): exact(getattr(lax, name)) for name in _BITS},
    aten.angle.default: angle,
    aten.bitwise_not.default: same(lax.bitwise_not),
    aten.digamma.default: floating(digamma),
    aten.elu.default: elu,
    aten.erfinv.default: floating(lax.erf_inv),
    aten.gelu.default: lambda out, x, approximate="none": jax.nn.gelu(
        cast(x, wide(out.dtype)), approximate=approximate == "tanh"
    ),
    aten.hardtanh.default: lambda _, x, low=-1, high=1: lax.min(lax.max(x, like(x, low)), like(x, high)),
    aten.i0.default: floating(jsp.i0),
    aten.leaky_relu.default: leaky_relu,
    aten.log10.default: floating(jnp.log10),
    aten.log2.default: floating(jnp.log2),
    aten.neg.default: same(lax.neg),
    aten.reciprocal.default: floating(lambda x: 1 / x),
    aten.relu.default: same(lambda x: lax.max(x, like(x, 0))),
    (aten.round.default, aten.round.decimals): round_,
    aten.rsqrt.default: floating(lambda x: 1 / lax.sqrt(x)),
    (aten.sign.default, aten.sgn.default): sign,
    aten.sigmoid.default: floating(lax.logistic),
    aten.silu.default: floating(lambda x: x * lax.logistic(x)),
    aten.sinc.default: floating(jnp.sinc),
    aten.special_erfcx.default: floating(lambda x: lax.exp(x * x) * lax.erfc(x)),
    aten.special_i0e.default: floating(jsp.i0e),
    aten.special_i1.default: floating(jsp.i1),
    aten.special_i1e.default: floating(jsp.i1e),
    _each(aten.add): add,
    _each(aten.sub): subtract,
    _each(aten.mul): promoted(jnp.multiply),
    _each(aten.div, "Tensor Scalar Tensor_mode Scalar_mode"): divide,
    _each(aten.true_divide): promoted(_exactly),
    _each(aten.floor_divide, "default Scalar"): (promoted(floor_divide), elementwise),
    _each(aten.remainder, "Tensor Scalar Scalar_Tensor"): promoted(remainder),
    _each(aten.fmod): promoted(lax.rem),
    _each(aten.pow, "Tensor_Tensor Tensor_Scalar Scalar"): power,
    _each(aten.bitwise_left_shift, _SHIFTS): exact(lax.shift_left),
    _each(aten.bitwise_right_shift, _SHIFTS): exact(jnp.right_shift),
    aten.logical_and.default: logical(lax.bitwise_and),
    aten.logical_or.default: logical(lax.bitwise_or),
    aten.logical_xor.default: logical(lax.bitwise_xor),
    aten.maximum.default: exact(lax.max),
    aten.minimum.default: exact(lax.min),
    # Of equal values jax gives the second and eager the first, which may be a zero of the other sign.
    aten.fmax.default: exact(lambda a, b: jnp.fmax(b, a)),
    aten.fmin.default: exact(lambda a, b: jnp.fmin(b, a)),
    aten.atan2.default: promoted(lax.atan2),
    _each(aten.copysign): promoted(jnp.copysign),
    aten.hypot.default: promoted(jnp.hypot),
    aten.nextafter.default: exact(lax.nextafter),
    aten.gcd.default: exact(gcd),
    aten.lcm.default: exact(lcm),
    aten.xlogy.Tensor: promoted(jsp.xlogy),
    aten.special_zeta.default: promoted(lax.zeta),
    aten.where.self: lambda out, test, yes, no: lax.select(
        *spread(out, BOOL, test), *spread(out, out.dtype, yes, no)
    ),
    _each(aten.clamp, "default Tensor"): clamp,
    _each(aten.clamp_min, "default Tensor"): clamp,
    _each(aten.clamp_max, "default Tensor"): lambda out, x, high: clamp(out, x, None, high),
    aten.addcmul.default: _plus(lambda factor, b, c: factor * b * c),
    aten.addcdiv.default: _plus(lambda factor, b, c: factor * lax.div(b, c)),
    aten.complex.default: (
        lambda out, *parts: lax.complex(*(jnp.broadcast_to(part, out.shape) for part in parts)),
        elementwise,
    ),
}
