"""Ops that move elements, and tensors from nothing: views, casts, copies, diagonals, constants, ranges.

In a bucket a tensor from nothing is larger than it need be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import sympy
import torch
from jax import lax

from aotpipe.backends.xla.padding.rules import (
    ONE,
    Axis,
    Call,
    Padded,
    bucket_number,
    elementwise,
    joined,
    of_plain,
    require,
)
from aotpipe.backends.xla.padding.sizes import Size
from aotpipe.backends.xla.values import (
    FLOAT64,
    INT64,
    Array,
    Out,
    axis_of,
    cast,
    constant,
    is_array,
    is_complex,
    is_float,
)
from aotpipe.passes.ops import overloads

aten = torch.ops.aten


def padded_reshape(call: Call, x: Padded | None = None) -> Padded:
    """The first operand, or another value, in the shape of the result."""
    return call.arena.reshape(call.first if x is None else x, [factor for (factor,) in call.axes])


def _padded_expand(call: Call) -> Padded:
    """An axis that was there stays what it is."""
    axes = list(call.axes)
    for at, axis in enumerate(reversed(call.first.axes)):
        if axis != ONE:
            axes[len(axes) - 1 - at] = axis
    return Padded(call.as_it_is(), tuple(axes))


def _padded_transpose(call: Call) -> Padded:
    axes = list(call.first.axes)
    if axes:
        first, second = call.args[1:3]
        axes[first], axes[second] = axes[second], axes[first]
    return Padded(call.as_it_is(), tuple(axes))


def diagonal_scatter(_: Out, x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The tensor with a diagonal replaced."""
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    rows = np.arange(max(0, -offset), max(0, -offset) + source.shape[-1])
    filled = moved.at[..., rows, rows + offset].set(cast(source, x.dtype))
    return jnp.moveaxis(filled, (-2, -1), (dim1, dim2))


def _padded_repeat(call: Call) -> Padded:
    """Copies beside each other: one more factor of each axis."""
    times = call.args[1]
    own: list[Axis] = [*[ONE] * (len(times) - call.first.ndim), *call.first.axes]
    factors = [each.expr if isinstance(each, Size) else sympy.Integer(each) for each in times]
    axes = tuple(joined((factor, *axis)) for factor, axis in zip(factors, own, strict=True))
    return Padded(call.as_it_is(call.first, [bucket_number(each) for each in times]), axes)


def view_bits(out: Out, x: Array, *_: torch.dtype) -> Array:
    """The same bits as another dtype; a complex number is two floats, of which XLA itself has no bits."""
    if x.dtype == out.dtype:
        return x
    if is_complex(x.dtype):
        x = jnp.stack([lax.real(x), lax.imag(x)], x.ndim)
    x = lax.reshape(x, x.shape or (1,))
    if is_complex(out.dtype):
        parts = lax.reshape(x.view(np.dtype(f"float{4 * out.dtype.itemsize}")), (*out.shape, 2))
        return lax.complex(parts[..., 0], parts[..., 1])
    return lax.reshape(x.view(out.dtype), out.shape)


def _padded_view_dtype(call: Call) -> Any:
    """The last dim may shrink or grow, and is not padded then."""
    if call.value.element_size() != call.first.array.dtype.itemsize:
        require(call.first.axes[-1:], "the bits")
    return of_plain(call)


def _padded_pairs(call: Call) -> Padded:
    axes = call.first.axes
    return Padded(call.as_it_is(), axes[:-1] if call.value.is_complex() else (*axes, (sympy.Integer(2),)))


def _triangle(within: Callable[[Array, Array], Array]) -> Callable[..., Array]:

    def keep(_: Out, x: Array, diagonal: int | Array = 0) -> Array:
        # A diagonal that is computed of a padded size is an array of int64.
        dtype = np.int32 if isinstance(diagonal, int) else diagonal.dtype
        rows, columns = (lax.broadcasted_iota(dtype, x.shape, x.ndim - back) for back in (2, 1))
        return lax.select(within(columns, rows + diagonal), x, constant(0, x.dtype, x.shape))

    return keep


