"""What a model and a bundle were made from, and whether it is still the same. Torch-free.

A `Record` is kept in the store under a digest of what was asked for, and the next build replaces it. That of
a prepared model holds a `Snapshot` of all that it depends on, that of a finished build one of the files that
it wrote (`written`).

Files are compared by their SHA-256. A file whose size, times and inode are those of the last look is taken as
unchanged without reading it, but only where that is safe: the change time, which no user can set, must lie
clearly before the look, so that a later write could not fall into the same tick of the clock.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from aotpipe.build.cache import Cache
from aotpipe.core.serialization import dumps, loads
from aotpipe.runtime import toolchain
from aotpipe.runtime.store import digest, file_digest

_FILE: Final = "record.json"
_FINE_TICK_NS: Final = 100 * 10**6
_COARSE_TICK_NS: Final = 2 * 10**9
"""How far two writes must lie apart to have different times: kernels tick every 10 ms or faster, but some
file systems keep whole seconds only (FAT: every second one)."""
_CLOCK_LAG_NS: Final = 20 * 10**6
"""How far a file system's clock, which ticks, may lie behind the time of day."""
_ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file's digest, and what `stat` said when it was taken (None where that proves nothing)."""

    sha256: str
    stat: tuple[int, ...] | None

    @classmethod
    def take(cls, path: Path, sha256: str | None = None) -> FileStamp:
        """Look at a file now; `sha256` saves reading it where its digest is known.

        Raises:
            OSError: It cannot be read.
        """
        before = _stat(path)
        sha256 = sha256 or file_digest(path)
        return cls(sha256, before if before == _stat(path) and _is_settled(before) else None)

    def renewed(self, path: Path) -> FileStamp | None:
        """The stamp of a file that still has these bytes, None where it has others or is gone."""
        try:
            if self.stat is not None and self.stat == _stat(path):
                return self
            fresh = FileStamp.take(path)
        except OSError:
            return None
        return fresh if fresh.sha256 == self.sha256 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What files, folders and environment variables held at one time.

    A model depends on the user's modules, on what these read, and on the record of each installed package
    that they imported (which holds the digests of the package's files). A build wrote a bundle and a report.

    Attributes:
        files: Absolute path -> stamp.
        folders: Folders that the user's code listed, or that were written -> digest of the names in them.
        variables: Environment variables that the user's code read -> digest of the value.
    """

    files: Mapping[str, FileStamp]
    folders: Mapping[str, str]
    variables: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 over the content of all of it, times and inodes left out."""
        files = {path: stamp.sha256 for path, stamp in self.files.items()}
        return digest([files, dict(self.folders), dict(self.variables)])

    def renewed(self) -> Snapshot | None:
        """The same with fresh stamps where nothing has changed, else None."""
        if any(variable_digest(name) != value for name, value in self.variables.items()):
            return None
        if any(folder_digest(path) != value for path, value in self.folders.items()):
            return None
        files: dict[str, FileStamp] = {}
        for path, stamp in self.files.items():
            if (fresh := stamp.renewed(Path(path))) is None:
                return None
            files[path] = fresh
        return replace(self, files=files)


def written(folders: Iterable[Path], digests: Mapping[Path, str]) -> Snapshot:
    """All that lies in some folders now; `digests` saves reading files whose SHA-256 is known."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return Snapshot(
        files={str(path): FileStamp.take(path, digests.get(path)) for path in paths if path.is_file()},
        folders={str(path): folder_digest(str(path)) for path in paths if path.is_dir()},
        variables={},
    )


def stamps(paths: Iterable[str], *, since_ns: int) -> dict[str, FileStamp] | None:
    """Stamps of files that were read after `since_ns`; None where one has changed since then.

    Such a file may have been read before or after the change, so nothing is known about what was read.
    """
    found: dict[str, FileStamp] = {}
    for path in sorted(paths):
        try:
            if Path(path).stat().st_ctime_ns >= since_ns - _CLOCK_LAG_NS:
                return None
            found[path] = FileStamp.take(Path(path))
        except OSError:
            return None
    return found


def folder_digest(path: str) -> str:
    """SHA-256 over the names in a folder."""
    try:
        return digest(sorted(os.listdir(path)))  # noqa: PTH208  # the names are all that counts
    except OSError:
        return _ABSENT


def variable_digest(name: str) -> str:
    """SHA-256 of an environment variable's value: it may be a secret, and is not kept."""
    value = os.environ.get(name)
    return _ABSENT if value is None else hashlib.sha256(os.fsencode(value)).hexdigest()


def _stat(path: Path) -> tuple[int, ...]:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"not a regular file: {path}")
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


def _is_settled(found: tuple[int, ...]) -> bool:
    changed = found[2]
    tick = _FINE_TICK_NS if changed % 10**9 else _COARSE_TICK_NS
    return max(found[1], changed) + tick < time.time_ns()


def front_key(ref: str, settings: Mapping[str, Any]) -> str:
    """The digest of a request for a prepared model: the same request from the same place.

    Paths are part of it, since the same words from another folder may name another model.
    """
    place = [os.path.abspath(part or ".") for part in sys.path]  # noqa: PTH100  # empty means here
    python = [sys.version, platform.platform()]
    return digest([ref, os.getcwd(), place, python, toolchain.tools_digest(), dict(settings)])  # noqa: PTH109


def build_key(front: str, out: Path, settings: Mapping[str, Any]) -> str:
    """The digest of a request for a bundle."""
    return digest([front, str(out), toolchain.host_digest(), dict(settings)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A prepared model's name, its key in the store, and what was seen of its sources or of a build of it."""

    name: str
    snapshot: Snapshot
    prepared: str

    @classmethod
    def read(cls, cache: Cache, key: str) -> Self | None:
        """The record under a key; None where there is none."""
        return cache.load("record", key, lambda entry: loads(cls, entry.text(_FILE)))

    @classmethod
    def fresh(cls, cache: Cache, key: str | None) -> Self | None:
        """The record under a key if nothing has changed since, else None; reads only what it names."""
        if key is None or (record := cls.read(cache, key)) is None:
            return None
        if (snapshot := record.snapshot.renewed()) is None:
            return None
        if snapshot != record.snapshot:
            record = replace(record, snapshot=snapshot)
            record.save(cache, key)
        return record

    def save(self, cache: Cache, key: str) -> None:
        """Keep it in the place of the one before."""
        cache.put("record", key, lambda: {_FILE: dumps(self)}, replace=True)
