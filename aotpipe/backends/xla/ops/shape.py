"""Ops that move elements and compute nothing: views, joins, parts, padding, casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from aotpipe.backends.xla.values import (
    BOOL,
    INT64,
    Array,
    Out,
    Scalar,
    axis_of,
    broadcast,
    cast,
    constant,
    dtype_of,
    is_complex,
)

aten = torch.ops.aten


def reshape(out: Out, x: Array, *_: Any, **__: Any) -> Array:
    """Any op that only gives the elements another shape."""
    return lax.reshape(x, out.shape)


def identity(_: Out, x: Array, *__: Any, **___: Any) -> Array:
    """Any op that only copies or aliases."""
    return x


def to_copy(out: Out, x: Array, **_: Any) -> Array:
    """A cast; device and layout mean nothing here."""
    return cast(x, out.dtype)


def copy(out: Out, _: Array, source: Array, non_blocking: bool = False) -> Array:
    """The source as the target would hold it."""
    return broadcast(cast(source, out.dtype), out.shape)


def expand(out: Out, x: Array, *_: Any, **__: Any) -> Array:
    """Broadcast."""
    return broadcast(x, out.shape)


def permute(_: Out, x: Array, dims: Sequence[int]) -> Array:
    """Dims in another order."""
    return lax.transpose(x, [dim % x.ndim for dim in dims])


def transpose(_: Out, x: Array, first: int, second: int) -> Array:
    """Two dims exchanged."""
    return jnp.swapaxes(x, first, second) if x.ndim else x


def matrix_transpose(_: Out, x: Array) -> Array:
    """A matrix's two dims exchanged."""
    return lax.transpose(x, tuple(reversed(range(x.ndim))))


