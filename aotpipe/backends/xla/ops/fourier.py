"""Discrete Fourier transforms over the last dims that are named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.ops.unary import like, real_of
from aotpipe.backends.xla.values import Array, Out, cast

aten = torch.ops.aten


def _scaled(x: Array, mode: int, count: int) -> Array:
    """By nothing, by the root of the count, or by the count."""
    factor = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[mode]
    return x if factor == 1.0 else lax.mul(x, like(x, factor))


def _count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[dim] for dim in dims)


def c2c(out: Out, x: Array, dims: Sequence[int], normalization: int, forward: bool) -> Array:
    """Of complex numbers."""
    for dim in dims:
        moved = jnp.moveaxis(x, dim, -1)
        kind = lax.FftType.FFT if forward else lax.FftType.IFFT
        done = lax.fft(moved, kind, (moved.shape[-1],))
        # XLA divides the inverse by the count, torch by what the mode says.
        done = done if forward else lax.mul(done, like(done, moved.shape[-1]))
        x = jnp.moveaxis(done, -1, dim)
    return _scaled(x, normalization, _count(x.shape, dims))


def r2c(out: Out, x: Array, dims: Sequence[int], normalization: int, onesided: bool) -> Array:
    """Of real numbers: the half that is not the mirror of the other, or all."""
    count = _count(x.shape, dims)
    if not onesided:
        return _scaled(c2c(out, cast(x, out.dtype), dims, 0, forward=True), normalization, count)
    *others, last = dims
    moved = jnp.moveaxis(cast(x, real_of(out.dtype)), last, -1)
    done = jnp.moveaxis(lax.fft(moved, lax.FftType.RFFT, (moved.shape[-1],)), -1, last)
    return _scaled(c2c(out, done, others, 0, forward=True), normalization, count)


def c2r(out: Out, x: Array, dims: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """Back to real numbers."""
    *others, last = dims
    moved = jnp.moveaxis(c2c(out, x, others, 0, forward=False), last, -1)
    done = lax.fft(moved, lax.FftType.IRFFT, (last_dim_size,))
    done = jnp.moveaxis(lax.mul(done, like(done, last_dim_size)), -1, last)
    return _scaled(done, normalization, _count(out.shape, dims))


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten._fft_c2c.default: c2c,
    aten._fft_r2c.default: r2c,
    aten._fft_c2r.default: c2r,
}
