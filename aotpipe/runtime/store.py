"""A content-addressed cache of stage results in the user's cache folder.

An entry is a folder of files under a kind and a full SHA-256 key. It appears whole or not at all (a
temporary folder, then a rename), is hashed again when it is read, and is dropped when a byte differs, so
that the caller makes it anew. Several processes may use one store at once: only removal takes a lock.

`AOTPIPE_CACHE` names another folder, `AOTPIPE_CACHE_SIZE` another cap than 10 GB (`500MB`, `20GB`).

Raises `ReadOnly` and `DiskFull`, typed by the cause; nothing half-written is left behind. Torch-free.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from aotpipe.errors import DiskFull, ReadOnly, StoreError
from aotpipe.runtime import temporary

Kind = Literal["record", "prepared", "compiled", "validated"]
Source = bytes | Callable[[Path], str | None]
"""A file's content, or a function that writes it to a path and gives its SHA-256 if it knows it."""

DEFAULT_MAX_BYTES: Final = 10 * 10**9
_INDEX: Final = "entry.json"
_UNITS: Final = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_ABANDONED_S: Final = 24 * 3600
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_KEY: Final = re.compile(r"[0-9a-f]{64}")


def digest(value: object) -> str:
    """The SHA-256 of a JSON value in one canonical form, so that equal values have equal digests."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def typed_os_errors(what: str, path: Path, *, hint: str = "") -> Iterator[None]:
    """Turn the OSErrors of writing below `path` into typed errors.

    Raises:
        DiskFull: There is no space left, or a quota is used up.
        ReadOnly: This user may not write there.
        StoreError: Writing failed for another reason.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        match error.errno:
            case code if code in _FULL:
                raise DiskFull(
                    f"no space for {what} in {path}", reason=reason, hint=hint or f"free space below {path}"
                ) from error
            case errno.EROFS | errno.EACCES | errno.EPERM:
                raise ReadOnly(
                    f"{what} cannot be written to {path}",
                    reason=reason,
                    hint=hint or f"make {path} writable or name another folder",
                ) from error
            case _:
                raise StoreError(f"{what} cannot be written to {path}", reason=reason, hint=hint) from error


