"""Discrete Fourier transforms over the last dims that are named, which must not be padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.padding.rules import Call, of_plain, require
from aotpipe.backends.xla.values import Array, Out, cast

aten = torch.ops.aten


def _scaled(x: Array, mode: int, shape: Sequence[int], dims: Sequence[int]) -> Array:
    """By nothing, by the root of the count of elements, or by the count."""
    count = math.prod(shape[dim] for dim in dims)
    return x * {1: 1 / math.sqrt(count), 2: 1 / count}[mode] if mode else x


def c2c(out: Out, x: Array, dims: Sequence[int], normalization: int, forward: bool) -> Array:
    """Of complex numbers."""
    for dim in dims:
        moved = jnp.moveaxis(x, dim, -1)
        kind = lax.FftType.FFT if forward else lax.FftType.IFFT
        done = lax.fft(moved, kind, (moved.shape[-1],))
        # XLA divides the inverse by the count, torch by what the mode says.
        x = jnp.moveaxis(done if forward else done * moved.shape[-1], -1, dim)
    return _scaled(x, normalization, x.shape, dims)


def r2c(out: Out, x: Array, dims: Sequence[int], normalization: int, onesided: bool) -> Array:
    """Of real numbers: the half that is not the mirror of the other, or all."""
    if not onesided:
        return c2c(out, cast(x, out.dtype), dims, normalization, forward=True)
    *others, last = dims
    moved = jnp.moveaxis(cast(x, np.dtype(f"float{4 * out.dtype.itemsize}")), last, -1)
    done = jnp.moveaxis(lax.fft(moved, lax.FftType.RFFT, (moved.shape[-1],)), -1, last)
    return _scaled(c2c(out, done, others, 0, forward=True), normalization, x.shape, dims)


def c2r(out: Out, x: Array, dims: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """Back to real numbers."""
    *others, last = dims
    moved = jnp.moveaxis(c2c(out, x, others, 0, forward=False), last, -1)
    done = lax.fft(moved, lax.FftType.IRFFT, (last_dim_size,)) * last_dim_size
    return _scaled(jnp.moveaxis(done, -1, last), normalization, out.shape, dims)


def _unpadded(call: Call) -> Any:
    require([call.first.axes[dim] for dim in call.args[1]], "the Fourier transform")
    return of_plain(call)


OPS: Final[dict[Any, Any]] = {
    aten._fft_c2c.default: (c2c, _unpadded),
    aten._fft_r2c.default: (r2c, _unpadded),
    aten._fft_c2r.default: (c2r, _unpadded),
}
