"""Products of matrices, in float32 and exactly so on every device, and discrete Fourier transforms.

In a bucket, what does not count along the dims that are summed over is 0 on both sides of a product. A
Fourier transform of a dim that is padded is a product with the matrix of its true size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.ops.pointwise import scaled
from aotpipe.backends.xla.padding.rules import Axis, Call, Padded, Rule, array_of, bare, of_plain, padded
from aotpipe.backends.xla.padding.sizes import Unpaddable
from aotpipe.backends.xla.values import INT32, Array, Out, Scalar, cast, wide

aten = torch.ops.aten

PRECISION: Final = lax.Precision.HIGHEST
"""A TPU's default takes float32 for bfloat16, which is not what the model was trained with."""

# The matrix of a longer transform would take more than 128 MiB.
_LARGEST: Final = 4096


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
    return lax.reduce_sum(products, (summed,))


def matmul(out: Out, left: Array, right: Array) -> Array:
    """Of matrices, with or without a batch in front; the dtype is not rounded yet."""
    left, right = cast(left, out.dtype), cast(right, out.dtype)
    batch = range(left.ndim - 2)
    return contract(left, right, ((left.ndim - 1,), (right.ndim - 2,)), tuple(batch))


def _integer_product(out: Out, left: Array, right: Array) -> Array:
    """Of int8, summed in int32."""

    def product(x: Array, y: Array) -> Array:
        return lax.dot(x, y, preferred_element_type=out.dtype)

    if left.shape[0] != 1:
        return product(left, right)
    # XLA's CPU compiler fuses a product of one row with what makes the row, which it computes again for each
    # column.
    return lax.platform_dependent(
        left, right, cpu=lambda x, y: product(jnp.pad(x, ((0, 1), (0, 0))), y)[:1], default=product
    )


def vector_product(out: Out, left: Array, right: Array) -> Array:
    """A matrix or a vector by a vector."""
    return contract(cast(left, out.dtype), cast(right, out.dtype), ((left.ndim - 1,), (0,)))


def added(out: Out, x: Array, product: Array, beta: Scalar, alpha: Scalar) -> Array:
    """`beta * x + alpha * product`; with a beta of 0, NaN in `x` counts for nothing."""
    product = scaled(product, alpha)
    if beta == 0:
        return product
    return scaled(jnp.broadcast_to(cast(x, product.dtype), out.shape), beta) + product


def _plus(product: Callable[[Out, Array, Array], Array]) -> tuple[Callable[..., Array], Rule]:

    def lower(out: Out, x: Array, left: Array, right: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
        return added(out, x, product(out, left, right), beta, alpha)

    def rule(call: Call) -> Padded:
        left, right, axes = _contracted(call, *call.args[1:3])
        found = Padded(product(call.out, left.array, right.array), axes)
        (x, found), axes = call.arena.aligned([call.first, found], len(axes))
        beta, alpha = (bare(call.kwargs.get(name, 1)) for name in ("beta", "alpha"))
        return Padded(added(call.out, x.array, found.array, beta, alpha), axes)

    return lower, rule


def _contracted(call: Call, left: Padded, right: Padded) -> tuple[Padded, Padded, tuple[Axis, ...]]:
    """Both sides with equal axes to sum over, 0 where these do not count, and the axes of their product."""
    arena = call.arena
    own, other = left.ndim - 1, max(right.ndim - 2, 0)
    for first, second in ((own, other), *([(0, 0)] if right.ndim == 3 else [])):
        if left.axes[first] != right.axes[second]:
            left, right = arena.plain(left, (first,)), arena.plain(right, (second,))
    axes = (*left.axes[:own], *right.axes[other + 1 :])
    return arena.filled(left, (own,), 0), arena.filled(right, (other,), 0), axes


def _padded_product(call: Call) -> Padded:
    left, right, axes = _contracted(call, *call.args[:2])
    return Padded(call.as_it_is(left, right), axes)


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


def _padded_transform(call: Call) -> Any:
    """Along each dim that is padded, a product with the matrix of its true size."""
    x, dims, op = (
        call.arena.plain(call.first),
        [dim % call.first.ndim for dim in call.args[1]],
        call.node.target,
    )
    reached = [dim for dim in dims if padded(x.axes[dim]) or padded(call.axes[dim])]
    if not reached:
        return of_plain(call)
    if any(max(x.array.shape[dim], call.out.shape[dim]) > _LARGEST for dim in reached):
        raise Unpaddable(f"the Fourier transform of more than {_LARGEST} elements, of a dim that is padded")
    sizes = [call.true(x, dim) for dim in dims]
    if op is aten._fft_c2r.default:
        sizes[-1] = array_of(call.args[3])
    forward = op is aten._fft_r2c.default or (op is aten._fft_c2c.default and call.args[3])
    found = call.arena.filled(x, dims, 0).array
    found = cast(found, jnp.result_type(found.dtype, np.complex64))
    for dim, size in zip(dims, sizes, strict=True):
        moved, columns = jnp.moveaxis(found, dim, -1), call.out.shape[dim]
        to_real = op is aten._fft_c2r.default and dim == dims[-1]
        if dim in reached:
            moved = _doubled(moved, size) if to_real else moved
            turns = _turns(moved.shape[-1], columns, size, -1 if forward else 1, found.dtype)
            moved = jnp.matmul(moved, turns, precision=PRECISION)
        elif to_real:
            moved = jnp.fft.irfft(moved, columns, norm=_norm(0, forward=False))
        else:
            transform = jnp.fft.fft if forward else jnp.fft.ifft
            moved = transform(moved, norm=_norm(0, forward=forward))[..., :columns]
        found = jnp.moveaxis(moved, -1, dim)
    found = cast(found if call.value.is_complex() else found.real, call.out.dtype)
    count = reduce(lax.mul, [cast(size, found.real.dtype) for size in sizes])
    return Padded(found * cast(count ** (-call.args[2] / 2), found.dtype), call.axes)


def _turns(rows: int, columns: int, size: Array, sign: int, dtype: Any) -> Array:
    """The matrix of a transform; the angles are whole numbers to the next quarter turn."""
    size = jnp.maximum(size, 1)
    quarters = 4 * ((jnp.arange(rows, dtype=INT32)[:, None] * jnp.arange(columns, dtype=INT32)) % size)
    quarter = (2 * quarters + size) // (2 * size)
    rest = (quarters - quarter * size).astype(jnp.finfo(dtype).dtype) * (np.pi / 2) / size
    quarter_turns = jnp.asarray([1, sign * 1j, -1, -sign * 1j], dtype)
    return quarter_turns[quarter % 4] * lax.complex(jnp.cos(rest), sign * jnp.sin(rest))


def _doubled(half: Array, size: Array) -> Array:
    """Frequencies with their conjugates added; the mean and the middle one have none."""
    place = jnp.arange(half.shape[-1], dtype=INT32)
    ends = (place * 2) % jnp.maximum(size, 1) == 0
    return jnp.where(place <= size // 2, jnp.where(ends, half.real, half * 2), 0)


OPS: Final[dict[Any, Any]] = {
    (aten.mm.default, aten.bmm.default): (matmul, _padded_product),
    (aten.mv.default, aten.dot.default): (vector_product, _padded_product),
    (aten.addmm.default, aten.baddbmm.default): _plus(matmul),
    aten.addmv.default: _plus(vector_product),
    aten._int_mm.default: (_integer_product, _padded_product),
    aten._fft_c2c.default: (c2c, _padded_transform),
    aten._fft_r2c.default: (r2c, _padded_transform),
    aten._fft_c2r.default: (c2r, _padded_transform),
}
