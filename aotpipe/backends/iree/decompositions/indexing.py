"""Reads and writes at indices, views and padding: the forms that the compiler lacks or dies on.

Its `scatter` takes no negative dim and no rank 0, its `gather`, `index_select` and `nonzero` no rank 0, and
its constants no uint8. Masks among indices are replaced before (`passes.decompositions.indexing.MASKS`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpipe.backends.iree.decompositions.integers import in_int32
from aotpipe.passes.decompositions import grid_sample
from aotpipe.passes.decompositions.entries import Table, empty, is_one, static

aten = torch.ops.aten
Indices = Sequence[torch.Tensor | None]

_NARROW: Final = frozenset({torch.int8, torch.int16, torch.int32})


def index_put(
    tensor: torch.Tensor, indices: Indices, values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    if values.dtype != tensor.dtype:
        return aten.index_put.default(tensor, indices, values.to(tensor.dtype), accumulate)
    if tensor.dtype == torch.bool:
        # A scatter of single bits is not compiled right.
        wide = aten.index_put.default(tensor.to(torch.int32), indices, values.to(torch.int32), accumulate)
        return wide != 0
    if all(index is None or not index.dim() for index in indices):
        return _put_one(tensor, indices, values, accumulate)
    given = [dim for dim, index in enumerate(indices) if index is not None]
    if given != list(range(given[0], given[-1] + 1)):
        # What lies between is no index, and the compiler has no form for that. Of such indices the dims of
        # what is written come first, as they do where the indexed dims of the tensor are its first.
        order = [*given, *(dim for dim in range(tensor.dim()) if dim not in given)]
        first = [indices[dim] for dim in given]
        written = aten.index_put.default(tensor.permute(order), first, values, accumulate)
        return written.permute([order.index(dim) for dim in range(tensor.dim())])
    alike = _of_one_dtype(indices)
    return aten.index_put.default(tensor, alike, values, accumulate) if alike else NotImplemented


def index(tensor: torch.Tensor, indices: Indices) -> Any:
    alike = _of_one_dtype(indices)
    return aten.index.Tensor(tensor, alike) if alike else NotImplemented


def _of_one_dtype(indices: Indices) -> list[torch.Tensor | None] | None:
    """Indices as int64, where some are narrower: the importer makes one list of all, and of int64 for None.

    Masks are no indices: they stay as they are.
    """
    if not any(index is not None and index.dtype in _NARROW for index in indices):
        return None
    return [
        index.to(torch.int64) if index is not None and index.dtype in _NARROW else index for index in indices
    ]


def _put_one(tensor: torch.Tensor, indices: Indices, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """A write at 0-d indices, which the compiler dies on, as one at indices of one element."""
    given = [dim for dim, index in enumerate(indices) if index is not None]
    rank = tensor.dim() - len(given)
    adjacent = given == list(range(given[0], given[-1] + 1))
    values = values.reshape([1] * (rank - values.dim()) + list(values.shape))
    longer = [None if index is None else index.reshape(1) for index in indices]
    place = given[0] if adjacent else 0
    return aten.index_put.default(tensor, longer, values.unsqueeze(place), accumulate)


def take(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    positions = index.reshape(-1)
    wrapped = torch.where(positions < 0, positions + flat.shape[0], positions)
    return flat.index_select(0, wrapped).reshape(index.shape)


def _written(
    op: Callable[..., torch.Tensor], tensor: torch.Tensor, dim: int, index: torch.Tensor, source: Any
) -> Any:
    """A scatter of a tensor with at least one dim, along one counted from the front."""
    if tensor.dim() and index.dim():
        return op(tensor, dim + tensor.dim(), index, source) if dim < 0 else NotImplemented
    lone = source.reshape(1) if isinstance(source, torch.Tensor) and not source.dim() else source
    if not tensor.dim():
        return op(tensor.reshape(1), 0, index.reshape(-1), lone).reshape(())
    return op(tensor, dim % tensor.dim(), index.reshape(1), lone)


def gather(tensor: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Any:
    if tensor.dim() and index.dim():
        return NotImplemented
    return tensor.reshape(-1).gather(0, index.reshape(-1)).reshape(index.shape)


def index_select(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    if tensor.dim():
        return NotImplemented
    return tensor.reshape(1).index_select(0, index.reshape(-1)).reshape(())


def diagonal_scatter(
    tensor: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    if empty(tensor, source):
        return tensor.clone()
    plane = tensor.movedim((dim1, dim2), (-2, -1))
    rows, columns = (torch.arange(size, device=tensor.device) for size in plane.shape[-2:])
    rows = rows.unsqueeze(1)
    # The diagonal starts at the edge that the offset goes along.
    place = rows if offset >= 0 else columns
    spread = source.index_select(-1, place.reshape(-1).clamp(max=source.shape[-1] - 1))
    spread = spread.unsqueeze(-1 if offset >= 0 else -2).to(tensor.dtype)
    written = torch.where(columns - rows == offset, spread, plane)
    return written.movedim((-2, -1), (dim1, dim2))


def nonzero(tensor: torch.Tensor) -> Any:
    # Zero columns: what the rows of the one-element form have in front of their only column.
    return NotImplemented if tensor.dim() else tensor.reshape(1).nonzero()[:, :0]


def scatter_add(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    if tensor.dtype == torch.bool:
        # One bit holds no sum.
        return tensor.to(torch.int32).scatter_add(dim, index, source.to(torch.int32)) != 0
    return _written(aten.scatter_add.default, tensor, dim, index, source)


def full(
    size: Sequence[int], fill_value: complex, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    if isinstance(fill_value, complex):
        # The importer takes no complex number.
        part: dict[str, Any] = {
            "dtype": (dtype or torch.complex64).to_real(),
            "device": options.get("device"),
        }
        return torch.complex(
            *(torch.full(list(size), each, **part) for each in (fill_value.real, fill_value.imag))
        )
    if isinstance(fill_value, torch.SymBool):
        return NotImplemented
    if dtype == torch.bool and not isinstance(fill_value, bool):
        # The compiler keeps the last bit of the number.
        return torch.full(list(size), fill_value != 0, dtype=dtype, device=options.get("device"))
    if dtype != torch.uint8:
        return NotImplemented
    whole = int(fill_value)
    # A range, as that is the one constant that the compiler does not fold, with the sign of bytes wrong.
    one = torch.arange(whole, whole + 1, dtype=torch.int32, device=options.get("device")).to(torch.uint8)
    return one.reshape([1] * len(size)).expand(list(size))


def full_like(
    tensor: torch.Tensor, fill_value: complex, *, dtype: torch.dtype | None = None, **_: Any
) -> Any:
    return full(tensor.shape, fill_value, dtype=dtype or tensor.dtype, device=tensor.device)


def arange(
    start: float, end: float, step: float = 1, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    bounds = (start, end, step)
    if dtype == torch.uint8:
        return torch.arange(*bounds, dtype=torch.int32, device=options.get("device")).to(dtype)
    is_whole = all(isinstance(bound, int | torch.SymInt) for bound in bounds)
    if dtype is not None and dtype.is_floating_point and is_whole and not all(map(static, bounds)):
        # The compiler counts the elements in the dtype of the result: float32 has no odd number above 2**24,
        # and a size made so is none that its code generation can follow.
        return torch.arange(*bounds, dtype=torch.int64, device=options.get("device")).to(dtype)
    return NotImplemented


def squeeze_dims(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Several dims at once, which the compiler has no op for."""
    gone = {dim % tensor.dim() for dim in dims} if tensor.dim() else set()
    kept = [size for dim, size in enumerate(tensor.shape) if dim not in gone or not is_one(size)]
    return tensor.reshape(kept)


