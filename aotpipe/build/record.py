"""What earlier builds left in the store: from what a model was made, and which folder holds its bundle.

A `FrontRecord` says which prepared model belongs to which dependencies, a `BuildRecord` which files a
finished build wrote. Both are kept under a digest of what was asked for, and replaced by the next build.
Torch-free.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from aotpipe.build.cache import Cache
from aotpipe.build.dependencies import Dependencies, FileStamp, renewed_files
from aotpipe.core.serialization import dumps, loads
from aotpipe.runtime import toolchain
from aotpipe.runtime.store import Entry, digest

_FILE = "record.json"


def front_key(ref: str, settings: Mapping[str, Any]) -> str:
    """The digest of a request for a prepared model: the same request from the same place.

    Paths are part of it, since the same words from another folder may name another model.
    """
    tools = toolchain.current()
    place = [os.path.abspath(part or ".") for part in sys.path]  # noqa: PTH100  # empty means here
    python = [sys.version, platform.platform()]
    return digest([ref, os.getcwd(), place, python, tools.digest, dict(settings)])  # noqa: PTH109


def build_key(front: str, out: Path, settings: Mapping[str, Any]) -> str:
    """The digest of a request for a bundle."""
    return digest([front, str(out), toolchain.current().host_digest, dict(settings)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontRecord:
    """A prepared model's name, what it was made of, and its key in the store."""

    name: str
    dependencies: Dependencies
    prepared: str

    @classmethod
    def fresh(cls, cache: Cache, key: str) -> Self | None:
        """The record of a model that has not changed since, else None."""
        record = cache.load("record", key, cls._read)
        dependencies = record.dependencies.renewed() if record else None
        if record is None or dependencies is None:
            return None
        if dependencies is not record.dependencies and dependencies != record.dependencies:
            record = replace(record, dependencies=dependencies)
            record.save(cache, key)
        return record

    def save(self, cache: Cache, key: str) -> None:
        """Keep it in the place of the one before, whose prepared model nobody will ask for again."""
        before = cache.load("record", key, self._read)
        if before is not None and before.prepared != self.prepared and cache.store is not None:
            cache.store.remove("prepared", before.prepared)
        cache.put("record", key, lambda: {_FILE: dumps(self)}, replace=True)

    @classmethod
    def _read(cls, entry: Entry) -> Self:
        return loads(cls, entry.text(_FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """The files that a build wrote: the bundle's and its report's."""

    prepared: str
    files: Mapping[str, FileStamp]

    @classmethod
    def of(cls, prepared: str, folders: Iterable[Path], digests: Mapping[Path, str]) -> Self:
        """Look at what lies in the folders now; `digests` saves reading files whose SHA-256 is known."""
        paths = [path for folder in folders for path in _files_below(folder)]
        return cls(
            prepared=prepared, files={str(path): FileStamp.take(path, digests.get(path)) for path in paths}
        )

    @classmethod
    def intact(cls, cache: Cache, key: str, prepared: str, folders: Iterable[Path]) -> bool:
        """Whether the last build was of this prepared model, and every file is as it wrote it."""
        record = cache.load("record", key, cls._read)
        if record is None or record.prepared != prepared:
            return False
        if {str(path) for folder in folders for path in _files_below(folder)} != set(record.files):
            return False
        files = renewed_files(record.files)
        if files is not None and files != record.files:
            replace(record, files=files).save(cache, key)
        return files is not None

    def save(self, cache: Cache, key: str) -> None:
        """Keep it in the place of the one before."""
        cache.put("record", key, lambda: {_FILE: dumps(self)}, replace=True)

    @classmethod
    def _read(cls, entry: Entry) -> Self:
        return loads(cls, entry.text(_FILE))


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
