"""Softmax and the norms, half precision in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.ops.reduction import extreme, total
from aotpipe.backends.xla.ops.unary import like
from aotpipe.backends.xla.values import Array, Out, axis_of, cast, wide

aten = torch.ops.aten


def _shifted(out: Out, x: Array, dim: int) -> tuple[Array, Array, int]:
    """The logits below their largest, and the sum of their exponentials."""
    x = cast(x, wide(out.dtype))
    axis = axis_of(dim, x.ndim)
    largest = lax.expand_dims(extreme(x, (axis,), largest=True), (axis,))
    shifted = lax.sub(x, jnp.broadcast_to(largest, x.shape))
    return shifted, lax.expand_dims(total(lax.exp(shifted), (axis,)), (axis,)), axis


def softmax(out: Out, x: Array, dim: int, half_to_float: bool = False) -> Array:
    """Exponentials by their sum."""
    if not x.ndim:
        return (
            like(cast(x, out.dtype), 1)
            if x.dtype != out.dtype
            else lax.div(lax.exp(lax.sub(x, x)), like(x, 1))
        )
    shifted, added, _ = _shifted(out, x, dim)
    return lax.div(lax.exp(shifted), jnp.broadcast_to(added, shifted.shape))


def log_softmax(out: Out, x: Array, dim: int, half_to_float: bool = False) -> Array:
    """Logarithms of the softmax."""
    if not x.ndim:
        return cast(lax.sub(x, x), out.dtype)
    shifted, added, _ = _shifted(out, x, dim)
    return lax.sub(shifted, jnp.broadcast_to(lax.log(added), shifted.shape))


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
}