def view_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> Any:
    # The compiler dies on the bits of a 0-d tensor.
    return NotImplemented if tensor.dim() else tensor.reshape(1).view(dtype).reshape(())


def roll(tensor: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """The two parts of each dim, swapped."""
    if not dims:
        return roll(tensor.reshape(-1), shifts, (0,)).reshape(tensor.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = tensor.shape[dim]
        if static(size) and (size == 0 or shift % size == 0):
            continue
        start = (size - shift) % size
        parts = (tensor.narrow(dim, start, size - start), tensor.narrow(dim, 0, start))
        tensor = torch.cat(parts, dim)
    return tensor.clone()


def constant_pad(tensor: torch.Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """A negative amount cuts, which the compiler computes wrong."""
    if all(statically_known_true(amount >= 0) for amount in pad):
        if tensor.dtype in (torch.bool, torch.uint8, torch.int8):
            whole = int(bool(value)) if tensor.dtype == torch.bool else int(value)
            return in_int32(torch.constant_pad_nd, tensor, pad=list(pad), value=whole)
        # The compiler loses track of the buffer that it fills with an integer, or with 64 bits, before it
        # copies into it.
        if value and tensor.dtype == torch.float64 and not isinstance(value, torch.SymFloat):
            (bits,) = struct.unpack("<q", struct.pack("<d", value))
            return constant_pad(tensor.view(torch.int64), pad, bits).view(torch.float64)
        if value and not tensor.is_floating_point() and not tensor.is_complex():
            return torch.constant_pad_nd(tensor - int(value), list(pad), 0) + int(value)
        return NotImplemented
    # Fill first and cut then: a cut may reach into what the other side is filled with.
    added = [_positive(amount) for amount in pad]
    filled = not all(static(amount) and amount == 0 for amount in added)
    grown = torch.constant_pad_nd(tensor, added, value) if filled else tensor
    for number in range(len(pad) // 2):
        axis = tensor.dim() - 1 - number
        before, after = (_positive(-amount) for amount in pad[2 * number : 2 * number + 2])
        if not (static(before) and static(after) and before == after == 0):
            grown = grown.narrow(axis, before, grown.shape[axis] - before - after)
    return grown.clone()


def _positive(amount: Any) -> Any:
    """An amount of padding, or none where it is negative."""
    if statically_known_true(amount <= 0):
        return 0
    return amount if statically_known_true(amount >= 0) else torch.sym_max(amount, 0)


def grid_sampler_3d(x: torch.Tensor, grid: torch.Tensor, *modes: Any) -> Any:
    """A lone voxel as one of two: the compiler takes all memory for a long function of a lone scalar."""
    sizes = (*x.shape[:2], *grid.shape[1:4])
    if all(map(is_one, sizes)):
        return torch.grid_sampler_3d(x, grid.expand(-1, -1, -1, 2, -1), *modes)[..., :1]
    return grid_sample.grid_sampler_3d(x, grid, *modes)


DECOMPOSITIONS: Table = {
    aten.grid_sampler_3d.default: grid_sampler_3d,
    aten.take.default: take,
    aten.index.Tensor: index,
    aten.index_put.default: index_put,
    aten.scatter.src: partial(_written, aten.scatter.src),
    aten.scatter.value: partial(_written, aten.scatter.value),
    aten.scatter_add.default: scatter_add,
    aten.gather.default: gather,
    aten.index_select.default: index_select,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.nonzero.default: nonzero,
    aten.full.default: full,
    aten.full_like.default: full_like,
    aten.scalar_tensor.default: lambda value, **options: full([], value, **options),
    aten.arange.start_step: arange,
    # Strides mean nothing in a graph of values.
    aten.empty_strided.default: lambda size, _stride, **options: torch.empty(list(size), **options),
    aten.squeeze.dims: squeeze_dims,
    aten.view.dtype: view_dtype,
    aten.roll.default: roll,
    aten.constant_pad_nd.default: constant_pad,
}
