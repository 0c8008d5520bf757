"""Higher-order ops as jax's structured control flow.

    cond(pred, true, false, operands)        lax.cond: only the taken branch runs
    while_loop(test, body, carries, extra)   lax.while_loop: zero trips give `carries`
    map_impl(f, xs, extra)                   lax.scan over dim 0
    scan(f, init, xs, extra)                 lax.scan over dim 0
    associative_scan(f, xs, extra)           lax.scan over dim 0 from the second row on

A lowering takes `run(graph, values)`, which evaluates a subgraph, and the op's own arguments. What the
operands do not name a subgraph does not read, so that closures are operands like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from jax import lax
from torch.fx import GraphModule

from aotpipe.backends.xla.values import BOOL, FLOAT64, INT32, INT64, Array, cast, is_array

_HOP: Final = torch.ops.higher_order
Run = Callable[[GraphModule, Sequence[Any]], list[Any]]
Values = Sequence[Any]


def _array(value: Any) -> Array:
    """A carry as an array; a number in the dtype that torch gives it."""
    if is_array(value):
        return value
    if isinstance(value, bool):
        return cast(value, BOOL)
    return cast(value, INT64 if isinstance(value, int) else FLOAT64)


def _flag(value: Any) -> Array:
    """A condition as a 0-d bool."""
    return lax.reshape(cast(value, BOOL), ())


def _cond(run: Run, taken: Any, yes: GraphModule, no: GraphModule, operands: Values = ()) -> list[Any]:
    if isinstance(taken, bool):
        return run(yes if taken else no, operands)
    branches = [
        lambda *values, graph=graph: [_array(one) for one in run(graph, values)] for graph in (yes, no)
    ]
    arrays = [_array(operand) for operand in operands]
    return list(lax.cond(_flag(taken), branches[0], branches[1], *arrays))


def _while_loop(
    run: Run, test: GraphModule, body: GraphModule, carries: Values, extra: Values = ()
) -> list[Any]:
    starts = [_array(carry) for carry in carries]

    def again(state: Values) -> Array:
        return _flag(run(test, [*state, *extra])[0])

    def trip(state: Values) -> list[Array]:
        outputs = run(body, [*state, *extra])
        return [cast(new, old.dtype) for new, old in zip(outputs, state, strict=True)]

    return list(lax.while_loop(again, trip, starts))


def _scan(
    run: Run, body: GraphModule, carries: Values, xs: Values, extra: Values = (), *, length: Any = None
) -> list[Any]:
    """`length` says over how many rows, where what lies behind them is padding."""
    count = len(carries)
    active = None if length is None else lax.iota(INT32, xs[0].shape[0]) < length

    def trip(state: Values, slices: tuple[Array | None, Values]) -> tuple[list[Array], list[Array]]:
        counts, rows = slices
        outputs = [_array(one) for one in run(body, [*state, *rows, *extra])]
        kept = [cast(new, old.dtype) for new, old in zip(outputs[:count], state, strict=True)]
        if counts is not None:
            kept = [lax.select(counts, new, old) for new, old in zip(kept, state, strict=True)]
        return kept, outputs[count:]

    last, stacked = lax.scan(trip, [_array(carry) for carry in carries], (active, list(xs)))
    return [*last, *stacked]


def _associative_scan(run: Run, body: GraphModule, xs: Values, extra: Values = ()) -> list[Any]:
    def trip(state: Values, rows: Values) -> tuple[list[Array], list[Array]]:
        outputs = run(body, [*state, *rows, *extra])
        kept = [cast(new, old.dtype) for new, old in zip(outputs, state, strict=True)]
        return kept, kept

    if not xs[0].shape[0]:
        return list(xs)
    first = [lax.index_in_dim(x, 0, keepdims=False) for x in xs]
    _, rest = lax.scan(trip, first, [lax.slice_in_dim(x, 1, None) for x in xs])
    return [
        lax.concatenate([lax.expand_dims(row, (0,)), more], 0) for row, more in zip(first, rest, strict=True)
    ]


LOWERINGS: Final[Mapping[Any, Callable[..., list[Any]]]] = {
    _HOP.cond: _cond,
    _HOP.while_loop: _while_loop,
    # A scan that carries nothing.
    _HOP.map_impl: lambda run, body, xs, extra=(): _scan(run, body, (), xs, extra),
    _HOP.scan: _scan,
    _HOP.associative_scan: _associative_scan,
}
