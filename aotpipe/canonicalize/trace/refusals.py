"""What is said to the user: errors and notes with the line; and what texts show of traced values."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from aotpipe.core.stages import Finding, Severity
from aotpipe.errors import ExportFailed
from aotpipe.model import source

TEXT: Final = "a text is made of a value that is known to a run of the graph only"
TEXT_HINT: Final = "compute with numbers; texts are for errors and for print"
_messages = 0
_notes: dict[Finding, None] = {}


def refusal(message: str, hint: str) -> ExportFailed:
    """An error for the user's line that called."""
    return ExportFailed(message, hint=hint, where=source.of_caller())


def note(severity: Severity, code: str, message: str) -> None:
    """Keep a note about the user's line that called, once."""
    _notes[Finding(severity=severity, code=code, message=message, where=source.of_caller())] = None


@contextmanager
def noted() -> Iterator[Collection[Finding]]:
    """Give the notes that are kept inside."""
    _notes.clear()
    try:
        yield _notes
    finally:
        _notes.clear()


@contextmanager
def message() -> Iterator[None]:
    """Texts that are made inside may show traced values: nobody computes with them."""
    global _messages
    _messages += 1
    try:
        yield
    finally:
        _messages -= 1


def is_message() -> bool:
    """Whether a text that is made now is only shown."""
    return _messages > 0


class _Shown(str):
    """What a message shows of a traced value, whatever its format."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)


def text() -> str:
    """A traced value as a text.

    Raises:
        ExportFailed: Nothing says that the text is a message.
    """
    if _messages:
        return _Shown("...")
    raise refusal(TEXT, TEXT_HINT)
