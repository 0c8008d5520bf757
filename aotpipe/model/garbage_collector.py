"""The garbage collector: what a walk over torch's objects costs, and what only such a walk finds.

Importing torch leaves about a million objects that live as long as the process. Each full collection walks
them all (0.1 s), and tracing a model causes dozens. They are set aside once, where torch is imported by us.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Final

from aotpipe.model import source

_RARER: Final = 50


def import_torch() -> None:
    """Import torch; where it was not imported yet, later collections pass over its objects."""
    if "torch" in sys.modules:
        return
    import torch  # noqa: F401

    gc.freeze()


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Make collections pass over earlier objects, and rarer: they took a fifth of the time of an export."""
    before = gc.get_threshold()
    is_first = not gc.get_freeze_count()
    if is_first:
        gc.freeze()
    gc.set_threshold(before[0] * _RARER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if is_first:
            gc.unfreeze()


@contextmanager
def paused() -> Iterator[None]:
    """Collect nothing while the body runs: finalizers and callbacks would run in the middle of any code."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def function_of(frame: FrameType) -> FunctionType | None:
    """The function whose call a frame was, once that has ended; None where the frame does not tell."""
    held = (each for each in gc.get_referents(frame) if type(each) is FunctionType)
    return next((each for each in held if each.__code__ is frame.f_code), None)


def functions_of(code: CodeType) -> list[FunctionType]:
    """The live functions that run a code; this walks all objects of the process (0.1 s)."""
    # Objects that are set aside are found by no walk.
    gc.unfreeze()
    return [each for each in gc.get_referrers(code) if type(each) is FunctionType and each.__code__ is code]


def makers_of(code: CodeType) -> list[FunctionType]:
    """The live functions that make one of a code, the innermost first; this walks all objects."""
    outer = {code.co_qualname[: found.start()] for found in re.finditer(r"\.<locals>\.", code.co_qualname)}
    if not outer:
        return []
    gc.unfreeze()
    functions = (each for each in gc.get_objects() if type(each) is FunctionType)
    named = [each for each in functions if each.__code__.co_qualname in outer]
    made = [each for each in named if any(one is code for one in source.codes_in(each.__code__))]
    return sorted(made, key=lambda each: -len(each.__code__.co_qualname))
