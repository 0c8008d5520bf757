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
    return lambda out, x: function(cast(x, wide(out.dtype)))


def same(function: Function) -> Callable[[Out, Array], Array]:
    """An op of the tensor in its own dtype."""
    return lambda _, x: function(x)


def like(x: Array, value: Scalar) -> Array:
    """A number in the dtype and shape of an array."""
    return constant(value, x.dtype, x.shape)


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


def truncate(x: Array) -> Array:
    """Towards zero; integers stay."""
    return lax.select(x < 0, lax.ceil(x), lax.floor(x)) if is_float(x.dtype) else x


def sign(_: Out, x: Array) -> Array:
    """-1, 0 or 1, and of a complex the direction; of NaN 0, as eager gives it."""
    if x.dtype == BOOL:
        return x
    return lax.select(x != x, like(x, 0), lax.sign(x)) if is_float(x.dtype) else lax.sign(x)


def signbit(_: Out, x: Array) -> Array:
    """Whether the sign bit is set, that of -0.0 too."""
    if is_float(x.dtype):
        x = lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))
    return lax.full(x.shape, False) if x.dtype == BOOL else x < 0


def gelu(out: Out, x: Array, *, approximate: str = "none") -> Array:
    """By the error function, or its tanh form."""
    x = cast(x, wide(out.dtype))
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + lax.tanh(inner))
    # erfc keeps what `1 + erf(x)` loses to the left.
    return 0.5 * x * lax.erfc(x * -math.sqrt(0.5))


def elu(out: Out, x: Array, alpha: Scalar = 1.0, scale: Scalar = 1.0, input_scale: Scalar = 1.0) -> Array:
    """Exponential below zero."""
    x = cast(x, wide(out.dtype))
    low = lax.expm1(x * like(x, input_scale)) * like(x, alpha)
    return lax.select(x > 0, x, low) * like(x, scale)


def leaky_relu(out: Out, x: Array, slope: Scalar = 0.01) -> Array:
    """A slope below zero."""
    x = cast(x, wide(out.dtype))
    return lax.select(x > 0, x, x * like(x, slope))


def is_infinite(x: Array) -> Array:
    """Either infinity; of a complex in either part."""
    if is_complex(x.dtype):
        return is_infinite(lax.real(x)) | is_infinite(lax.imag(x))
    return lax.abs(x) == math.inf if is_float(x.dtype) else lax.full(x.shape, False)


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


def sinc(x: Array) -> Array:
    """`sin(pi x) / (pi x)`."""
    scaled, one = x * math.pi, like(x, 1)
    return lax.select(x == 0, one, lax.sin(scaled) / lax.select(x == 0, one, scaled))


OPS: Final[dict[Any, Any]] = {
    aten.abs.default: same(jnp.abs),
    aten.acos.default: floating(lax.acos),
    aten.acosh.default: floating(lax.acosh),
    aten.angle.default: angle,
    aten.asin.default: floating(lax.asin),
    aten.asinh.default: floating(lax.asinh),
    aten.atan.default: floating(lax.atan),
    aten.atanh.default: floating(lax.atanh),
    aten.bitwise_not.default: same(lax.bitwise_not),
    aten.ceil.default: same(jnp.ceil),
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
    aten.floor.default: same(jnp.floor),
    aten.gelu.default: gelu,
    aten.hardtanh.default: lambda _, x, low=-1, high=1: lax.min(lax.max(x, like(x, low)), like(x, high)),
    aten.i0.default: floating(jsp.i0),
    aten.isfinite.default: same(jnp.isfinite),
    aten.isinf.default: same(is_infinite),
    aten.isnan.default: same(jnp.isnan),
    aten.leaky_relu.default: leaky_relu,
    aten.lgamma.default: floating(lax.lgamma),
    aten.log.default: floating(lax.log),
    aten.log10.default: floating(jnp.log10),
    aten.log1p.default: floating(lax.log1p),
    aten.log2.default: floating(jnp.log2),
    aten.logical_not.default: same(jnp.logical_not),
    aten.neg.default: same(lax.neg),
    aten.reciprocal.default: floating(lambda x: 1 / x),
    aten.relu.default: same(lambda x: lax.max(x, like(x, 0))),
    (aten.round.default, aten.round.decimals): round_,
    aten.rsqrt.default: floating(lambda x: 1 / lax.sqrt(x)),
    (aten.sign.default, aten.sgn.default): sign,
    aten.sigmoid.default: floating(lax.logistic),
    aten.signbit.default: signbit,
    aten.silu.default: floating(lambda x: x * lax.logistic(x)),
    aten.sin.default: floating(lax.sin),
    aten.sinc.default: floating(sinc),
    aten.sinh.default: floating(lax.sinh),
    aten.special_erfcx.default: floating(lambda x: lax.exp(x * x) * lax.erfc(x)),
    aten.special_i0e.default: floating(jsp.i0e),
    aten.special_i1.default: floating(jsp.i1),
    aten.special_i1e.default: floating(jsp.i1e),
    aten.sqrt.default: floating(lax.sqrt),
    aten.tan.default: floating(lax.tan),
    aten.tanh.default: floating(lax.tanh),
    aten.trunc.default: same(truncate),
}
