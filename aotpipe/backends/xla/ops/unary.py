"""Functions of one tensor, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.values import (
    BOOL,
    Array,
    DType,
    Out,
    Scalar,
    cast,
    constant,
    is_complex,
    is_float,
    wide,
)

aten = torch.ops.aten
Function = Callable[[Array], Array]


def floating(function: Function) -> Callable[[Out, Array], Array]:
    """An op that gives floats: computed as eager does, half precision in float32, integers as floats."""

    def lower(out: Out, x: Array) -> Array:
        return function(cast(x, wide(out.dtype)))

    return lower


def same(function: Function) -> Callable[[Out, Array], Array]:
    """An op of the tensor in its own dtype."""

    def lower(_: Out, x: Array) -> Array:
        return function(x)

    return lower


def unless_integer(function: Function) -> Callable[[Out, Array], Array]:
    """An op that leaves integers and bools as they are."""

    def lower(_: Out, x: Array) -> Array:
        return function(x) if is_float(x.dtype) or is_complex(x.dtype) else x

    return lower


def like(x: Array, value: Scalar) -> Array:
    """A number in the dtype and shape of an array."""
    return constant(value, x.dtype, x.shape)


def round_(_: Out, x: Array, *, decimals: int = 0) -> Array:
    """To the nearest, ties to even; of `decimals` in the steps of eager."""
    if not is_float(x.dtype):
        return x
    value = cast(x, wide(x.dtype))
    if not decimals:
        return lax.round(value, lax.RoundingMethod.TO_NEAREST_EVEN)
    power = like(value, 10.0 ** abs(decimals))
    scaled = lax.mul(value, power) if decimals > 0 else lax.div(value, power)
    rounded = lax.round(scaled, lax.RoundingMethod.TO_NEAREST_EVEN)
    return lax.div(rounded, power) if decimals > 0 else lax.mul(rounded, power)


def truncate(x: Array) -> Array:
    """Towards zero."""
    return lax.select(lax.lt(x, like(x, 0)), lax.ceil(x), lax.floor(x))


def sign(_: Out, x: Array) -> Array:
    """-1, 0 or 1; of NaN 0, as eager gives it."""
    if x.dtype == BOOL:
        return x
    if is_float(x.dtype):
        return lax.select(lax.ne(x, x), like(x, 0), lax.sign(x))
    return lax.sign(x)


def sgn(out: Out, x: Array) -> Array:
    """The sign of a real, the direction of a complex."""
    return lax.sign(x) if is_complex(x.dtype) else sign(out, x)


def signbit(_: Out, x: Array) -> Array:
    """Whether the sign bit is set, that of -0.0 too."""
    if is_float(x.dtype):
        bits = np.dtype(f"int{8 * x.dtype.itemsize}")
        return lax.lt(lax.bitcast_convert_type(x, bits), constant(0, bits, x.shape))
    return lax.full(x.shape, False) if x.dtype == BOOL else lax.lt(x, like(x, 0))


def negate(_: Out, x: Array) -> Array:
    """Minus; a zero's sign too."""
    return lax.neg(x)


def bitwise_not(_: Out, x: Array) -> Array:
    """Of a bool the other one."""
    return lax.bitwise_not(x)


def logical_not(_: Out, x: Array) -> Array:
    """Whether it is zero."""
    return lax.eq(x, like(x, 0))


def absolute(out: Out, x: Array) -> Array:
    """Of a complex its length."""
    if x.dtype == BOOL or x.dtype.kind == "u":
        return x
    return lax.abs(x)


def log_base(base: float) -> Function:
    """A logarithm."""
    scale = 1.0 / math.log(base)

    def function(x: Array) -> Array:
        if is_complex(x.dtype):
            return lax.mul(lax.log(x), like(x, scale))
        return jnp.log2(x) if base == 2 else jnp.log10(x)

    return function


def relu(_: Out, x: Array) -> Array:
    """NaN stays."""
    return lax.max(x, like(x, 0))


def gelu(out: Out, x: Array, *, approximate: str = "none") -> Array:
    """By the error function, or its tanh form."""
    x = cast(x, wide(out.dtype))
    half, one = like(x, 0.5), like(x, 1)
    if approximate == "tanh":
        cube = lax.mul(lax.mul(x, x), x)
        inner = lax.mul(like(x, math.sqrt(2 / math.pi)), lax.add(x, lax.mul(like(x, 0.044715), cube)))
        return lax.mul(lax.mul(half, x), lax.add(one, lax.tanh(inner)))
    # erfc keeps what `1 + erf(x)` loses to the left.
    return lax.mul(lax.mul(half, x), lax.erfc(lax.mul(x, like(x, -math.sqrt(0.5)))))


def silu(out: Out, x: Array) -> Array:
    """`x` by its sigmoid."""
    x = cast(x, wide(out.dtype))
    return lax.mul(x, lax.logistic(x))


def elu(out: Out, x: Array, alpha: Scalar = 1.0, scale: Scalar = 1.0, input_scale: Scalar = 1.0) -> Array:
    """Exponential below zero."""
    x = cast(x, wide(out.dtype))
    low = lax.mul(lax.expm1(lax.mul(x, like(x, input_scale))), like(x, alpha))
    return lax.mul(lax.select(lax.gt(x, like(x, 0)), x, low), like(x, scale))


