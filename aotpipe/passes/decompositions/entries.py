"""What a table of decompositions is made of.

A decomposition is called with an op's own arguments while the graph is traced again, and is written with
torch calls that are decomposed in turn. Where it returns `NotImplemented` the op stays as it is: so one entry
can take just those forms (a dtype, rank 0, an empty dim) that the compiler does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload

Decomposition = Callable[..., Any]
Table = Mapping[OpOverload, Decomposition]
Number = int | float | bool
Value = Tensor | Number

HALF = (torch.float16, torch.bfloat16)


def either(first: Decomposition, second: Decomposition | None) -> Decomposition:
    """A decomposition by the first, by the second where the first leaves the call as it is."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        found = first(*args, **kwargs)
        return second(*args, **kwargs) if found is NotImplemented and second is not None else found

    return decompose


def joined(tables: Iterable[Table]) -> dict[OpOverload, Decomposition]:
    """One table of several, which have no op in common."""
    entries: dict[OpOverload, Decomposition] = {}
    for table in tables:
        assert not entries.keys() & table.keys(), entries.keys() & table.keys()
        entries.update(table)
    return entries


def static(size: object) -> TypeGuard[int]:
    """Whether a size is known while tracing (a SymInt is not)."""
    return isinstance(size, int)


def is_one(size: object) -> bool:
    """Whether a size is known to be 1."""
    return static(size) and size == 1


def empty(*tensors: Tensor) -> bool:
    """Whether one of the tensors is known to have no elements."""
    return any(static(size) and size == 0 for tensor in tensors for size in tensor.shape)


def last(tensor: Tensor, dim: int) -> Tensor:
    """The tensor with `dim` moved to the end; a 0-d one gets one dim of size 1."""
    return tensor.movedim(dim, -1) if tensor.dim() else tensor.reshape(1)


def back(tensor: Tensor, dim: int, like: Tensor) -> Tensor:
    """Undoes `last(like, dim)` on a tensor of its shape."""
    return tensor.movedim(-1, dim) if like.dim() else tensor.reshape(())


def reduced(tensor: Tensor, dim: int, keepdim: bool, like: Tensor) -> Tensor:
    """What a reduction of `last(like, dim)` over its last dim gives, in the form that one of `like` has."""
    return (
        tensor.unsqueeze(dim) if keepdim and like.dim() else tensor.reshape(()) if not like.dim() else tensor
    )


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that eager computes a half-precision op in."""
    return torch.float32 if dtype in HALF else dtype


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the dtype that eager computes in."""
    return tuple(tensor.to(wide(tensor.dtype)) for tensor in tensors)


def iota(size: int, like: Tensor, dtype: torch.dtype = torch.int64) -> Tensor:
    """0, 1, ..., size - 1 on the device of another tensor."""
    return torch.arange(size, dtype=dtype, device=like.device)


def floating(tensor: Tensor) -> Tensor:
    """The tensor as eager promotes it for a function that gives floats."""
    inexact = tensor.is_floating_point() or tensor.is_complex()
    return tensor if inexact else tensor.to(torch.get_default_dtype())


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A polynomial by Horner's rule; the highest power comes first."""
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def promoted(left: Value, right: Value) -> tuple[Tensor, Tensor]:
    """Both as tensors of the dtype that eager promotes them to."""
    dtype = torch.result_type(left, right)
    device = next(value.device for value in (left, right) if isinstance(value, Tensor))
    one, two = (
        value.to(dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=dtype, device=device)
        for value in (left, right)
    )
    return one, two
