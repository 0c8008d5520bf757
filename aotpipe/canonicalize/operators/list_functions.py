"""What torch's functions make of a list whose length only a run of the graph knows: stacks, indices.

Raises what `dynamic_list_methods` raises for lists that do not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch

from aotpipe.canonicalize.operators.dynamic_list_methods import numbers, whole, without_none
from aotpipe.canonicalize.trace import runtime_asserts
from aotpipe.canonicalize.values import host_scalars
from aotpipe.canonicalize.values.abstract_values import Leaf
from aotpipe.canonicalize.values.dynamic_list import is_dynamic_list, slots
from aotpipe.canonicalize.values.trace import refusal


def _number_in(leaf: Any) -> Any:
    if isinstance(leaf, bool | int | float):
        return leaf
    raise refusal("`torch.tensor` of a list that grows, of more than numbers", "append tuples of numbers")


def _of_numbers(leaf: Any, buffer: torch.Tensor) -> torch.Tensor:
    """What torch makes of Python's numbers: floats of the default dtype, whatever a run holds them in."""
    return buffer.to(host_scalars.default_dtype(buffer.dtype)) if leaf.number else buffer


def as_tensor(items: Iterable[Any], dtype: Any) -> torch.Tensor:
    """`torch.tensor(items)` of a list that grows, of numbers or of tuples or lists of as many numbers."""
    found = without_none(whole(list(items)), RuntimeError("Could not infer dtype of NoneType"))
    flat = found.kind.spec.type in (tuple, list) and all(
        each.is_leaf() for each in found.kind.spec.children()
    )
    if flat:
        columns = iter(found.buffers)
        parts = [
            _of_numbers(leaf, next(columns))
            if isinstance(leaf, Leaf)
            else torch.full((slots([found]),), _number_in(leaf))
            for leaf in found.kind.leaves
        ]
        wide = functools.reduce(host_scalars.promoted, (part.dtype for part in parts))
        buffer = torch.stack([part.to(wide) for part in parts], 1)
    else:
        found, buffer, _ = numbers([found], "`torch.tensor`")
        buffer = _of_numbers(found.kind.leaves[0], buffer)
    wanted = buffer.dtype if dtype is None else dtype
    if dtype is None and wanted != torch.get_default_dtype():
        # Of no numbers, torch makes floats.
        runtime_asserts.add_assert(found.count > 0, f"torch.tensor([]) is no {wanted}: give it a dtype")
    elif flat:
        runtime_asserts.add_assert(
            found.count > 0, "torch.tensor([]) has one dim: make it of a list that is filled"
        )
    return found.filled(buffer).to(wanted, copy=True)


def _as_index(part: Any) -> Any:
    if not is_dynamic_list(part):
        return part
    found, buffer, _ = numbers(part, "an index")
    return found.filled(buffer)


def called(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A torch function of a list that grows."""
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        index = tuple(map(_as_index, parts))
        return func(args[0], index[0] if len(index) == 1 else index, *args[2:])
    function = _FUNCTIONS.get(func)
    items = args[0] if args else kwargs.pop("tensors", None)
    if function is None or not isinstance(items, list | tuple):
        raise refusal(
            f"`{getattr(func, '__name__', func)}` is called with a list whose length a tensor decides",
            "stack the list first",
            "list-grows",
        )
    return function(list(items), *args[1:], **kwargs)


def _rows(items: list[Any]) -> torch.Tensor:
    found = without_none(
        whole(items), TypeError("expected Tensor as element 0 in argument 0, but got NoneType")
    )
    if len(found.buffers) != 1 or not found.kind.spec.is_leaf():
        raise refusal("a list of several tensors per element is stacked", "append each to a list of its own")
    runtime_asserts.require(found.count > 0, RuntimeError("expected a non-empty list of Tensors"), holds=True)
    # What is made of them is written in place by itself.
    return found.filled(found.buffers[0]).clone()


def _stack(items: list[Any], dim: int = 0) -> torch.Tensor:
    return _rows(items).movedim(0, dim)


def _cat(items: list[Any], dim: int = 0, *, axis: int | None = None) -> torch.Tensor:
    rows = _rows(items)
    dim = dim if axis is None else axis
    dim = dim + rows.dim() - 1 if dim < 0 else dim
    return rows.movedim(0, dim).flatten(dim, dim + 1)


def _vstack(items: list[Any]) -> torch.Tensor:
    rows = _rows(items)
    return rows if rows.dim() <= 2 else rows.flatten(0, 1)


def _hstack(items: list[Any]) -> torch.Tensor:
    rank = _rows(items).dim() - 1
    return _stack(items) if not rank else _cat(items, 0 if rank == 1 else 1)


_FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    torch.stack: _stack,
    torch.cat: _cat,
    torch.concat: _cat,
    torch.concatenate: _cat,
    torch.vstack: _vstack,
    torch.hstack: _hstack,
}
