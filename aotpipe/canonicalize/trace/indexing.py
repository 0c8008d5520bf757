"""Indices that are traced: `x[i]`, `x[:, i] = v`, `x[i : i + 3]`, with `i` known to a run of the graph only.

torch itself would ask for the value of `i`. Here the rows are gathered, and written as scattered ones. What
is gathered is a copy where eager gives a view: writing to it in place is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with

from aotpipe.canonicalize.alias import rebinding
from aotpipe.canonicalize.values import host_scalars
from aotpipe.canonicalize.values.refusals import refusal


@dataclass(frozen=True, slots=True)
class _Window:
    """A slice of known length, from a traced start on."""

    start: torch.Tensor
    length: int

    def rows(self) -> torch.Tensor:
        """The indices that it covers."""
        # Beyond the end an index is out of range; below zero it would count from the end.
        torch._assert_async(self.start >= 0, "a slice starts below zero")  # noqa: SLF001  # what torch.export keeps
        return self.start.reshape(1) + torch.arange(self.length, device=self.start.device)


Chosen = Mapping[int, torch.Tensor | _Window]


def is_traced_index(index: Any) -> bool:
    """Whether an index has a part that is a traced integer, or a slice with one."""
    return any(_is_integer(part) or _is_traced_slice(part) for part in _parts(index))


def get(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """`tensor[index]`."""
    parts, chosen = _split(tensor, index)
    rest = [part for part in parts if not _is_integer(part)]
    again = functools.partial(_gathered, tensor, chosen, rest)
    result = again()
    if result is not tensor:
        rebinding.note(
            rebinding.Pair(
                result, tensor, lambda: result.copy_(again()), lambda: _put(tensor, parts, chosen, result)
            )
        )
    return result


def put(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """`tensor[index] = value`.

    Raises:
        ExportFailed: A list or a tensor of indices stands beside the traced integer.
    """
    parts, chosen = _split(tensor, index)
    _put(tensor, parts, chosen, value)


def _put(tensor: torch.Tensor, parts: Sequence[Any], chosen: Chosen, value: Any) -> None:
    basic = [slice(None) if _is_integer(part) else part for part in parts]
    if chosen and any(isinstance(part, torch.Tensor | list) for part in basic):
        raise refusal(
            "items are assigned at a traced integer and at a list of indices together",
            "give tensors of indices for both",
        )
    if not chosen:
        tensor[tuple(basic)] = value
        return
    view = tensor if all(map(_is_whole, basic)) else tensor[tuple(basic)]
    landing: dict[int, int] = {}
    source = target = 0
    for part in basic:
        if isinstance(part, slice):
            landing[source] = target
        source += part is not None
        target += part is None or isinstance(part, slice)
    _scatter(view, {landing[dim]: each for dim, each in chosen.items()}, _value(value, view))


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_integer(part: Any) -> bool:
    return (
        isinstance(part, FakeTensor)
        and part.constant is None
        and not part.dim()
        and part.dtype != torch.bool
        and not part.dtype.is_floating_point
        and not part.dtype.is_complex
    )


def _is_traced_slice(part: Any) -> bool:
    return isinstance(part, slice) and any(map(_is_integer, (part.start, part.stop, part.step)))


def _is_whole(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _split(tensor: torch.Tensor, index: Any) -> tuple[list[Any], Chosen]:
    """An index without Ellipsis, and its traced parts by the tensor's dims; a window's own part is whole."""
    parts: list[Any] = [_known(part) if _is_traced_slice(part) else part for part in _parts(index)]
    used = sum(
        part.dim() if isinstance(part, torch.Tensor) and part.dtype == torch.bool else 1
        for part in parts
        if part is not None and part is not Ellipsis
    )
    missing = [slice(None)] * (tensor.dim() - used)
    at = next((number for number, part in enumerate(parts) if part is Ellipsis), None)
    parts = [*parts, *missing] if at is None else [*parts[:at], *missing, *parts[at + 1 :]]
    chosen: dict[int, torch.Tensor | _Window] = {}
    dim = 0
    for number, part in enumerate(parts):
        if isinstance(part, _Window) or _is_integer(part):
            chosen[dim] = part
        if isinstance(part, _Window):
            parts[number] = slice(None)
        is_mask = isinstance(part, torch.Tensor) and part.dtype == torch.bool
        dim += part.dim() if is_mask else int(part is not None)
    return parts, chosen


def _known(part: slice) -> _Window | slice:
    """A traced slice as a window of known length, or with torch's symbols for its ends."""
    length = host_scalars.distance(part.start, part.stop)
    if part.step in (None, 1) and length is not None and length > 0:
        return _Window(part.start, length)
    ends = (part.start, part.stop, part.step)
    return slice(
        *(host_scalars.as_symbol(host_scalars.item(end)) if _is_integer(end) else end for end in ends)
    )


def _gathered(tensor: torch.Tensor, chosen: Chosen, rest: Sequence[Any]) -> torch.Tensor:
    for dim, each in chosen.items():
        if isinstance(each, _Window):
            tensor = _index(tensor, {dim: each.rows()})
    integers = {dim: each for dim, each in chosen.items() if isinstance(each, torch.Tensor)}
    found = _index(tensor, integers) if integers else tensor
    return found if all(map(_is_whole, rest)) else found[tuple(rest)]


def _index(tensor: torch.Tensor, rows: Mapping[int, torch.Tensor]) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten.index.Tensor(tensor, _indices(rows))
    return found


def _indices(rows: Mapping[int, torch.Tensor]) -> list[torch.Tensor | None]:
    return [rows[dim].long() if dim in rows else None for dim in range(max(rows) + 1)]


def _scatter(view: torch.Tensor, chosen: Chosen, value: torch.Tensor) -> None:
    """Write the chosen rows of a view: integers in one step, each window in one of its own."""
    rows = {dim: each for dim, each in chosen.items() if isinstance(each, torch.Tensor)}
    left = {dim: each for dim, each in chosen.items() if dim not in rows}
    if not rows:
        first = min(left)
        window = left.pop(first)
        rows = {first: window.rows() if isinstance(window, _Window) else window}
        shift = dict.fromkeys(left, 0)
    else:
        shift = {dim: sum(other < dim for other in rows) for dim in left}
    if left:
        part = _index(view, rows)
        _scatter(part, {dim - shift[dim]: each for dim, each in left.items()}, value)
        value = part
    rebinding.refuse_lost(view)
    torch.ops.aten.index_put_.default(view, _indices(rows), value)


def _value(value: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(like.dtype)
    return torch.full((), value, dtype=like.dtype, device=like.device)
