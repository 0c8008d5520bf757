"""Finds writes in place that a graph would lose: on the copy of a tensor that something else still holds.

After a branch or a loop a variable holds a tensor of the graph's own, where eager may have given it another
name of a tensor from before. As long as nobody writes to it nobody can tell. `note(copy, original)` remembers
the copies of which the original is still held: by a variable of a running function, in a container there, by
a module. `is_copy(tensor)` tells them and their views.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize.python.refusing import refusal

_OWN: Final = str(Path(__file__).resolve().parents[2])
_DEPTH: Final = 3

# By storage; the tensor is kept, so that its storage is not given to another.
_copies: dict[int, torch.Tensor] = {}


@contextmanager
def followed() -> Iterator[None]:
    """Forget what was noted, afterwards."""
    try:
        yield
    finally:
        _copies.clear()


def note(copy: torch.Tensor, original: torch.Tensor, modules: Iterable[nn.Module]) -> None:
    """Remember a copy, if its original is still held by somebody."""
    if is_copy(original) or _is_held(storage_of(original), modules):
        _copies[storage_of(copy)] = copy


def is_copy(tensor: torch.Tensor) -> bool:
    """Whether writing to a tensor would be lost on what it is a copy of."""
    return bool(_copies) and storage_of(tensor) in _copies


def refuse_lost(tensor: torch.Tensor) -> None:
    """Refuse to write in place what another name would lose.

    Raises:
        ExportFailed: Another name would.
    """
    if is_copy(tensor):
        raise refusal(
            "a tensor is written in place that may have a second name, by a branch or a loop on a tensor",
            "assign a new value (`y = y + 1` for `y += 1`), or clone it before",
        )


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # it has no public name


def written(func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The tensor that a call of a torch function writes in place, told by its name."""
    name = getattr(func, "__name__", "")
    in_place = name == "__setitem__" or (
        name.startswith("__i") and name not in {"__invert__", "__int__", "__index__"}
    )
    in_place = in_place or (name.endswith("_") and not name.endswith("__")) or bool(kwargs.get("inplace"))
    target = kwargs.get("out") if not in_place else next(iter(args), kwargs.get("input"))
    return target if isinstance(target, torch.Tensor) else None


def _is_held(storage: int, modules: Iterable[nn.Module]) -> bool:
    frame = sys._getframe(1)  # noqa: SLF001  # the only way to the variables of those who call
    while frame is not None:
        is_own = frame.f_code.co_filename.startswith(_OWN)
        if not is_own and any(_holds(value, storage, _DEPTH) for value in frame.f_locals.values()):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return any(_holds(vars(part), storage, _DEPTH) for module in modules for part in module.modules())


def _holds(value: object, storage: int, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return value.layout == torch.strided and storage_of(value) == storage
    if depth and isinstance(value, dict):
        return any(_holds(each, storage, depth - 1) for each in value.values())
    if depth and isinstance(value, list | tuple) and len(value) < 10_000:
        return any(_holds(each, storage, depth - 1) for each in value)
    return False