def leaky_relu(out: Out, x: Array, slope: Scalar = 0.01) -> Array:
    """A slope below zero."""
    x = cast(x, wide(out.dtype))
    return lax.select(lax.gt(x, like(x, 0)), x, lax.mul(x, like(x, slope)))


def hardtanh(_: Out, x: Array, low: Scalar = -1.0, high: Scalar = 1.0) -> Array:
    """Clamped; NaN stays."""
    return lax.min(lax.max(x, like(x, low)), like(x, high))


def is_nan(_: Out, x: Array) -> Array:
    """What is not equal to itself."""
    return lax.ne(x, x)


def is_infinite(_: Out, x: Array) -> Array:
    """Either infinity; of a complex in either part."""
    if is_complex(x.dtype):
        return lax.bitwise_or(is_infinite(_, lax.real(x)), is_infinite(_, lax.imag(x)))
    if not is_float(x.dtype):
        return lax.full(x.shape, False)
    return lax.eq(lax.abs(x), like(x, math.inf))


def is_finite(_: Out, x: Array) -> Array:
    """Neither NaN nor infinite."""
    if is_complex(x.dtype):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.is_finite(x) if is_float(x.dtype) else lax.full(x.shape, True)


def digamma(x: Array) -> Array:
    """At zero the infinity on the side of its sign; XLA has NaN there."""
    infinite = lax.div(like(x, -1), x)
    return lax.select(lax.eq(x, like(x, 0)), infinite, lax.digamma(x))


def angle(out: Out, x: Array) -> Array:
    """The direction; of a negative real pi."""
    if is_complex(x.dtype):
        return lax.atan2(lax.imag(x), lax.real(x))
    value = cast(x, out.dtype)
    turned = lax.select(lax.lt(value, like(value, 0)), like(value, math.pi), like(value, 0))
    return lax.select(lax.ne(value, value), value, turned)


def sinc(x: Array) -> Array:
    """`sin(pi x) / (pi x)`."""
    scaled = lax.mul(x, like(x, math.pi))
    zero = lax.eq(x, like(x, 0))
    return lax.select(zero, like(x, 1), lax.div(lax.sin(scaled), lax.select(zero, like(x, 1), scaled)))


def real_of(dtype: DType) -> DType:
    """The dtype of a complex dtype's parts."""
    return np.dtype(f"float{4 * dtype.itemsize}")


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.abs.default: absolute,
    aten.acos.default: floating(lax.acos),
    aten.acosh.default: floating(lax.acosh),
    aten.angle.default: angle,
    aten.asin.default: floating(lax.asin),
    aten.asinh.default: floating(lax.asinh),
    aten.atan.default: floating(lax.atan),
    aten.atanh.default: floating(lax.atanh),
    aten.bitwise_not.default: bitwise_not,
    aten.ceil.default: unless_integer(lax.ceil),
    aten.cos.default: floating(lax.cos),
    aten.cosh.default: floating(lax.cosh),
    aten.digamma.default: floating(digamma),
    aten.elu.default: elu,
    aten.erf.default: floating(lax.erf),
    aten.erfc.default: floating(lax.erfc),
    aten.erfinv.default: floating(lax.erf_inv),
    aten.exp.default: floating(lax.exp),
    aten.exp2.default: floating(lax.exp2),
    aten.expm1.default: floating(lax.expm1),
    aten.floor.default: unless_integer(lax.floor),
    aten.gelu.default: gelu,
    aten.hardtanh.default: hardtanh,
    aten.i0.default: floating(jsp.i0),
    aten.isfinite.default: is_finite,
    aten.isinf.default: is_infinite,
    aten.isnan.default: is_nan,
    aten.leaky_relu.default: leaky_relu,
    aten.lgamma.default: floating(lax.lgamma),
    aten.log.default: floating(lax.log),
    aten.log10.default: floating(log_base(10)),
    aten.log1p.default: floating(lax.log1p),
    aten.log2.default: floating(log_base(2)),
    aten.logical_not.default: logical_not,
    aten.neg.default: negate,
    aten.reciprocal.default: floating(lambda x: lax.div(like(x, 1), x)),
    aten.relu.default: relu,
    aten.round.decimals: round_,
    aten.round.default: round_,
    aten.rsqrt.default: floating(lambda x: lax.div(like(x, 1), lax.sqrt(x))),
    aten.sgn.default: sgn,
    aten.sigmoid.default: floating(lax.logistic),
    aten.sign.default: sign,
    aten.signbit.default: signbit,
    aten.silu.default: silu,
    aten.sin.default: floating(lax.sin),
    aten.sinc.default: floating(sinc),
    aten.sinh.default: floating(lax.sinh),
    aten.special_erfcx.default: floating(lambda x: lax.mul(lax.exp(lax.mul(x, x)), lax.erfc(x))),
    aten.special_i0e.default: floating(jsp.i0e),
    aten.special_i1.default: floating(jsp.i1),
    aten.special_i1e.default: floating(jsp.i1e),
    aten.sqrt.default: floating(lax.sqrt),
    aten.tan.default: floating(lax.tan),
    aten.tanh.default: floating(lax.tanh),
    aten.trunc.default: unless_integer(truncate),
}
