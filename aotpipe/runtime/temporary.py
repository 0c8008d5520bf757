"""Folders that are there for as long as a block runs, also where its process is killed. Torch-free.

A process holds a lock (flock) on a folder that it works in, and the kernel frees it when the process ends,
however that is. So whoever makes the next folder of the kind can tell which of those that lie there nobody
works in, also where processes of other containers share the parent, and removes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final


@contextmanager
def folder(parent: Path, prefix: str = "", suffix: str = "", *, mode: int = 0o777) -> Iterator[Path]:
    """A new folder, which is gone after the block unless the block renamed it.

    Raises:
        OSError: It cannot be made.
    """
    _sweep(parent, prefix, suffix)
    while True:
        path = parent / f"{prefix}{uuid.uuid4().hex}{suffix}"
        path.mkdir(mode, parents=True)
        lock = _locked(path)
        # Between the two calls it was nobody's: it may have been swept, or be being swept.
        if lock is not _HELD and path.exists():
            break
        _close(lock)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _close(lock)


_HELD: Final = -1
_NONE: Final = -2


def _locked(path: Path) -> int:
    """A descriptor that holds the lock of a folder; `_HELD` by another, `_NONE` where there are no locks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return _NONE
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        return _HELD if isinstance(error, BlockingIOError) else _NONE
    return descriptor


def _close(lock: int) -> None:
    if lock >= 0:
        os.close(lock)


def _sweep(parent: Path, prefix: str, suffix: str) -> None:
    """Remove the folders of this kind that nobody works in."""
    # The number of a process stood in the names of older releases.
    kind = re.compile(rf"{re.escape(prefix)}(\d+-)?[0-9a-f]{{32}}(-old)?{re.escape(suffix)}")
    with suppress(OSError):
        for path in [each for each in parent.iterdir() if kind.fullmatch(each.name)]:
            if (lock := _locked(path)) >= 0:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
