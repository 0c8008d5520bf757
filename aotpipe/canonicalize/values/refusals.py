"""What is said to the user: errors and notes with the line; and what texts show of traced values."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from aotpipe.canonicalize.values import trace
from aotpipe.core.stages import Finding, Severity
from aotpipe.errors import ExportFailed
from aotpipe.model import source

TEXT: Final = "a text is made of a value that is known to a run of the graph only"
TEXT_HINT: Final = "compute with numbers; texts are for errors and for print"


@dataclass(slots=True)
class _Messages:
    """Whether a message is being made."""

    is_made: bool = False


def refusal(message: str, hint: str, code: str = "") -> ExportFailed:
    """An error for the user's line that called; `code` as `aotpipe check` has it."""
    return ExportFailed(message, hint=hint, where=source.of_caller(), code=code)


def note(severity: Severity, code: str, message: str) -> None:
    """Keep a note about the user's line that called, once."""
    finding = Finding(severity=severity, code=code, message=message, where=source.of_caller())
    trace.current().findings[finding] = None


def message() -> AbstractContextManager[None]:
    """Texts that are made inside may show traced values: nobody computes with them."""
    return trace.assigned(trace.part(_Messages), is_made=True)


def is_message() -> bool:
    """Whether a text that is made now is only shown."""
    return trace.part(_Messages).is_made


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
    if is_message():
        return _Shown("...")
    raise refusal(TEXT, TEXT_HINT, "text-from-tensor")
