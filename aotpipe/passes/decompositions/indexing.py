"""Scatters that reduce, reads and writes by masks and flat positions, histograms and copies of views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import Decomposition, Table, empty, iota, is_one, static, wide

aten = torch.ops.aten


def masked_scatter(tensor: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    tensor, mask = torch.broadcast_tensors(tensor, mask)
    if empty(tensor):
        return tensor.clone()
    count, flat = source.numel(), source.reshape(-1)
    if not statically_known_true(count >= mask.numel()):
        ops.ASSERT_TENSOR(mask.sum() <= count, "Number of elements of source < number of ones in mask")
    if not statically_known_true(count >= 1):
        flat = torch.cat(
            [flat, flat.new_zeros(1)]
        )  # for a mask with no element set, which no source need have
    place = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(min=0)
    # The place of an element past the source's end can only be that of an unmasked one.
    place = place.clamp(max=flat.numel() - 1)
    return torch.where(mask, flat.index_select(0, place).reshape(tensor.shape), tensor)


def select_scatter(tensor: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """The tensor with one of its slices replaced; torch's form decides whether the index is negative."""
    if not isinstance(index, torch.SymInt) or not free_unbacked_symbols(index):
        found: Tensor = decomposition_table[aten.select_scatter.default](tensor, src, dim, index)
        return found
    dim %= tensor.dim()
    size = tensor.shape[dim]
    places = iota(size, tensor)
    chosen = (places == index) | (places == index + size)
    chosen = chosen.reshape([size if axis == dim else 1 for axis in range(tensor.dim())])
    return torch.where(chosen, src.unsqueeze(dim), tensor)


