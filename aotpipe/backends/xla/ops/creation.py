"""Tensors from nothing: constants, ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.values import (
    FLOAT64,
    INT64,
    Array,
    Out,
    broadcast,
    cast,
    constant,
    is_array,
    is_float,
)

aten = torch.ops.aten


def filled(out: Out, value: Any) -> Array:
    """A number, or what the run computes for one, everywhere."""
    if is_array(value):
        return broadcast(lax.reshape(cast(value, out.dtype), ()), out.shape)
    return constant(value, out.dtype, out.shape)


def full(out: Out, _: Any, value: Any, **__: Any) -> Array:
    """One value everywhere."""
    return filled(out, value)


def scalar_tensor(out: Out, value: Any, **_: Any) -> Array:
    """One value."""
    return filled(out, value)


def zeros(out: Out, *_: Any, **__: Any) -> Array:
    """Also for what is left open: a program must give the same each time."""
    return constant(0, out.dtype, out.shape)


def ones(out: Out, *_: Any, **__: Any) -> Array:
    """1 everywhere."""
    return constant(1, out.dtype, out.shape)


def arange(out: Out, start: Any, end: Any, step: Any = 1, **_: Any) -> Array:
    """From a start in steps; floats are computed in float64, as eager does."""
    work = FLOAT64 if is_float(out.dtype) else INT64
    count = lax.iota(INT64, out.shape[0])
    first, each = (broadcast(cast(value, work), out.shape) for value in (start, step))
    return cast(lax.add(first, lax.mul(cast(count, work), each)), out.dtype)


def eye(out: Out, *_: Any, **__: Any) -> Array:
    """1 on the diagonal."""
    rows, columns = (lax.broadcasted_iota(np.int32, out.shape, axis) for axis in (0, 1))
    return cast(lax.eq(rows, columns), out.dtype)


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.full.default: full,
    aten.full_like.default: full,
    aten.fill.Scalar: full,
    aten.fill.Tensor: full,
    aten.scalar_tensor.default: scalar_tensor,
    aten.arange.start_step: arange,
    aten.eye.default: eye,
    aten.eye.m: eye,
    aten.ones.default: ones,
    aten.ones_like.default: ones,
    **dict.fromkeys(
        (
            aten.zeros.default,
            aten.zeros_like.default,
            aten.empty.memory_format,
            aten.empty_like.default,
            aten.empty_strided.default,
            aten.new_zeros.default,
        ),
        zeros,
    ),
}
