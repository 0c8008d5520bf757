"""Boolean-mask indexing in terms of `nonzero`, `index` and `where`.

`table()` gives decompositions (op -> callable) that join a backend's own. Reading `x[mask]` becomes an
`index_select` of the true positions, because the number of elements depends on the data, and compilers take
no other such op than `nonzero`. Writing `x[mask] = v` becomes `where(mask, v, x)`, with `v` spread over the
mask where it holds one element per true one. For a call without masks a decomposition gives NotImplemented,
which leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import static

_ATEN: Final = torch.ops.aten
_MASKS: Final = (torch.bool, torch.uint8)

Indices = Sequence[Tensor | None]


def table() -> dict[ops.OpOverload, Callable[..., Any]]:
    """A decomposition for each op that may be given a mask."""
    return {
        _ATEN.index.Tensor: _index,
        _ATEN.index_put.default: _index_put,
        _ATEN.masked_select.default: _masked_select,
    }


def _index(x: Tensor, indices: Indices) -> Any:
    if not _has_mask(indices):
        return NotImplemented
    if all(index is not None and index.dim() == 0 for index in indices):
        # A lone 0-d mask takes all of x or nothing of it, along a new first dim.
        return _index(x.unsqueeze(0), [index.reshape(1) for index in indices if index is not None])
    if (only := _only_mask(indices)) is not None:
        dim, mask = only
        rows = x.reshape((*x.shape[:dim], mask.numel(), *x.shape[dim + mask.dim() :]))
        return torch.index_select(rows, dim, _true_positions(mask))
    read: Tensor = _ATEN.index.Tensor(x, _positions(indices))
    return read


def _index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Any:
    if not _has_mask(indices) or values.dtype is not x.dtype:
        return NotImplemented
    if (only := _only_mask(indices)) is not None:
        dim, mask = only
        after = x.dim() - dim - mask.dim()
        spread = _spread(values, mask.to(torch.bool), after)
        aligned = mask.to(torch.bool).reshape((*mask.shape, *(1,) * after))
        return torch.where(aligned, x + spread if accumulate else spread, x)
    written: Tensor = _ATEN.index_put.default(x, _positions(indices), values, accumulate)
    return written


def _only_mask(indices: Indices) -> tuple[int, Tensor] | None:
    """A mask that is the only index, and the first dim that it covers."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    return given[0] if len(given) == 1 else None


def _spread(values: Tensor, mask: Tensor, after: int) -> Tensor:
    """The written values over all elements of the mask, in front of `after` more dims."""
    sizes = values.shape
    if len(sizes) <= after:
        return values
    # The dim before the last `after` ones counts the true elements.
    at = len(sizes) - after - 1
    lead, tail = sizes[:at], sizes[at + 1 :]
    count: int | torch.SymInt = sizes[at]
    if isinstance(count, int) and count == 1:
        return values.reshape((*lead, *((1,) * mask.dim() if lead else ()), *tail))
    order = torch.cumsum(mask.reshape(-1), 0)
    ops.ASSERT_TENSOR(order[-1:].sum() == count, "as many values as true elements of a mask are written")
    if not isinstance(count, int):
        # There may be none, and the elements that are not written read one all the same.
        values = torch.cat([values, values.new_zeros((*lead, 1, *tail))], at)
    taken = torch.index_select(values, at, torch.clamp(order - 1, 0, values.shape[at] - 1))
    return taken.reshape((*lead, *mask.shape, *tail))


def _masked_select(x: Tensor, mask: Tensor) -> Any:
    whole = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]
    if all(map(static, whole)) and math.prod(whole) > max(x.numel(), 1):
        # torch.export asserts that no more are selected than x has before it is broadcast.
        return NotImplemented
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    mask = mask.reshape(-1)
    if static(mask.shape[0]) and mask.shape[0] == 1:
        # torch takes a selection for one of up to two elements, and its replacement must not be less.
        mask = torch.cat([mask, torch.zeros_like(mask)])
    return torch.index_select(x.reshape(-1), 0, _true_positions(mask))


def _has_mask(indices: Indices) -> bool:
    masks = [index for index in indices if index is not None and index.dtype in _MASKS]
    if not masks:
        return False
    # A 0-d mask beside other indices has no such form; it stays, and is reported as unsupported.
    return len(indices) == 1 or all(mask.dim() > 0 for mask in masks)


def _positions(indices: Indices) -> list[Tensor | None]:
    """The same indices with each mask replaced by one index per dim of it."""
    found: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            rows = torch.nonzero(index)
            found += [rows.select(1, dim) for dim in range(index.dim())]
        else:
            found.append(index)
    return found


def _true_positions(mask: Tensor) -> Tensor:
    """The flat positions of the true elements."""
    return torch.nonzero(mask.reshape(-1)).select(1, 0)
