"""Products of matrices, in float32 and exactly so on every device, and discrete Fourier transforms.

In a bucket, what does not count along the dims that are summed over is 0 on both sides of a product. The dims
of a Fourier transform must not be padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.pointwise import like
from aotpipe.backends.xla.padding.rules import Call, Padded, Rule, bare, of_plain, require
from aotpipe.backends.xla.values import INT32, Array, Out, Scalar, broadcast, cast, constant, wide

aten = torch.ops.aten

PRECISION: Final = lax.Precision.HIGHEST
"""A TPU's default takes float32 for bfloat16, which is not what the model was trained with."""


def contract(
    left: Array, right: Array, axes: tuple[Sequence[int], Sequence[int]], batch: Sequence[int] = ()
) -> Array:
    """A product of tensors, of half precision summed in float32."""
    if left.dtype.kind in "iu" and left.dtype.itemsize > INT32.itemsize:
        # A TPU's compiler has no products of 64-bit integers, and sums of them.
        return lax.platform_dependent(
            left,
            right,
            tpu=lambda x, y: _summed(x, y, len(batch)),
            default=lambda x, y: lax.dot_general(x, y, (axes, (tuple(batch), tuple(batch)))),
        )
    return lax.dot_general(
        left,
        right,
        (axes, (tuple(batch), tuple(batch))),
        precision=PRECISION,
        preferred_element_type=wide(left.dtype),
    )


def _summed(left: Array, right: Array, batch: int) -> Array:
    """A product along the last axis of `left` and the first of `right` after the batch: sums of products."""
    shape = (*left.shape, *right.shape[batch + 1 :])
    summed = left.ndim - 1
    own = (*range(batch), *range(summed, len(shape)))
    products = lax.broadcast_in_dim(left, shape, range(left.ndim)) * lax.broadcast_in_dim(right, shape, own)
    return lax.reduce(products, constant(0, left.dtype), lax.add, (summed,))


def matmul(out: Out, left: Array, right: Array) -> Array:
    """Of matrices, with or without a batch in front; the dtype is not rounded yet."""
    left, right = cast(left, out.dtype), cast(right, out.dtype)
    batch = range(left.ndim - 2)
    return contract(left, right, ((left.ndim - 1,), (right.ndim - 2,)), tuple(batch))


def vector_product(out: Out, left: Array, right: Array) -> Array:
    """A matrix or a vector by a vector."""
    return contract(cast(left, out.dtype), cast(right, out.dtype), ((left.ndim - 1,), (0,)))


def added(out: Out, x: Array, product: Array, beta: Scalar, alpha: Scalar) -> Array:
    """`beta * x + alpha * product`; with a beta of 0, NaN in `x` counts for nothing."""
    if alpha != 1:
        product = product * like(product, alpha)
    if beta == 0:
        return product
    x = broadcast(cast(x, product.dtype), out.shape)
    return (x * like(x, beta) if beta != 1 else x) + product


