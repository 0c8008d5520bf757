"""Boolean-mask indexing in terms of `nonzero`, `index` and `where`.

`table()` gives decompositions (op -> callable) that join a backend's own. Reading `x[mask]` becomes
`x[nonzero(mask)]`, because the number of elements depends on the data and compilers take only `nonzero` of
such ops. Writing `x[mask] = v` becomes `where(mask, v, x)`, unless `v` holds one element per true one. A
decomposition gives NotImplemented for a call without masks, which leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload

_ATEN: Final = torch.ops.aten
_MASKS: Final = (torch.bool, torch.uint8)

Indices = Sequence[Tensor | None]


def table() -> dict[OpOverload, Callable[..., Any]]:
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
    return _read(x, _positions(indices))


def _index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Any:
    if not _has_mask(indices):
        return NotImplemented
    given = [index for index in indices if index is not None]
    if len(given) == 1:
        mask = given[0]
        before = next(dim for dim, index in enumerate(indices) if index is not None)
        after = x.dim() - before - mask.dim()
        spread = _spread(values, mask.dim(), after)
        if spread is not None:
            aligned = mask.to(torch.bool).reshape((*mask.shape, *(1,) * after))
            return torch.where(aligned, x + spread if accumulate else spread, x)
    written: Tensor = _ATEN.index_put.default(x, _positions(indices), values, accumulate)
    return written


def _read(x: Tensor, indices: Indices) -> Tensor:
    read: Tensor = _ATEN.index.Tensor(x, indices)
    return read


def _spread(values: Tensor, mask_dims: int, after: int) -> Tensor | None:
    """The written values over all elements of the mask; None if there is one per true element."""
    sizes = values.shape
    if len(sizes) <= after:
        return values
    # The dim before the last `after` ones counts the true elements.
    count: object = sizes[-after - 1]
    if not (isinstance(count, int) and count == 1):
        return None
    lead = sizes[: len(sizes) - after - 1]
    tail = sizes[len(sizes) - after :]
    return values.reshape((*lead, *((1,) * mask_dims if lead else ()), *tail))


def _masked_select(x: Tensor, mask: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    (where,) = _coordinates(mask.reshape(-1))
    return torch.index_select(x.reshape(-1), 0, where)


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
            found += _coordinates(index)
        else:
            found.append(index)
    return found


def _coordinates(mask: Tensor) -> list[Tensor]:
    rows = torch.nonzero(mask)
    return [rows.select(1, dim) for dim in range(mask.dim())]
