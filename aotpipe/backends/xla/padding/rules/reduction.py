"""Reductions: what does not count is replaced by what changes nothing, and counts are true ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import torch
from jax import lax

from aotpipe.backends.xla.ops.reduction import axes_of_listed, edge
from aotpipe.backends.xla.padding.layout import ONE, Axis, Padded, padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, array_of
from aotpipe.backends.xla.values import BOOL, Array, axes_of, axis_of, cast, is_complex, wide

aten = torch.ops.aten


def kept(value: Padded, axes: Sequence[int], rank: int) -> tuple[Axis, ...]:
    """The axes that a reduction leaves; those that it reduces are of size 1 or gone."""
    if rank == value.ndim:
        return tuple(ONE if axis in axes else own for axis, own in enumerate(value.axes))
    return tuple(own for axis, own in enumerate(value.axes) if axis not in axes)


def filled(fill: Callable[[Any], Any]) -> Callable[[Call, Lowering], Padded]:
    """A reduction that a number does not change: by dtype, 0 of a sum, 1 of a product."""

    def reduced(call: Call, lower: Lowering) -> Padded:
        x = call.first
        axes = axes_of(call.get(1, "dim"), x.ndim)
        array = call.arena.filled(x, axes, fill(x.array.dtype))
        found = call.as_it_is(lower, [Padded(array, x.axes), *call.args[1:]])
        return Padded(found, kept(x, axes, call.value.dim()))

    return reduced


def truth(*, every: bool) -> Callable[[Call, Lowering], Padded]:
    """All or any."""

    def reduced(call: Call, lower: Lowering) -> Padded:
        x = call.first
        dim = call.get(1, "dim")
        axes = tuple(range(x.ndim)) if dim is None else axes_of_listed(dim, x.ndim)
        flags = call.arena.filled(Padded(cast(x.array, BOOL), x.axes), axes, every)
        found = call.as_it_is(lower, [Padded(flags, x.axes), *call.args[1:]])
        return Padded(found, kept(x, axes, call.value.dim()))

    return reduced


def count(call: Call, axes: Sequence[Axis], dtype: Any) -> Array:
    """How many elements count, as a number of a dtype."""
    found = cast(1, dtype)
    for axis in axes:
        found = lax.mul(found, cast(array_of(call.arena.true(axis)), dtype))
    return found


def _total(call: Call, x: Padded, axes: Sequence[int], dtype: Any) -> Array:
    """The sum, with the axes that it is over as dims of size 1."""
    array = call.arena.filled(Padded(cast(x.array, dtype), x.axes), axes, 0)
    added = lax.reduce(array, cast(0, dtype), lax.add, tuple(axes))
    return lax.expand_dims(added, tuple(axes))


def mean(call: Call, _: Lowering) -> Padded:
    """The sum by the true count."""
    x, dtype = call.first, wide(call.out.dtype)
    axes = axes_of(call.get(1, "dim"), x.ndim)
    added = _total(call, x, axes, dtype)
    number = count(call, [x.axes[axis] for axis in axes], dtype)
    average = lax.div(added, jnp.broadcast_to(number, added.shape))
    return Padded(lax.reshape(average, call.out.shape), kept(x, axes, call.value.dim()))


def moments(*, root: bool, average: bool) -> Callable[[Call, Lowering], Any]:
    """The variance, or its root, and where asked for the mean."""

    def reduced(call: Call, _: Lowering) -> Any:
        x = call.first
        outs = call.out if average else (call.out,)
        dtype = wide(x.array.dtype) if is_complex(x.array.dtype) else wide(outs[-1].dtype)
        axes = axes_of(call.get(1, "dim"), x.ndim)
        correction = call.kwargs.get("correction")
        real = wide(outs[0].dtype)
        number = count(call, [x.axes[axis] for axis in axes], dtype)
        middle = lax.div(_total(call, x, axes, dtype), number)
        off = lax.sub(cast(x.array, dtype), jnp.broadcast_to(middle, x.array.shape))
        square = lax.real(lax.mul(off, lax.conj(off))) if is_complex(dtype) else lax.mul(off, off)
        divisor = lax.sub(
            count(call, [x.axes[axis] for axis in axes], real),
            cast(1 if correction is None else correction, real),
        )
        found = lax.div(_total(call, Padded(square, x.axes), axes, real), lax.max(divisor, cast(0, real)))
        found = lax.sqrt(found) if root else found
        values = [found, middle] if average else [found]
        results = [
            Padded(lax.reshape(value, out.shape), kept(x, axes, len(out.shape)))
            for value, out in zip(values, outs, strict=True)
        ]
        return results if average else results[0]

    return reduced


def extreme_of_axis(*, largest: bool) -> Callable[[Call, Lowering], Any]:
    """The extreme along one axis and where it is, or where it is alone."""

    def reduced(call: Call, lower: Lowering) -> Any:
        x = call.first
        dim = call.get(1, "dim")
        if dim is None:
            x = call.arena.reshape(x, [x.size])
        axis = axis_of(dim or 0, x.ndim)
        x = call.arena.plain(x, (axis,))
        array = call.arena.filled(x, (axis,), edge(x.array.dtype, largest=not largest))
        found = call.as_it_is(lower, [Padded(array, x.axes), 0 if dim is None else dim, *call.args[2:]])
        ranks = [each.dim() for each in call.value] if isinstance(found, tuple) else [call.value.dim()]
        if dim is None:
            return found
        results = [
            Padded(each, kept(x, (axis,), rank))
            for each, rank in zip(found if isinstance(found, tuple) else (found,), ranks, strict=True)
        ]
        return results if isinstance(found, tuple) else results[0]

    return reduced


def softmax(call: Call, lower: Lowering) -> Padded:
    """Logits that do not count are -inf."""
    x = call.first
    if not x.ndim:
        return Padded(call.as_it_is(lower), x.axes)
    axis = axis_of(call.args[1], x.ndim)
    if not padded(x.axes[axis]):
        return Padded(call.as_it_is(lower), x.axes)
    array = call.arena.filled(x, (axis,), edge(x.array.dtype, largest=False))
    return Padded(call.as_it_is(lower, [Padded(array, x.axes), *call.args[1:]]), x.axes)


def running(call: Call, lower: Lowering) -> Any:
    """From the front on, what does not count comes last."""
    x = call.first
    if x.ndim:
        x = call.arena.plain(x, (axis_of(call.args[1], x.ndim),))
    found = call.as_it_is(lower, [x, *call.args[1:]])
    if isinstance(found, tuple):
        return [Padded(each, x.axes) for each in found]
    return Padded(found, x.axes)


_SUM: Final = filled(lambda _: 0)
_PRODUCT: Final = filled(lambda _: 1)
_LARGEST: Final = filled(lambda dtype: edge(dtype, largest=False))
_SMALLEST: Final = filled(lambda dtype: edge(dtype, largest=True))

RULES: Final[dict[Any, Any]] = {
    aten.sum.default: _SUM,
    aten.sum.dim_IntList: _SUM,
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.prod.default: _PRODUCT,
    aten.prod.dim_int: _PRODUCT,
    aten.amax.default: _LARGEST,
    aten.max.default: _LARGEST,
    aten.amin.default: _SMALLEST,
    aten.min.default: _SMALLEST,
    aten.max.dim: extreme_of_axis(largest=True),
    aten.argmax.default: extreme_of_axis(largest=True),
    aten.min.dim: extreme_of_axis(largest=False),
    aten.argmin.default: extreme_of_axis(largest=False),
    aten.any.default: truth(every=False),
    aten.any.dim: truth(every=False),
    aten.any.dims: truth(every=False),
    aten.all.default: truth(every=True),
    aten.all.dim: truth(every=True),
    aten.all.dims: truth(every=True),
    aten.var.correction: moments(root=False, average=False),
    aten.std.correction: moments(root=True, average=False),
    aten.var_mean.correction: moments(root=False, average=True),
    aten.std_mean.correction: moments(root=True, average=True),
    aten._softmax.default: softmax,
    aten._log_softmax.default: softmax,
    aten.cumsum.default: running,
    aten.cumprod.default: running,
    aten.cummax.default: running,
    aten.cummin.default: running,
    aten.logcumsumexp.default: running,
}
