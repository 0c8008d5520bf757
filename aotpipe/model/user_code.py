"""What the user's code may not do to the process that runs it: end it, double it, or take all of its memory.

Each is a `ModelError` with the user's line, where Python would end without a word, or a second process would
go on beside the first and write the same files. Torch-free.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final, NoReturn

from aotpipe.errors import AotpipeError, ModelError, SourceLine
from aotpipe.model import source

_PROCESS: Final[ContextVar[int | None]] = ContextVar("process", default=None)


@contextmanager
def contained() -> Iterator[None]:
    """Run a body that calls the user's code, in this thread.

    `os.fork` and `os._exit` stay replaced afterwards; outside of such a body they do what they did.

    Raises:
        ModelError: The code ended Python (`sys.exit`, `os._exit`), forked, had no memory left, or raised what
            is no Exception.
        KeyboardInterrupt: As it comes.
    """
    _patch()
    token = _PROCESS.set(os.getpid())
    try:
        yield
    except (AotpipeError, KeyboardInterrupt):
        raise
    except MemoryError as error:
        raise ModelError(
            "no memory was left while the model was run",
            reason=str(error),
            hint="take smaller example inputs, or a machine with more memory",
            where=source.from_exception(error),
        ) from error
    except Exception:
        raise
    except BaseException as error:
        raise ModelError(
            f"the model raised {type(error).__name__}",
            reason=str(error),
            hint="raise an Exception, which says what is wrong" if not isinstance(error, SystemExit) else "",
            where=source.from_exception(error),
        ) from error
    finally:
        _PROCESS.reset(token)


@cache
def _patch() -> None:
    fork, leave = os.fork, os._exit

    def checked_fork() -> int:
        # A child of multiprocessing runs its function and ends; it never comes back here.
        caller = sys._getframe(1)  # noqa: SLF001
        module = caller.f_globals.get("__name__", "")
        if _PROCESS.get() == os.getpid() and not module.startswith("multiprocessing."):
            raise ModelError(
                "the model forked this process",
                reason="what builds it would run twice, and write the same files",
                hint="start another process with subprocess or multiprocessing",
                where=SourceLine(source.shown(caller.f_code.co_filename), caller.f_lineno),
            )
        return fork()

    def checked_exit(status: int) -> NoReturn:
        if _PROCESS.get() == os.getpid():
            raise SystemExit(status)
        leave(status)

    os.fork, os._exit = checked_fork, checked_exit
