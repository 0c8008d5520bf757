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
        # Between the two calls it was nobody's, and may have been swept.
        if path.exists():
            break
        _close(lock)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _close(lock)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None where it is held, or cannot be had here."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
        else:
            return descriptor
    return None


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _sweep(parent: Path, prefix: str, suffix: str) -> None:
    """Remove the folders of this kind that nobody works in."""
    # The number of a process stood in the names of older releases.
    kind = re.compile(rf"{re.escape(prefix)}(\d+-)?[0-9a-f]{{32}}(-old)?{re.escape(suffix)}")
    with suppress(OSError):
        for path in [each for each in parent.iterdir() if kind.fullmatch(each.name)]:
            if (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