def put(tensor: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    if empty(tensor, index):
        return tensor.clone()
    place = index.reshape(-1)
    place = torch.where(place < 0, place + tensor.numel(), place)
    flat = aten.index_put.default(tensor.reshape(-1), [place], source.reshape(-1), accumulate)
    return flat.reshape(tensor.shape)


def _require_within(index: Tensor, tensor: Tensor, dim: int, name: str) -> None:
    """Assert that no id is negative or too large, for an op whose decomposition takes such ids."""
    size = tensor.shape[dim] if tensor.dim() else 1
    inside = ((index >= 0) & (index < size)).all()
    extent = f"of size {size}" if static(size) else "whose size varies"
    ops.ASSERT_TENSOR(inside, f"index out of range: {name} in a dimension {extent}")


def _by_places(name: str) -> Decomposition:
    """The form that torch gives an op that writes rows: it counts negative ids from the end."""
    general = decomposition_table[getattr(aten, name).default]

    def written(tensor: Tensor, dim: int, index: Tensor, source: Tensor, **options: Any) -> Any:
        _require_within(index, tensor, dim, name)
        return general(tensor, dim, index, source, **options)

    return written


def scatter_reduce(
    tensor: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`out[p] = reduce(tensor[p] if include_self, src[q] for every q with index[q] == p)`.

    The compiler scatters sums only; every pair is compared here, in one fused reduction.
    """
    if not tensor.dim():
        tensor1, index1, src1 = tensor.reshape(1), index.reshape(-1), src.reshape(-1)
        return scatter_reduce(tensor1, 0, index1, src1, reduce, include_self=include_self).reshape(())
    if empty(tensor, index):
        return tensor.clone()
    if index.dim() == 0:
        index, src = index.reshape(1), src.reshape(1)
    dim %= tensor.dim()
    _require_within(index, tensor, dim, "scatter_reduce")
    # (..., target, source): the other dims of tensor may be longer than those of index.
    cut = src[tuple(slice(0, size) for size in index.shape)].movedim(dim, -1).unsqueeze(-2)
    where = index.movedim(dim, -1).unsqueeze(-2)
    targets = iota(tensor.shape[dim], tensor).unsqueeze(-1)
    hit = where == targets
    target = tensor.movedim(dim, -1)
    region = target[tuple(slice(0, size) for size in hit.shape[:-2])]
    new = _reduce_pairs(hit, cut, region, reduce, include_self)
    return _placed(target, new).movedim(-1, dim)


def _placed(target: Tensor, new: Tensor) -> Tensor:
    for axis in range(target.dim() - 1):
        if new.shape[axis] != target.shape[axis]:
            corner = [slice(0, size) for size in new.shape]
            corner[axis] = slice(new.shape[axis], target.shape[axis])
            tail = target[tuple(corner)]
            new = torch.cat([new, tail], axis)
    return new


_UNITS: dict[str, float] = {"sum": 0, "mean": 0, "prod": 1, "amax": -torch.inf, "amin": torch.inf}


def _reduce_pairs(hit: Tensor, source: Tensor, target: Tensor, reduce: str, include_self: bool) -> Tensor:
    dtype = target.dtype
    unit: Any = _UNITS[reduce]
    if not dtype.is_floating_point and abs(unit) == torch.inf:
        info = torch.iinfo(torch.int32 if dtype == torch.bool else dtype)
        unit = info.max if unit > 0 else info.min
    work = torch.int32 if dtype == torch.bool else wide(dtype)
    filler = torch.full((), unit, dtype=work, device=target.device)
    pairs = torch.where(hit, source.to(work), filler)
    mine = target.to(work)
    count = hit.to(torch.int64).sum(-1)
    kept = mine if include_self else torch.where(count > 0, filler, mine)
    match reduce:
        case "sum" | "mean":
            new = kept + pairs.sum(-1, dtype=work)
        case "prod":
            new = kept * pairs.prod(-1, dtype=work)
        case "amax":
            new = torch.maximum(kept, pairs.amax(-1))
        case _:
            new = torch.minimum(kept, pairs.amin(-1))
    if reduce == "mean":
        share = (count + int(include_self)).clamp(min=1)
        new = new / share if work.is_floating_point else torch.div(new, share, rounding_mode="floor").to(work)
    return torch.where(count > 0, new, mine).to(dtype)


def index_reduce(
    tensor: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if tensor.dim():
        shape = [1] * tensor.dim()
        shape[dim] = -1
        index = index.reshape(shape).expand(source.shape)
    return scatter_reduce(tensor, dim, index, source, reduce, include_self=include_self)


def scatter_mode(tensor: Tensor, dim: int, index: Tensor, source: Tensor | float, *, reduce: str) -> Tensor:
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=tensor.dtype, device=tensor.device)
    return scatter_reduce(tensor, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    ends = repeats.to(torch.int64).cumsum(0)
    size: Any = output_size
    if size is None:
        size = ends[-1].item()
        torch._check(size >= 0)
    ops.ASSERT_TENSOR((repeats >= 0).all(), "repeats can not be negative")
    if output_size is not None:
        ops.ASSERT_TENSOR(ends[-1:].sum() == size, "output_size is not the sum of the repeats")
    positions = torch.arange(size, device=repeats.device)
    return torch.searchsorted(ends, positions, right=True).to(repeats.dtype)


def histc(tensor: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    values = tensor.reshape(-1)
    low = torch.full((), min, dtype=tensor.dtype, device=tensor.device)
    high = torch.full((), max, dtype=tensor.dtype, device=tensor.device)
    if empty(tensor):
        return torch.zeros(bins, dtype=tensor.dtype, device=tensor.device)
    if min == max:
        low, high = values.amin(), values.amax()
        flat = low == high
        low, high = torch.where(flat, low - 1, low), torch.where(flat, high + 1, high)
    place = ((values - low) / (high - low) * bins).to(torch.int64).clamp(max=bins - 1)
    hit = (place.unsqueeze(0) == iota(bins, tensor).unsqueeze(1)) & (values >= low) & (values <= high)
    return hit.to(tensor.dtype).sum(-1)


_MASKS: Final = (torch.bool, torch.uint8)
Indices = Sequence[Tensor | None]


def _index(x: Tensor, indices: Indices) -> Any:
    if not _has_mask(indices):
        return NotImplemented
    if all(index is not None and index.dim() == 0 for index in indices):
        # A single 0-d mask selects all of x or nothing, along a new first dim.
        return _index(x.unsqueeze(0), [index.reshape(1) for index in indices if index is not None])
    if (only := _only_mask(indices)) is not None:
        dim, mask = only
        rows = x.reshape((*x.shape[:dim], mask.numel(), *x.shape[dim + mask.dim() :]))
        return torch.index_select(rows, dim, _true_positions(mask))
    read: Tensor = aten.index.Tensor(x, _positions(indices))
    return read


def _index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Any:
    if values.dtype is not x.dtype:
        return NotImplemented
    if not _has_mask(indices):
        wide = _repeated(x, indices, values)
        return NotImplemented if wide is values else aten.index_put.default(x, indices, wide, accumulate)
    if (only := _only_mask(indices)) is not None:
        dim, mask = only
        after = x.dim() - dim - mask.dim()
        spread = _spread(values, mask.to(torch.bool), after)
        aligned = mask.to(torch.bool).reshape((*mask.shape, *(1,) * after))
        return torch.where(aligned, x + spread if accumulate else spread, x)
    places = _positions(indices)
    written: Tensor = aten.index_put.default(x, places, _repeated(x, places, values), accumulate)
    return written


def _index_put_impl(
    x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    del unsafe  # it leaves out a check of the indices
    written: Tensor = aten.index_put.default(x, indices, values, accumulate)
    return written


def _repeated(x: Tensor, indices: Indices, values: Tensor) -> Tensor:
    """The values, one row per place where they may be one row for all: compilers would read on."""
    for number, (have, want) in enumerate(
        zip(reversed(values.shape), reversed(_places(x, indices)), strict=False)
    ):
        if not static(have) and not statically_known_true(have == want):
            rows = torch.arange(want, device=x.device).clamp(max=have - 1)
            given, places = (torch.full((), size, dtype=torch.int64) for size in (have, want))
            ops.ASSERT_TENSOR(
                (given == 1) | (given == places), "as many values as places are written, or one"
            )
            values = values.index_select(values.dim() - 1 - number, rows)
    return values


def _places(x: Tensor, indices: Indices) -> list[Any]:
    """The shape of what `x[indices]` reads."""
    given = [dim for dim, index in enumerate(indices) if index is not None]
    lead = list(torch.broadcast_shapes(*(index.shape for index in indices if index is not None)))
    rest = [size for dim, size in enumerate(x.shape) if dim not in given]
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    return [*rest[:first], *lead, *rest[first:]]


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
        # There may be no value, but elements that are not written read one all the same.
        values = torch.cat([values, values.new_zeros((*lead, 1, *tail))], at)
    taken = torch.index_select(values, at, torch.clamp(order - 1, 0, values.shape[at] - 1))
    return taken.reshape((*lead, *mask.shape, *tail))


def _masked_select(x: Tensor, mask: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    mask = mask.reshape(-1)
    if static(mask.shape[0]) and mask.shape[0] == 1:
        # torch bounds a selection by two elements or more; its replacement must not have a smaller bound.
        mask = torch.cat([mask, torch.zeros_like(mask)])
    return torch.index_select(x.reshape(-1), 0, _true_positions(mask))


def _has_mask(indices: Indices) -> bool:
    masks = [index for index in indices if index is not None and index.dtype in _MASKS]
    if not masks:
        return False
    # A 0-d mask beside other indices has no such form; it stays, and is reported as unsupported.
    return len(indices) == 1 or all(mask.dim() > 0 for mask in masks)


def _positions(indices: Indices) -> list[Tensor | None]:
    """The same indices with each mask replaced by one index per dim of it, as long as the other indices."""
    found: list[Tensor | None] = []
    others = (index for index in indices if index is not None and index.dtype not in _MASKS and index.dim())
    length = next((index.shape[-1] for index in others if not is_one(index.shape[-1])), None)
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            rows = torch.nonzero(index)
            rows, length = (rows, rows.shape[0]) if length is None else (_aligned(rows, length), length)
            found += [rows.select(1, dim) for dim in range(index.dim())]
        else:
            found.append(index)
    return found


def _aligned(rows: Tensor, length: int) -> Tensor:
    """As many positions as another index has, where a mask chooses as many, or one for all of them."""
    given, wanted = (torch.full((), size, dtype=torch.int64) for size in (rows.shape[0], length))
    ops.ASSERT_TENSOR(
        (given == 1) | (given == wanted), "a mask has as many true elements as the index beside it, or one"
    )
    # What a mask without a true element would read is outside of its positions.
    padded = torch.cat([rows, rows.new_zeros((1, rows.shape[1]))])
    return padded.index_select(0, torch.arange(length, device=rows.device).clamp_max(given - 1).clamp_min(0))


def _true_positions(mask: Tensor) -> Tensor:
    return torch.nonzero(mask.reshape(-1)).select(1, 0)


MASKS: Table = {
    aten.index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten._index_put_impl.default: _index_put_impl,
    aten.masked_select.default: _masked_select,
}
"""Decompositions that come before a backend's own, of ops that may be given a boolean mask.

Reading `x[mask]` becomes an `index_select` of the true positions, because the number of elements depends on
the data, and compilers take no other such op than `nonzero`. Writing `x[mask] = v` becomes
`where(mask, v, x)`, with `v` spread over the mask where it holds one element per true one.
"""


def nonzero_static(tensor: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The positions of the first `size` true elements, one row each."""
    if not all(map(static, tensor.shape)):
        return NotImplemented
    if not tensor.dim() or not size or not tensor.numel():
        return torch.full((size, tensor.dim()), fill_value, dtype=torch.int64, device=tensor.device)
    mask = tensor.reshape(-1) != 0
    rank = mask.to(torch.int64).cumsum(0) - 1
    # Elements that are false, or beyond the last row, are written to an extra row that is dropped.
    place = torch.where(mask & (rank < size), rank, size)
    none = torch.full((size + 1,), -1, dtype=torch.int64, device=tensor.device)
    found = none.scatter(0, place, iota(tensor.numel(), tensor))[:size]
    steps = [math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.dim())]
    rows = [
        torch.div(found, step, rounding_mode="trunc") % extent
        for step, extent in zip(steps, tensor.shape, strict=True)
    ]
    return torch.where(found.unsqueeze(-1) < 0, fill_value, torch.stack(rows, -1))


def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Written at the places that the strides name, where all lie in `x` and no two are the same."""
    start: Any = 0 if storage_offset is None else storage_offset - x.storage_offset()
    if not all(map(static, (start, *size, *stride, *x.shape))) or not x.is_contiguous():
        return NotImplemented
    if not math.prod(size):
        return x.clone()
    places = np.full(tuple(size), start)
    for along, step in zip(np.indices(tuple(size)), stride, strict=True):
        places += along * step
    if places.min() < 0 or places.max() >= x.numel() or np.unique(places).size < places.size:
        return NotImplemented
    index = torch.full([1] * len(size), start, dtype=torch.int64, device=x.device)
    for dim, (count, step) in enumerate(zip(size, stride, strict=True)):
        index = index + (iota(count, x) * step).reshape([-1 if at == dim else 1 for at in range(len(size))])
    values = source.to(x.dtype).expand(size).reshape(-1)
    return aten.index_put.default(x.reshape(-1), [index.reshape(-1)], values).reshape(x.shape)


def resize(x: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Any:
    """The first elements in the order of memory; more than there are would be of any value."""
    if list(size) == list(x.shape) and memory_format in (None, torch.preserve_format):
        return x.clone()
    contiguous = x.is_contiguous() and memory_format in (None, torch.contiguous_format)
    if not contiguous or not all(map(static, (*size, *x.shape))) or math.prod(size) > x.numel():
        return NotImplemented
    return x.reshape(-1)[: math.prod(size)].reshape(list(size))


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **kwargs: Any) -> Tensor:
    """Strides mean nothing in a graph of values."""
    return torch.empty(list(size), **kwargs)


def copy(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    # torch takes the source for what a buffer then holds, also where it has another dtype or fewer elements.
    return source.to(tensor.dtype).expand(tensor.shape).clone()


DECOMPOSITIONS: Table = {
    aten.copy.default: copy,
    aten.masked_scatter.default: masked_scatter,
    aten.put.default: put,
    aten.select_scatter.default: select_scatter,
    aten.scatter.reduce: scatter_mode,
    aten.scatter.value_reduce: scatter_mode,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_reduce.default: index_reduce,
    **{getattr(aten, name).default: _by_places(name) for name in ("index_add", "index_copy")},
    aten.repeat_interleave.Tensor: repeat_interleave,
    aten.histc.default: histc,
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.resize.default: resize,
    aten.empty_permuted.default: empty_permuted,
    **{
        op: decomposition_table[op]
        for op in (
            aten.narrow_copy.default,
            aten.new_empty_strided.default,
            aten.permute_copy.default,
            aten.unbind_copy.int,
            aten.as_strided_copy.default,
        )
    },
    aten.view_copy.default: lambda tensor, size: tensor.reshape(size).clone(),
    aten.nonzero_static.default: nonzero_static,
}
