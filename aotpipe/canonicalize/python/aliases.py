"""Keeps the names of one tensor alike where a graph has made a copy of it.

After a branch or a loop a variable holds a tensor of the graph's own, where eager may have given it another
name of a tensor from before; what a traced index gives is a copy, where eager gives a view. As long as nobody
writes to either in place nobody can tell. `note(pair)` remembers the two. A write to one of them is repeated
on the other, if somebody still holds that: a variable of a running function, a container there, a module.
Where that cannot be, inside of a branch or a loop, the write is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

from aotpipe import source
from aotpipe.canonicalize.python import effects
from aotpipe.canonicalize.python.refusing import refusal

_OWN: Final = str(Path(__file__).resolve().parents[2])
_DEPTH: Final = 3
# The function that calls the model.
_CALL: Final = "called_in_mode.<locals>.inside"
_is_model_code = cache(source.is_model_code)


@dataclass(frozen=True, slots=True)
class Pair:
    """A copy and what eager would, on some path, have made it another name of.

    Attributes:
        copy, original: The two.
        to_copy, to_original: Repeat a write on the other one; None where only a run of the graph could.
    """

    copy: torch.Tensor
    original: torch.Tensor
    to_copy: Callable[[], object] | None = None
    to_original: Callable[[], object] | None = None


_pairs: list[Pair] = []
# How many of them are of the branch or loop that is traced; the others are of what is around it.
_outside = 0
_repeating = False


@contextmanager
def followed() -> Iterator[None]:
    """Forget what was noted, afterwards."""
    try:
        yield
    finally:
        _pairs.clear()


@contextmanager
def inner() -> Iterator[list[Pair]]:
    """Trace a branch or a loop; gives the pairs that are noted inside, which are forgotten afterwards."""
    global _outside
    before, _outside = _outside, len(_pairs)
    found: list[Pair] = []
    try:
        yield found
    finally:
        found += _pairs[_outside:]
        del _pairs[_outside:]
        _outside = before


def note(pair: Pair) -> None:
    """Remember a copy."""
    _pairs.append(pair)


def note_path(copy: torch.Tensor, original: torch.Tensor, flag: torch.Tensor) -> None:
    """Remember a copy that is another name of its original where a traced flag is true."""

    def repeat(source: torch.Tensor, target: torch.Tensor) -> Callable[[], object]:
        return lambda: target.copy_(torch.where(flag, source, target))

    _pairs.append(Pair(copy, original, repeat(original, copy), repeat(copy, original)))


def refuse_lost(tensor: torch.Tensor) -> None:
    """Refuse to write in place what another name would lose.

    Raises:
        ExportFailed: Another name would.
    """
    for index, pair, other in [] if _repeating else _others({storage_of(tensor)}):
        repeat = pair.to_original if other is pair.original else pair.to_copy
        # Of a tensor from outside, a branch or a loop has a stand-in, whose views are no views of it.
        is_view = index < _outside and tensor is not pair.copy and tensor is not pair.original
        if (repeat is None or is_view) and _matters(storage_of(other), {index}):
            raise refusal(
                "a tensor is written in place that may have a second name, by a branch or a loop on a tensor",
                "assign a new value (`y = y + 1` for `y += 1`), or clone it before",
            )


def repeat(tensor: torch.Tensor) -> None:
    """After a write to a tensor, repeat it on its other names."""
    global _repeating
    if not _pairs or _repeating:
        return
    _repeating = True
    try:
        _repeat(tensor)
    finally:
        _repeating = False


def _repeat(tensor: torch.Tensor) -> None:
    written = {storage_of(tensor)}
    done: set[int] = set()
    while found := [each for each in _others(written) if each[0] not in done]:
        for index, pair, other in found:
            done.add(index)
            update = pair.to_original if other is pair.original else pair.to_copy
            if update is not None and _matters(storage_of(other), done):
                update()
                written.add(storage_of(other))


def has_other_name(storage: int, *, but: str) -> bool:
    """Whether a write to this memory is seen by another name than the innermost function's variable `but`."""
    return is_held(storage, but=but) or any(
        _matters(storage_of(other), {index}) for index, _, other in _others({storage})
    )


def _matters(storage: int, done: set[int]) -> bool:
    """Whether somebody holds a tensor of this memory, or another name of it."""
    return is_held(storage) or any(
        _matters(storage_of(other), done | {index})
        for index, _, other in _others({storage})
        if index not in done
    )


def _others(storages: set[int]) -> list[tuple[int, Pair, torch.Tensor]]:
    """The pairs that have one of these memories, each with its number and the other one of the two."""
    if not _pairs:
        return []
    found = []
    for index, pair in enumerate(_pairs):
        if storage_of(pair.copy) in storages:
            found.append((index, pair, pair.original))
        elif storage_of(pair.original) in storages:
            found.append((index, pair, pair.copy))
    return found


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


def is_held(storage: int, *, but: str = "") -> bool:
    """Whether somebody holds a tensor of this memory: other than the innermost function's variable `but`."""
    frame = sys._getframe(1)  # noqa: SLF001  # the only way to the variables of those who call
    user: CodeType | None = None
    called = False
    while frame is not None:
        code = frame.f_code
        # Within the call of the model, what torch's own functions hold is on its way only.
        called = called or code.co_qualname == _CALL
        if not code.co_filename.startswith(_OWN) and (called or _is_model_code(code.co_filename)):
            user = user or code
            own = bool(but) and _is_of_one_function(code, user)
            held = (value for name, value in frame.f_locals.items() if not (own and name == but))
            if any(_holds(value, storage, _DEPTH) for value in held):
                return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return any(
        _holds(vars(part), storage, _DEPTH) for root in effects.watched_modules() for part in root.modules()
    )


def _is_of_one_function(left: CodeType, right: CodeType) -> bool:
    """Whether codes are of one function of the user's, which was taken apart."""

    def origin(code: CodeType) -> tuple[str, str]:
        return code.co_filename, code.co_qualname.partition(".<locals>.__aotpipe")[0]

    return origin(left) == origin(right)


def _holds(value: object, storage: int, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return value.layout == torch.strided and storage_of(value) == storage
    if not depth:
        return False
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) < 10_000 and any(_holds(each, storage, depth - 1) for each in value)
    if not isinstance(value, dict):
        if isinstance(value, type | ModuleType | FunctionType) or effects.is_of_torch(value):
            return False
        value = getattr(value, "__dict__", None)
    return isinstance(value, dict) and any(_holds(each, storage, depth - 1) for each in value.values())
