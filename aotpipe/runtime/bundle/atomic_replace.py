"""Puts a folder in the place of another in one step.

Whoever looks sees the old folder or the new one, never a part and, on Linux, never neither. What a killed
process left beside the destination, the next one removes. Torch-free.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aotpipe.runtime import temporary

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
    # After an exchange it is the folder that was replaced.
    with temporary.folder(destination.parent, f".{destination.name}.", _SUFFIX) as work:
        yield work
        _put(work, destination)


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