def _plus(product: Callable[[Out, Array, Array], Array]) -> Callable[..., Array]:

    def lower(out: Out, x: Array, left: Array, right: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
        return added(out, x, product(out, left, right), beta, alpha)

    return lower


def _contracted(call: Call, left: Padded, right: Padded, axes: tuple[int, int]) -> tuple[Padded, Padded]:
    """Both sides with equal axes to sum over, 0 where these do not count."""
    arena = call.arena
    if left.axes[axes[0]] != right.axes[axes[1]]:
        left, right = arena.plain(left, axes[:1]), arena.plain(right, axes[1:])
    return arena.filled(left, axes[:1], 0), arena.filled(right, axes[1:], 0)


def _of_matrices(call: Call, left: Padded, right: Padded, rank: int) -> tuple[Padded, Padded]:
    if rank == 3 and left.axes[0] != right.axes[0]:
        left, right = call.arena.plain(left, (0,)), call.arena.plain(right, (0,))
    return _contracted(call, left, right, (rank - 1, rank - 2))


def _padded_product(rank: int) -> Rule:
    """Of matrices, `rank` 2, or of batches of them, 3."""

    def rule(call: Call) -> Padded:
        left, right = _of_matrices(call, call.args[0], call.args[1], rank)
        return Padded(call.as_it_is(left, right), (*left.axes[:-1], right.axes[-1]))

    return rule


def _padded_addmm(rank: int) -> Rule:

    def rule(call: Call) -> Padded:
        left, right = _of_matrices(call, call.args[1], call.args[2], rank)
        product = Padded(matmul(call.out, left.array, right.array), (*left.axes[:-1], right.axes[-1]))
        (x, product), axes = call.arena.aligned([call.first, product], rank)
        beta, alpha = (bare(call.kwargs.get(name, 1)) for name in ("beta", "alpha"))
        return Padded(added(call.out, x.array, product.array, beta, alpha), axes)

    return rule


def _padded_vector_product(call: Call) -> Padded:
    left, right = _contracted(call, call.args[0], call.args[1], (call.first.ndim - 1, 0))
    return Padded(call.as_it_is(left, right), left.axes[:-1])


def _padded_addmv(call: Call) -> Padded:
    left, right = _contracted(call, call.args[1], call.args[2], (1, 0))
    x, left = call.arena.plain(call.first), call.arena.plain(left, (0,))
    return Padded(call.as_it_is(x, left, right), left.axes[:-1])


def _norm(normalization: int, *, forward: bool) -> str:
    """Numpy's name of torch's mode: to divide by nothing, by the root of the count of elements, or by it."""
    modes = ("backward", "ortho", "forward") if forward else ("forward", "ortho", "backward")
    return modes[normalization]


def c2c(out: Out, x: Array, dims: Sequence[int], normalization: int, forward: bool) -> Array:
    """Of complex numbers."""
    transform = jnp.fft.fft if forward else jnp.fft.ifft
    for dim in dims:
        x = transform(x, axis=dim, norm=_norm(normalization, forward=forward))
    return x


def r2c(out: Out, x: Array, dims: Sequence[int], normalization: int, onesided: bool) -> Array:
    """Of real numbers: the half that is not the mirror of the other, or all."""
    if not onesided:
        return c2c(out, cast(x, out.dtype), dims, normalization, forward=True)
    *others, last = dims
    x = cast(x, np.dtype(f"float{4 * out.dtype.itemsize}"))
    half = jnp.fft.rfft(x, axis=last, norm=_norm(normalization, forward=True))
    return c2c(out, half, others, normalization, forward=True)


def c2r(out: Out, x: Array, dims: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """Back to real numbers."""
    *others, last = dims
    x = c2c(out, x, others, normalization, forward=False)
    return jnp.fft.irfft(x, last_dim_size, last, _norm(normalization, forward=False))


def _unpadded(call: Call) -> Any:
    require([call.first.axes[dim] for dim in call.args[1]], "the Fourier transform")
    return of_plain(call)


OPS: Final[dict[Any, Any]] = {
    aten.mm.default: (matmul, _padded_product(2)),
    aten.bmm.default: (matmul, _padded_product(3)),
    (aten.mv.default, aten.dot.default): (vector_product, _padded_vector_product),
    aten.addmm.default: (_plus(matmul), _padded_addmm(2)),
    aten.baddbmm.default: (_plus(matmul), _padded_addmm(3)),
    aten.addmv.default: (_plus(vector_product), _padded_addmv),
    # Of int8, summed in int32.
    aten._int_mm.default: (
        lambda out, x, y: lax.dot(x, y, preferred_element_type=out.dtype),
        _padded_product(2),
    ),
    aten._fft_c2c.default: (c2c, _unpadded),
    aten._fft_r2c.default: (r2c, _unpadded),
    aten._fft_c2r.default: (c2r, _unpadded),
}
