"""The store as a build uses it: a store that fails never fails a build that has begun.

`Cache.open` finds out before the build whether the store can be written, and raises `ReadOnly`. A disk that
fills up later costs a remark, and the build goes on without keeping results. Without a store nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aotpipe.build.events import Recorder
from aotpipe.errors import StoreError
from aotpipe.runtime.store import Entry, Kind, Source, Store

T = TypeVar("T")


@dataclass(slots=True)
class Cache:
    """A store, or None, and the recorder that is told when the store fails."""

    store: Store | None
    recorder: Recorder
    _changed: bool = False

    @classmethod
    def open(cls, recorder: Recorder, *, enabled: bool = True) -> Cache:
        """The user's store.

        Raises:
            ReadOnly, DiskFull, StoreError: It cannot be written: better said before the work than after.
        """
        if not enabled:
            return cls(None, recorder)
        store = Store.default()
        store.require_writable()
        return cls(store, recorder)

    @property
    def logs(self) -> Path | None:
        """Where compilers leave their logs."""
        return None if self.store is None else self.store.logs

    def load(self, kind: Kind, key: str, read: Callable[[Entry], T]) -> T | None:
        """What `read` makes of the entry under a key; None where there is none that it can read."""
        if self.store is None or (entry := self.store.get(kind, key)) is None:
            return None
        try:
            return read(entry)
        except FileNotFoundError:
            return None  # another process trimmed the store since the entry was verified
        except (ValueError, KeyError, TypeError):
            self.store.remove(kind, key)  # another version of aotpipe wrote it
            return None

    def put(
        self, kind: Kind, key: str, files: Callable[[], Mapping[str, Source]], *, replace: bool = False
    ) -> None:
        """Keep an entry if that is possible; `files` is called only where there is a store."""
        if self.store is None:
            return
        try:
            if replace:
                self.store.remove(kind, key)
            self.store.put(kind, key, files())
            self._changed = True
        except StoreError as error:
            self.recorder.remark(f"{error.message} ({error.reason}): the results of this build are not kept")

    def close(self) -> None:
        """Bring the store back under its cap."""
        if self.store is not None and self._changed:
            self.store.trim()
