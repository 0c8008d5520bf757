"""Puts a folder in the place of another in one step.

Whoever looks sees the old folder or the new one, never a part and, on Linux, never neither. What a killed
process left beside the destination is removed by the next one. Torch-free.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_SUFFIX: Final = ".partial"


@contextmanager
def folder(destination: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the destination's place at the end of the block.

    Where the block raises, the new folder is removed and the destination is as it was.

    Raises:
        OSError: The destination cannot be written.
    """
    _sweep(destination)
    work = destination.with_name(f".{destination.name}.{os.getpid()}-{uuid.uuid4().hex}{_SUFFIX}")
    try:
        work.mkdir()
        yield work
        _put(work, destination)
    finally:
        # After an exchange this is the folder that was replaced.
        shutil.rmtree(work, ignore_errors=True)


def _put(work: Path, destination: Path) -> None:
    try:
        work.rename(destination)  # nothing there, or an empty folder
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(work, destination):
            _swap(work, destination)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two paths in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):  # a file system or kernel without it
        return False
    raise OSError(code, os.strerror(code), str(second))


def _swap(work: Path, destination: Path) -> None:
    """Rename twice, where one step is not possible; the old folder comes back if the second rename fails."""
    aside = work.with_name(work.name.removesuffix(_SUFFIX) + f"-old{_SUFFIX}")
    destination.rename(aside)
    try:
        work.rename(destination)
    except BaseException:
        aside.rename(destination)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(destination: Path) -> None:
    """Remove what processes that are gone left of this destination."""
    pattern = re.compile(rf"\.{re.escape(destination.name)}\.(\d+)-\w+(-old)?{re.escape(_SUFFIX)}")
    with suppress(OSError):
        for path in destination.parent.iterdir():
            found = pattern.fullmatch(path.name)
            if found and not _is_alive(int(found[1])):
                shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
