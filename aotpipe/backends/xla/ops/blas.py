"""Products of matrices; in float32 and exactly so on every device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from jax import lax

from aotpipe.backends.xla.ops.unary import like
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
    narrow = left.dtype != wide(left.dtype)
    return lax.dot_general(
        left,
        right,
        (axes, (tuple(batch), tuple(batch))),
        precision=PRECISION,
        preferred_element_type=wide(left.dtype) if narrow else left.dtype,
    )


def _summed(left: Array, right: Array, batch: int) -> Array:
    """A product along the last axis of `left` and the first of `right` after the batch: sums of products."""
    shape = (*left.shape, *right.shape[batch + 1 :])
    summed = left.ndim - 1
    own = (*range(batch), *range(summed, len(shape)))
    products = lax.mul(
        lax.broadcast_in_dim(left, shape, range(left.ndim)), lax.broadcast_in_dim(right, shape, own)
    )
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
        product = lax.mul(product, like(product, alpha))
    if beta == 0:
        return product
    x = broadcast(cast(x, product.dtype), out.shape)
    return lax.add(lax.mul(x, like(x, beta)) if beta != 1 else x, product)


def addmm(out: Out, x: Array, left: Array, right: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """Of matrices, with or without a batch."""
    return added(out, x, matmul(out, left, right), beta, alpha)


def addmv(out: Out, x: Array, left: Array, right: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """A matrix by a vector."""
    return added(out, x, vector_product(out, left, right), beta, alpha)


def int_mm(out: Out, left: Array, right: Array) -> Array:
    """int8 matrices, summed in int32."""
    return lax.dot_general(left, right, (((1,), (0,)), ((), ())), preferred_element_type=out.dtype)


OPS: Final[dict[Any, Callable[..., Any]]] = {
    aten.mm.default: matmul,
    aten.bmm.default: matmul,
    aten.mv.default: vector_product,
    aten.dot.default: vector_product,
    aten.addmm.default: addmm,
    aten.baddbmm.default: addmm,
    aten.addmv.default: addmv,
    aten._int_mm.default: int_mm,
}
