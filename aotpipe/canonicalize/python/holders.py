"""Who holds a tensor while a model is traced: variables of running functions, containers, modules."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Final

import torch

from aotpipe import source
from aotpipe.canonicalize.python import effects
from aotpipe.canonicalize.python.identities import storage_of

_OWN: Final = str(Path(__file__).resolve().parents[2])
_DEPTH: Final = 4
# The function that calls the model.
CALL: Final = "called_in_mode.<locals>.inside"
_is_model_code = cache(source.is_model_code)


def is_held(storage: int) -> bool:
    """Whether somebody holds a tensor of this memory."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to the variables of those who call
    called = False
    while frame is not None:
        code = frame.f_code
        # Within the call of the model, what torch's own functions hold is on its way only.
        called = called or code.co_qualname == CALL
        is_asked = not code.co_filename.startswith(_OWN) and (called or _is_model_code(code.co_filename))
        # Who calls from outside holds what was passed; all that hangs on a caller may be a whole program.
        depth = 1 if called else _DEPTH
        if is_asked and any(_holds(value, storage, depth) for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return any(
        _holds(vars(part), storage, _DEPTH) for root in effects.watched_modules() for part in root.modules()
    )


def _holds(value: object, storage: int, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return storage_of(value) == storage
    if not depth:
        return False
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) < 10_000 and any(_holds(each, storage, depth - 1) for each in value)
    if not isinstance(value, dict):
        if isinstance(value, type | ModuleType | FunctionType) or effects.is_of_torch(value):
            return False
        value = getattr(value, "__dict__", None)
    return isinstance(value, dict) and any(_holds(each, storage, depth - 1) for each in value.values())
