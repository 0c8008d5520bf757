"""Which integer inputs index an embedding directly, and the range that its rows give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

_aten = torch.ops.aten

# These hand every value on unchanged, so that a bound on the result is one on the input.
_KEEPS_VALUES: Final = frozenset(
    {
        _aten.alias.default,
        _aten.clone.default,
        _aten.contiguous.default,
        _aten.detach.default,
        _aten.detach_.default,
        _aten.expand.default,
        _aten.flatten.using_ints,
        _aten.lift_fresh_copy.default,
        _aten.permute.default,
        _aten.reshape.default,
        _aten.squeeze.default,
        _aten.squeeze.dim,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    }
)


def index_range(node: torch.fx.Node) -> tuple[int, int] | None:
    """The rows that an input may name, when all of it indexes an embedding on every call; else None."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64):
        return None
    rows = list(_embedding_rows(node))
    return (0, min(rows) - 1) if rows and min(rows) > 0 else None


def _embedding_rows(node: torch.fx.Node) -> Iterator[int]:
    for user in node.users:
        if user.target is _aten.embedding.default and user.args[1] is node:
            weight = user.args[0]
            rows = weight.meta["val"].shape[0] if isinstance(weight, torch.fx.Node) else None
            if isinstance(rows, int):
                yield rows
        elif user.target in _KEEPS_VALUES and user.args[0] is node:
            yield from _embedding_rows(user)
