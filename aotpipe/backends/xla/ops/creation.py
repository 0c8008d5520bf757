"""Tensors from nothing: constants, ranges. In a bucket they are larger than they need be."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.padding.rules import of_plain
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


def filled(out: Out, value: Any, **_: Any) -> Array:
    """A number, or what the run computes for one, everywhere."""
    if is_array(value):
        return broadcast(lax.reshape(cast(value, out.dtype), ()), out.shape)
    return constant(value, out.dtype, out.shape)


def arange(out: Out, start: Any, end: Any, step: Any = 1, **_: Any) -> Array:
    """From a start in steps; floats are computed in float64, as eager does."""
    work = FLOAT64 if is_float(out.dtype) else INT64
    count = cast(lax.iota(INT64, out.shape[0]), work)
    return cast(cast(start, work) + count * cast(step, work), out.dtype)


def eye(out: Out, *_: Any, **__: Any) -> Array:
    """1 on the diagonal."""
    rows, columns = (lax.broadcasted_iota(np.int32, out.shape, axis) for axis in (0, 1))
    return cast(rows == columns, out.dtype)


OPS: Final[dict[Any, Any]] = {
    (aten.full.default, aten.full_like.default, aten.fill.Scalar, aten.fill.Tensor): (
        lambda out, _, value, **__: filled(out, value),
        of_plain,
    ),
    aten.scalar_tensor.default: (filled, of_plain),
    aten.arange.start_step: (arange, of_plain),
    (aten.eye.default, aten.eye.m): (eye, of_plain),
    (aten.ones.default, aten.ones_like.default): (lambda out, *_, **__: filled(out, 1), of_plain),
    # What `empty` leaves open is 0: a program must give the same each time.
    (
        aten.zeros.default,
        aten.zeros_like.default,
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_zeros.default,
    ): (lambda out, *_, **__: filled(out, 0), of_plain),
}
