"""Ops that compute each element from those at its place: padding stays where it is."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx

from aotpipe.backends.xla.padding.layout import Padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, require

aten = torch.ops.aten


def elementwise(call: Call, lower: Lowering) -> Any:
    """Operands aligned, then as it is."""
    operands: list[Padded] = []

    def collect(each: Any) -> Any:
        if isinstance(each, Padded):
            operands.append(each)
        return each

    both: Any = (tuple(call.args), dict(call.kwargs))
    fx.node.map_aggregate(both, collect)
    aligned, axes = call.arena.aligned(operands, call.value.dim())
    left = iter(aligned)

    def replaced(each: Any) -> Any:
        return next(left) if isinstance(each, Padded) else each

    args, kwargs = fx.node.map_aggregate(both, replaced)
    return Padded(call.as_it_is(lower, args, **kwargs), axes)


def transformed(call: Call, lower: Lowering) -> Padded:
    """A Fourier transform along dims that are not padded; each of the others is many of them."""
    dims = [dim % call.first.ndim for dim in call.args[1]]
    x = call.arena.plain(call.first)
    require(call, *(x.axes[dim] for dim in dims), what="the Fourier transform")
    return Padded(call.as_it_is(lower, [x, *call.args[1:]]), call.arena.axes(call.value))


RULES: Final[dict[Any, Any]] = {
    **dict.fromkeys((aten._fft_c2c.default, aten._fft_r2c.default, aten._fft_c2r.default), transformed),
    **dict.fromkeys(
        (
            aten._to_copy.default,
            aten.clone.default,
            aten.copy.default,
            aten.alias.default,
            aten.detach.default,
            aten.lift_fresh_copy.default,
            aten.contiguous.default,
            aten.resolve_conj.default,
            aten.resolve_neg.default,
            aten.positive.default,
            aten.real.default,
            aten.imag.default,
            aten.conj_physical.default,
            aten._conj_physical.default,
            aten.complex.default,
            aten.where.self,
        ),
        elementwise,
    ),
}
