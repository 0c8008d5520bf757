"""Finds the line of a model that changes something, by running it line by line.

`changing(call, token)` calls a model and gives the first line after which `token()` is another than before;
None where that is not seen, as when a C extension changes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from aotpipe.errors import SourceLine
from aotpipe.model import source


def changing(call: Callable[[], object], token: Callable[[], object]) -> SourceLine | None:
    """The line of the model's code that changes a token."""
    tracer = _Tracer(token)
    before = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        call()
    except Exception:  # noqa: BLE001 what a model raises, it raises without being looked at too
        return tracer.found
    finally:
        sys.settrace(before)
    return tracer.found


class _Tracer:
    def __init__(self, token: Callable[[], object]) -> None:
        self._token = token
        self._last = token()
        self._at: SourceLine | None = None
        self.found: SourceLine | None = None

    def enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """A function is entered: only a model's is followed."""
        if self.found is not None or not source.is_model_code(frame.f_code.co_filename):
            return None
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        # A line has run when the next one begins, or when its function returns.
        if self.found is None and self._token() != self._last:
            self.found = self._at
            return None
        self._at = _line(frame if event != "return" else frame.f_back)
        return self._step


def _line(frame: FrameType | None) -> SourceLine | None:
    while frame is not None and not source.is_model_code(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else SourceLine(source.shown(frame.f_code.co_filename), frame.f_lineno)
