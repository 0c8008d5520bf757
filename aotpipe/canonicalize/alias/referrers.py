"""Who holds a tensor or a list while a model is traced: variables of functions, containers, modules."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from types import FrameType, FunctionType, ModuleType
from typing import Final

import torch

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.alias.tensor_storage import storage_of
from aotpipe.model import source

_DEPTH: Final = 4
_MOST: Final = 10_000
# The function that calls the model.
CALL: Final = "called_in_mode.<locals>.inside"
_is_model_code = cache(source.is_model_code)


def storages() -> set[int]:
    """The memories of all tensors that somebody holds."""
    return _found(sys._getframe(1)).storages  # noqa: SLF001  # the only way to the variables of those who call


def containers() -> set[int]:
    """The identities of all lists, dicts and objects that somebody holds."""
    return set(_found(sys._getframe(1)).depths)  # noqa: SLF001


def _found(frame: FrameType | None) -> _Found:
    found = _Found()
    called = False
    while frame is not None:
        code = frame.f_code
        # Within the call of the model, what torch's own functions hold is on its way only.
        called = called or code.co_qualname == CALL
        if not source.is_own(code.co_filename) and (called or _is_model_code(code.co_filename)):
            # Who calls from outside holds what was passed; all that hangs on a caller may be a whole program.
            for value in frame.f_locals.values():
                found.add(value, 1 if called else _DEPTH)
        frame = frame.f_back
    for root in effects.watched_modules():
        for part in root.modules():
            found.add(vars(part), _DEPTH)
    return found


class _Found:
    """What is held: the memories of tensors, and how deep each other object was looked into."""

    def __init__(self) -> None:
        self.storages: set[int] = set()
        self.depths: dict[int, int] = {}

    def add(self, value: object, depth: int) -> None:
        """Note the tensors in a value, so many containers deep."""
        if isinstance(value, torch.Tensor):
            self.storages.add(storage_of(value))
        elif depth > self.depths.get(id(value), 0):
            self.depths[id(value)] = depth
            for each in _inside(value):
                self.add(each, depth - 1)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, list | tuple | set | frozenset):
        return value if len(value) < _MOST else ()
    if not isinstance(value, dict):
        if isinstance(value, type | ModuleType | FunctionType) or effects.is_of_torch(value):
            return ()
        value = getattr(value, "__dict__", None)
    return value.values() if isinstance(value, dict) else ()