@contextmanager
def workspace(purpose: str) -> Iterator[Path]:
    """A folder for temporary files while the body runs; `purpose`, a word, stands in its name.

    Raises:
        DiskFull: There is no space left for them.
        ReadOnly, StoreError: There is no folder for temporary files that can be written.
    """
    hint = "free space there, or set TMPDIR to another folder"
    with ExitStack() as stack:
        with typed_os_errors("temporary files", Path("TMPDIR"), hint=hint):
            place = Path(tempfile.gettempdir())
        with typed_os_errors("temporary files", place, hint=hint):
            folder = stack.enter_context(temporary.folder(place, f"aotpipe-{purpose}-", mode=0o700))
        try:
            yield folder
        except OSError as error:
            if error.errno not in _FULL:
                raise
            with typed_os_errors("temporary files", place, hint=hint):
                raise


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified entry; its files are there as long as no other process trims the store."""

    path: Path
    files: Mapping[str, str]
    """File name -> SHA-256."""

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        return (self.path / name).read_bytes()

    def text(self, name: str) -> str:
        """A file's text."""
        return (self.path / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Usage:
    """One kind's share of the store."""

    kind: str
    entries: int
    size_bytes: int


class Store:
    """A cache folder with a cap on its size.

    The folder is made when the first entry is written; `trim` reduces it to `max_bytes`, least recently used
    first.
    """

    def __init__(self, root: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.root = root
        self.max_bytes = max_bytes

    @classmethod
    def default(cls) -> Store:
        """The user's store, as the environment says.

        Raises:
            StoreError: `AOTPIPE_CACHE_SIZE` is no size.
        """
        folder = os.environ.get("AOTPIPE_CACHE")
        if not folder:
            from platformdirs import user_cache_dir

            folder = user_cache_dir("aotpipe", appauthor=False)
        size = os.environ.get("AOTPIPE_CACHE_SIZE", "")
        return cls(Path(folder).absolute(), max_bytes=parse_size(size) if size else DEFAULT_MAX_BYTES)

    def require_writable(self) -> None:
        """Find out before any work whether entries can be written.

        Raises:
            ReadOnly, DiskFull, StoreError: They cannot.
        """
        with self._work() as work:
            (work / "probe").write_bytes(b"\0")

    def get(self, kind: Kind, key: str) -> Entry | None:
        """The entry under a key, verified; None where there is none or a byte of it differs."""
        path = self._path(kind, key)
        files = _verified(path)
        if files is None:
            if path.exists():
                self._discard(path)
            return None
        with suppress(OSError):
            os.utime(path / _INDEX)  # what `trim` reads as the last use
        return Entry(path, files)

    def put(self, kind: Kind, key: str, files: Mapping[str, Source]) -> Entry:
        """Write an entry; where another process was faster, its entry stays.

        Raises:
            ReadOnly, DiskFull, StoreError: It cannot be written; nothing of it is left.
        """
        final = self._path(kind, key)
        with self._work() as work:
            digests = {name: _write(work / name, source) for name, source in files.items()}
            (work / _INDEX).write_text(json.dumps({"files": digests}), encoding="utf-8")
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                work.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        return Entry(final, digests)

    def remove(self, kind: Kind, key: str) -> None:
        """Drop one entry, if it is there."""
        self._discard(self._path(kind, key))

    def usage(self) -> tuple[Usage, ...]:
        """Entries and bytes by kind."""
        found = {kind: [0, 0] for kind in get_args(Kind)}
        for kind, _, _, size in self._entries():
            found[kind][0] += 1
            found[kind][1] += size
        return tuple(Usage(kind, count, size) for kind, (count, size) in found.items())

    def trim(self, max_bytes: int | None = None) -> int:
        """Remove the least recently used entries until the rest fits; returns the bytes freed.

        Returns at once where another process is trimming, or where the folder cannot be written.
        """
        from filelock import FileLock, Timeout

        limit = self.max_bytes if max_bytes is None else max_bytes
        freed = 0
        with suppress(Timeout, OSError), FileLock(self.root / "lock", timeout=0), self._temporary():
            self._sweep_logs()
            entries = sorted(self._entries(), key=lambda entry: entry[1])
            total = sum(size for *_, size in entries)
            for _, _, path, size in entries:
                if total - freed <= limit:
                    break
                self._discard(path)
                freed += size
        return freed

    def clear(self) -> int:
        """Remove every entry; returns the bytes freed.

        Raises:
            ReadOnly: The folder cannot be written.
        """
        if not self.root.exists():
            return 0
        self.require_writable()
        return self.trim(max_bytes=0)

    @property
    def logs(self) -> Path:
        """Where the logs of compilers and of aotpipe's own faults go."""
        return self.root / "logs"

    def _path(self, kind: Kind, key: str) -> Path:
        assert _KEY.fullmatch(key), f"not a full SHA-256: {key!r}"
        return self.root / kind / key[:2] / key

    def _temporary(self) -> AbstractContextManager[Path]:
        return temporary.folder(self.root / "tmp")

    @contextmanager
    def _work(self) -> Iterator[Path]:
        """A new folder, which is gone after the block unless it was renamed."""
        hint = f"set AOTPIPE_CACHE to another folder than {self.root}, or build with --no-cache"
        with typed_os_errors("the cache", self.root, hint=hint), self._temporary() as work:
            yield work

    def _entries(self) -> Iterator[tuple[str, int, Path, int]]:
        """Every entry: kind, last use in ns, path, size."""
        for kind in get_args(Kind):
            for path in (self.root / kind).glob("??/*"):
                with suppress(FileNotFoundError):  # another process dropped it
                    size = sum(file.stat().st_size for file in path.iterdir())
                    index = path / _INDEX
                    yield kind, index.stat().st_mtime_ns if index.exists() else 0, path, size

    def _discard(self, path: Path) -> None:
        """Make an entry vanish at once; what cannot be removed was read-only and will fail again."""
        with suppress(OSError), self._temporary() as grave:
            path.rename(grave / path.name)

    def _sweep_logs(self) -> None:
        for path in self.logs.glob("*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()


def parse_size(text: str) -> int:
    """Read a size such as `500MB` or `20GB` in bytes.

    Raises:
        StoreError: It is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise StoreError(f"not a size: {text!r}", hint="write it as 500MB or 20GB")
    return int(float(found[1]) * _UNITS[(found[2] or "").upper()])


def _verified(path: Path) -> Mapping[str, str] | None:
    """The files of an entry; None where a byte differs from what was written."""
    try:
        files = json.loads((path / _INDEX).read_bytes())["files"]
        if all(file_digest(path / name) == value for name, value in files.items()):
            return dict(files)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # whatever is wrong with it, it is not an entry that `put` wrote
    return None


def _write(path: Path, source: Source) -> str:
    if isinstance(source, bytes):
        path.write_bytes(source)
        return hashlib.sha256(source).hexdigest()
    return source(path) or file_digest(path)