def cat(out: Out, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Joined along a dim; an empty vector joins anything."""
    kept = [x for x in tensors if x.ndim != 1 or x.shape[0]] or [tensors[0]]
    return lax.concatenate([cast(x, out.dtype) for x in kept], axis_of(dim, kept[0].ndim))


def stack(out: Out, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Joined along a new dim."""
    axis = dim % len(out.shape)
    return lax.concatenate([lax.expand_dims(cast(x, out.dtype), (axis,)) for x in tensors], axis)


def split_with_sizes(_: Any, x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    """Parts of given sizes."""
    axis, start, parts = axis_of(dim, x.ndim), 0, []
    for size in sizes:
        parts.append(lax.slice_in_dim(x, start, start + size, axis=axis))
        start += size
    return parts


def split(_: Any, x: Array, size: int, dim: int = 0) -> list[Array]:
    """Parts of one size, the last may be smaller."""
    whole = x.shape[axis_of(dim, x.ndim)]
    sizes = [min(size, whole - start) for start in range(0, whole, size)] if size else [0]
    return split_with_sizes(_, x, sizes or [0], dim)


def unbind(_: Any, x: Array, dim: int = 0) -> list[Array]:
    """Each slice of a dim."""
    axis = axis_of(dim, x.ndim)
    return [lax.index_in_dim(x, place, axis, keepdims=False) for place in range(x.shape[axis])]


def select(out: Out, x: Array, dim: int, index: Any) -> Array:
    """One slice of a dim; an index that the run computes is within bounds."""
    axis = axis_of(dim, x.ndim)
    if isinstance(index, int):
        return lax.index_in_dim(x, index, axis, keepdims=False)
    place = jnp.where(index < 0, index + x.shape[axis], index)
    return lax.dynamic_index_in_dim(x, place, axis, keepdims=False)


def bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """A slice's bounds, clamped as torch does it."""
    first = 0 if start is None else start + size if start < 0 else start
    last = size if end is None else end + size if end < 0 else end
    first = min(max(first, 0), size)
    return first, min(max(last, first), size)


def slice_(out: Out, x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    """A slice of one dim; its size is known, its start may be computed."""
    axis = axis_of(dim, x.ndim)
    if all(place is None or isinstance(place, int) for place in (start, end)):
        first, last = bounds(start, end, x.shape[axis])
        return lax.slice_in_dim(x, first, last, step, axis)
    if start is None or isinstance(start, int):
        start = bounds(start, None, x.shape[axis])[0]
    size = out.shape[axis]
    places = lax.add(
        lax.broadcast(jnp.asarray(start, INT64), (size,)),
        lax.mul(_steps(size), constant(step, INT64, (size,))),
    )
    return jnp.take(x, places, axis=axis, mode="clip")


def _steps(size: int) -> Array:
    return lax.iota(INT64, size)


def slice_scatter(
    _: Out,
    x: Array,
    source: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    """The tensor with a slice replaced."""
    axis = axis_of(dim, x.ndim)
    first, last = bounds(start, end, x.shape[axis])
    index = (slice(None),) * axis + (slice(first, last, step),)
    shape = tuple(len(range(first, last, step)) if at == axis else size for at, size in enumerate(x.shape))
    return x.at[index].set(broadcast(cast(source, x.dtype), shape))


def select_scatter(_: Out, x: Array, source: Array, dim: int, index: int) -> Array:
    """The tensor with one slice of a dim replaced."""
    axis = axis_of(dim, x.ndim)
    return x.at[(slice(None),) * axis + (index,)].set(cast(source, x.dtype))


def diagonal(_: Out, x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A diagonal, as the last dim."""
    return jnp.diagonal(x, offset, dim1, dim2)


def diagonal_scatter(_: Out, x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The tensor with a diagonal replaced."""
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    rows = np.arange(max(0, -offset), max(0, -offset) + source.shape[-1])
    filled = moved.at[..., rows, rows + offset].set(cast(source, x.dtype))
    return jnp.moveaxis(filled, (-2, -1), (dim1, dim2))


def flip(_: Out, x: Array, dims: Sequence[int]) -> Array:
    """Backwards along dims."""
    return lax.rev(x, sorted({dim % x.ndim for dim in dims})) if x.ndim else x


def roll(_: Out, x: Array, shifts: Any, dims: Any = ()) -> Array:
    """Round a dim."""
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        return jnp.roll(x.reshape(-1), shifts[0]).reshape(x.shape)
    return jnp.roll(x, shifts, dims)


def repeat(out: Out, x: Array, repeats: Sequence[int]) -> Array:
    """Copies beside each other."""
    shape = (1,) * (len(repeats) - x.ndim) + tuple(x.shape)
    pairs = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    spread = lax.broadcast_in_dim(x, pairs, [2 * axis + 1 for axis in range(len(shape) - x.ndim, len(shape))])
    return lax.reshape(spread, out.shape)


def constant_pad(_: Out, x: Array, pad: Sequence[int], value: Scalar = 0) -> Array:
    """More on the sides, or less where negative; the last dim's pair comes first."""
    pairs = [(0, 0, 0)] * x.ndim
    for place in range(len(pad) // 2):
        pairs[x.ndim - 1 - place] = (int(pad[2 * place]), int(pad[2 * place + 1]), 0)
    return lax.pad(x, constant(value, x.dtype), pairs)


def _edge_pad(mode: str) -> Callable[..., Array]:
    def lower(_: Out, x: Array, pad: Sequence[int]) -> Array:
        for place in range(len(pad) // 2):
            before, after = int(pad[2 * place]), int(pad[2 * place + 1])
            axis, size = x.ndim - 1 - place, x.shape[x.ndim - 1 - place]
            steps = np.arange(-before, size + after)
            if mode == "reflect":
                steps = np.abs(steps)
                steps = (size - 1) - np.abs(size - 1 - steps)
            x = jnp.take(x, np.clip(steps, 0, size - 1), axis=axis)
        return x

    return lower


def view_dtype(out: Out, x: Array, dtype: torch.dtype) -> Array:
    """The same bits as another dtype."""
    wanted = dtype_of(dtype)
    if is_complex(x.dtype) or is_complex(wanted) or BOOL in (x.dtype, wanted):
        return lax.reshape(_bits(x, wanted), out.shape)
    if wanted.itemsize > x.dtype.itemsize:
        share = wanted.itemsize // x.dtype.itemsize
        x = lax.reshape(x, (*x.shape[:-1], x.shape[-1] // share, share))
    return lax.reshape(lax.bitcast_convert_type(x, wanted), out.shape)


def _bits(x: Array, wanted: Any) -> Array:
    """As `view_dtype` for the dtypes that XLA has no bits of."""
    if x.dtype == wanted:
        return x
    if x.dtype == BOOL:
        return lax.bitcast_convert_type(cast(x, np.dtype(np.uint8)), wanted) if wanted != BOOL else x
    if wanted == BOOL:
        return cast(lax.bitcast_convert_type(x, np.uint8), wanted)
    if is_complex(x.dtype):
        return lax.bitcast_convert_type(as_real(None, x), wanted)
    half = np.dtype(f"float{4 * wanted.itemsize}")
    parts = lax.bitcast_convert_type(x, half) if x.dtype != half else x
    parts = lax.reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2))
    return as_complex(None, parts)


def as_real(_: Any, x: Array) -> Array:
    """A complex as pairs."""
    return lax.concatenate([lax.expand_dims(part, (x.ndim,)) for part in (lax.real(x), lax.imag(x))], x.ndim)


def as_complex(_: Any, x: Array) -> Array:
    """Pairs as a complex."""
    return lax.complex(x[..., 0], x[..., 1])


def as_strided(
    out: Out, x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    """The elements at places of a dense tensor."""
    places = np.full(out.shape, storage_offset or 0, np.int64)
    for axis, step in enumerate(stride):
        shape = [-1 if at == axis else 1 for at in range(len(out.shape))]
        places = places + step * np.arange(out.shape[axis]).reshape(shape)
    return jnp.take(lax.reshape(x, (x.size,)), places, axis=0)


def triangle(*, lower: bool) -> Callable[..., Array]:
    """The part of a matrix on one side of a diagonal."""

    def keep(_: Out, x: Array, diagonal: int = 0) -> Array:
        rows = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 2)
        columns = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
        edge = lax.add(rows, constant(diagonal, rows.dtype, x.shape))
        kept = lax.le(columns, edge) if lower else lax.ge(columns, edge)
        return lax.select(kept, x, constant(0, x.dtype, x.shape))

    return keep


def unfold(out: Out, x: Array, dim: int, size: int, step: int) -> Array:
    """Windows along a dim, as a new last dim."""
    if not x.ndim:
        return lax.reshape(x, out.shape)
    axis = axis_of(dim, x.ndim)
    places = step * np.arange(out.shape[axis])[:, None] + np.arange(size)
    return jnp.moveaxis(jnp.take(x, places, axis=axis), axis + 1, -1)


def real(_: Out, x: Array) -> Array:
    """The real part."""
    return lax.real(x) if is_complex(x.dtype) else x


def conjugate(_: Out, x: Array) -> Array:
    """The conjugate; of a real itself."""
    return lax.conj(x) if is_complex(x.dtype) else x


OPS: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys(
        (
            aten.view.default,
            aten._unsafe_view.default,
            aten.reshape.default,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.unsqueeze.default,
            aten._reshape_copy.default,
        ),
        reshape,
    ),
    **dict.fromkeys(
        (
            aten.clone.default,
            aten.alias.default,
            aten.detach.default,
            aten.lift_fresh_copy.default,
            aten.contiguous.default,
            aten.resolve_conj.default,
            aten.resolve_neg.default,
            aten.positive.default,
        ),
        identity,
    ),
    aten._to_copy.default: to_copy,
    aten.copy.default: copy,
    aten.expand.default: expand,
    aten.permute.default: permute,
    aten.transpose.int: transpose,
    aten.t.default: matrix_transpose,
    aten.cat.default: cat,
    aten.stack.default: stack,
    aten.split_with_sizes.default: split_with_sizes,
    aten.split.Tensor: split,
    aten.unbind.int: unbind,
    aten.select.int: select,
    aten.slice.Tensor: slice_,
    aten.slice_scatter.default: slice_scatter,
    aten.select_scatter.default: select_scatter,
    aten.diagonal.default: diagonal,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.flip.default: flip,
    aten.roll.default: roll,
    aten.repeat.default: repeat,
    aten.constant_pad_nd.default: constant_pad,
    aten.reflection_pad1d.default: _edge_pad("reflect"),
    aten.reflection_pad2d.default: _edge_pad("reflect"),
    aten.reflection_pad3d.default: _edge_pad("reflect"),
    aten.replication_pad1d.default: _edge_pad("edge"),
    aten.replication_pad2d.default: _edge_pad("edge"),
    aten.replication_pad3d.default: _edge_pad("edge"),
    aten.view.dtype: view_dtype,
    aten.view_as_real.default: as_real,
    aten.view_as_complex.default: as_complex,
    aten.as_strided.default: as_strided,
    aten.tril.default: triangle(lower=True),
    aten.triu.default: triangle(lower=False),
    aten.unfold.default: unfold,
    aten.real.default: real,
    aten.imag.default: lambda _, x: lax.imag(x),
    aten.conj_physical.default: conjugate,
    aten._conj_physical.default: conjugate,
}
