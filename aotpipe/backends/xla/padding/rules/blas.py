"""Products of matrices: what does not count along the dims that are summed over is 0 on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from aotpipe.backends.xla.ops import blas
from aotpipe.backends.xla.padding.layout import Padded
from aotpipe.backends.xla.padding.rules.call import Call, Lowering, bare

aten = torch.ops.aten


def _contracted(call: Call, left: Padded, right: Padded, axes: tuple[int, int]) -> tuple[Padded, Padded]:
    """Both sides with equal axes to sum over, 0 where these do not count."""
    arena = call.arena
    if left.axes[axes[0]] != right.axes[axes[1]]:
        left, right = arena.plain(left, axes[:1]), arena.plain(right, axes[1:])
    return (
        Padded(arena.filled(left, axes[:1], 0), left.axes),
        Padded(arena.filled(right, axes[1:], 0), right.axes),
    )


def _product(rank: int) -> Callable[[Call, Lowering], Padded]:
    """Of matrices, `rank` 2, or of batches of them, 3."""

    def lowered(call: Call, lower: Lowering) -> Padded:
        left, right = _of_matrices(call, call.args[0], call.args[1], rank)
        axes = (*left.axes[:-1], right.axes[-1])
        return Padded(call.as_it_is(lower, [left, right, *call.args[2:]]), axes)

    return lowered


def _of_matrices(call: Call, left: Padded, right: Padded, rank: int) -> tuple[Padded, Padded]:
    if rank == 3 and left.axes[0] != right.axes[0]:
        left, right = call.arena.plain(left, (0,)), call.arena.plain(right, (0,))
    return _contracted(call, left, right, (rank - 1, rank - 2))


def _added(rank: int) -> Callable[[Call, Lowering], Padded]:
    """A product and something that is broadcast to it."""

    def lowered(call: Call, _: Lowering) -> Padded:
        left, right = _of_matrices(call, call.args[1], call.args[2], rank)
        product = Padded(blas.matmul(call.out, left.array, right.array), (*left.axes[:-1], right.axes[-1]))
        (x, product), axes = call.arena.aligned([call.first, product], rank)
        beta, alpha = (bare(call.kwargs.get(name, 1)) for name in ("beta", "alpha"))
        return Padded(blas.added(call.out, x.array, product.array, beta, alpha), axes)

    return lowered


def _vector(call: Call, lower: Lowering) -> Padded:
    """A matrix or a vector by a vector."""
    left, right = _contracted(call, call.args[0], call.args[1], (call.first.ndim - 1, 0))
    return Padded(call.as_it_is(lower, [left, right]), left.axes[:-1])


def _added_vector(call: Call, lower: Lowering) -> Padded:
    left, right = _contracted(call, call.args[1], call.args[2], (1, 0))
    x, left = call.arena.plain(call.first), call.arena.plain(left, (0,))
    return Padded(call.as_it_is(lower, [x, left, right, *call.args[3:]]), left.axes[:-1])


RULES: Final[dict[Any, Any]] = {
    aten.mm.default: _product(2),
    aten._int_mm.default: _product(2),
    aten.bmm.default: _product(3),
    aten.mv.default: _vector,
    aten.dot.default: _vector,
    aten.addmm.default: _added(2),
    aten.baddbmm.default: _added(3),
    aten.addmv.default: _added_vector,
}