def unfold(out: Out, x: Array, dim: int, size: int, step: int) -> Array:
    """Windows along a dim, as a new last dim."""
    if not x.ndim:
        return lax.reshape(x, out.shape)
    axis = axis_of(dim, x.ndim)
    places = step * np.arange(out.shape[axis])[:, None] + np.arange(size)
    return jnp.moveaxis(jnp.take(x, places, axis=axis), axis + 1, -1)


def filled(out: Out, value: Any, **_: Any) -> Array:
    """A number, or what the run computes for one, everywhere."""
    if is_array(value):
        return jnp.broadcast_to(lax.reshape(cast(value, out.dtype), ()), out.shape)
    return constant(value, out.dtype, out.shape)


def arange(out: Out, start: Any, end: Any, step: Any = 1, **_: Any) -> Array:
    """From a start in steps; floats are computed in float64, as eager does."""
    work = FLOAT64 if is_float(out.dtype) else INT64
    count = cast(lax.iota(INT64, out.shape[0]), work)
    return cast(cast(start, work) + count * cast(step, work), out.dtype)


OPS: Final[dict[Any, Any]] = {
    overloads("view _unsafe_view reshape squeeze squeeze.dim squeeze.dims unsqueeze _reshape_copy"): (
        lambda out, x, *_, **__: lax.reshape(x, out.shape),
        padded_reshape,
    ),
    overloads("clone alias detach lift_fresh_copy contiguous resolve_conj resolve_neg positive"): (
        lambda _, x, *__, **___: x,
        elementwise,
    ),
    # Device and layout mean nothing here.
    aten._to_copy.default: (lambda out, x, **_: cast(x, out.dtype), elementwise),
    aten.copy.default: (
        lambda out, _, x, *__, **___: jnp.broadcast_to(cast(x, out.dtype), out.shape),
        elementwise,
    ),
    aten.real.default: (lambda _, x: jnp.real(x), elementwise),
    aten.imag.default: (lambda _, x: lax.imag(x), elementwise),
    (aten.conj_physical.default, aten._conj_physical.default): lambda _, x: jnp.conj(x),
    aten.expand.default: (lambda out, x, *_, **__: jnp.broadcast_to(x, out.shape), _padded_expand),
    aten.permute.default: (
        lambda _, x, dims: jnp.permute_dims(x, tuple(axis_of(dim, x.ndim) for dim in dims)),
        lambda call: Padded(call.as_it_is(), tuple(call.first.axes[dim] for dim in call.args[1])),
    ),
    aten.transpose.int: (lambda _, x, *dims: jnp.swapaxes(x, *dims) if x.ndim else x, _padded_transpose),
    aten.t.default: (lambda _, x: x.T, lambda call: Padded(call.as_it_is(), call.first.axes[::-1])),
    aten.repeat.default: (lambda _, x, times: jnp.tile(x, times), _padded_repeat),
    aten.view.dtype: (view_bits, _padded_view_dtype),
    aten.view_as_real.default: (view_bits, _padded_pairs),
    aten.view_as_complex.default: (view_bits, _padded_pairs),
    # A diagonal of a matrix that is larger than it need be begins with that of the smaller.
    aten.diagonal.default: (lambda _, x, *where: jnp.diagonal(x, *where), of_plain),
    aten.diagonal_scatter.default: (
        diagonal_scatter,
        lambda call: Padded(call.as_it_is(*map(call.arena.plain, call.args[:2])), call.first.axes),
    ),
    aten.tril.default: (_triangle(lax.le), of_plain),
    aten.triu.default: (_triangle(lax.ge), of_plain),
    aten.unfold.default: (unfold, of_plain),
    (aten.full.default, aten.full_like.default, aten.fill.Scalar, aten.fill.Tensor): (
        lambda out, _, value, **__: filled(out, value),
        of_plain,
    ),
    aten.scalar_tensor.default: (filled, of_plain),
    aten.arange.start_step: (arange, of_plain),
    (aten.eye.default, aten.eye.m): (
        lambda out, *_, **__: jnp.eye(out.shape[0], out.shape[1], dtype=out.dtype),
        of_plain,
    ),
    (aten.ones.default, aten.ones_like.default): (lambda out, *_, **__: filled(out, 1), of_plain),
    # What `empty` leaves open is 0: a program must give the same each time.
    overloads("zeros zeros_like empty.memory_format empty_like empty_strided new_zeros"): (
        lambda out, *_, **__: filled(out, 0),
        of_plain,
    ),
}
