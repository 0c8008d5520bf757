"""What a server and one of its workers talk through: a socket for messages, shared memory for tensors.

A message is four bytes of its length and one JSON value. The bundle in a worker's first message is a pickle,
so that a worker need not read the manifest again, for which it would import pydantic (10 MB, and a quarter of
its start); what a worker answers has none. Tensors lie in an `Arena`, a file without a name that both sides
map: its writer lets it grow, its reader maps it again when a message says that it has grown. A worker has
`SLOTS` of them for requests and as many for answers, so that a request is written while another one runs.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import tempfile
from base64 import b64decode, b64encode
from typing import Any, Final

import orjson

from aotpipe.runtime.bundle.files import Bundle, Trusted

SLOTS: Final = 2
"""How many messages a worker has at once: the one that runs, and the one after it."""

ALIGNMENT: Final = 64
"""Where a tensor begins in an arena, in bytes: what IREE uses where it lies."""

_LENGTH_BYTES: Final = 4
_FIRST_BYTES: Final = 1 << 16


class Arena:
    """Shared memory that grows; `fd` is the file's, which a child inherits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map: mmap.mmap | None = None
        # What has no elements is written, too, and may come first.
        self.view = memoryview(bytearray())

    @classmethod
    def new(cls) -> Arena:
        """One of its own file, in memory where the system has such files.

        Raises:
            OSError: There is no memory for it, or there are too many files.
        """
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("aotpipe-tensors", 0))
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    def reserve(self, size: int) -> memoryview:
        """Make room for as many bytes, as the writer does.

        Raises:
            OSError: There is no memory for them.
        """
        if size > len(self.view):
            room = max(_FIRST_BYTES, 1 << (size - 1).bit_length())
            # Where memory is short this fails here, and not by a signal when the bytes are written.
            allocate = getattr(os, "posix_fallocate", None)
            allocate(self.fd, 0, room) if allocate else os.ftruncate(self.fd, room)
            self.mapped(room)
        return self.view

    def mapped(self, size: int) -> memoryview:
        """See as many bytes at least, as the reader does."""
        if size > len(self.view):
            # The old map lives as long as somebody's view of it.
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
            self.view = memoryview(self._map)
        return self.view

    def close(self) -> None:
        """Release the file; maps are released with the last view of them."""
        self.view = memoryview(bytearray())
        self._map = None
        os.close(self.fd)


def sent(bundle: Bundle) -> str:
    """A bundle as it is told to a worker, with the manifest that was read."""
    trusted = Trusted(bundle.path, bundle.manifest, begins=bundle.begins)
    return b64encode(pickle.dumps(trusted)).decode()


def received(data: str) -> Trusted:
    """What `sent` was given."""
    bundle: Trusted = pickle.loads(b64decode(data))  # noqa: S301  # the server's own
    return bundle


def packed(message: Any) -> bytes:
    """A message's bytes."""
    body = orjson.dumps(message)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


class Unpacker:
    """Gives the messages of a stream of bytes, which may end in the middle of one."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are whole by now."""
        data = self._rest + data if self._rest else data
        found, start = [], 0
        while len(data) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            end = body + int.from_bytes(data[start:body], "little")
            if end > len(data):
                break
            found.append(orjson.loads(data[body:end]))
            start = end
        self._rest = data[start:]
        return found


def receive(source: socket.socket) -> Any:
    """Wait for a message.

    Raises:
        EOFError: The other side is gone.
    """
    head = _exactly(source, _LENGTH_BYTES)
    return orjson.loads(_exactly(source, int.from_bytes(head, "little")))


def _exactly(source: socket.socket, count: int) -> bytes:
    data = source.recv(count)
    while len(data) < count:
        if not (more := source.recv(count - len(data))):
            raise EOFError
        data += more
    return data


def open_arenas(fds: list[int]) -> tuple[list[Arena], list[Arena]]:
    """The arenas of requests and of answers, from their files in that order."""
    arenas = [Arena(fd) for fd in fds]
    return arenas[:SLOTS], arenas[SLOTS:]


def aligned(offset: int) -> int:
    """The next offset at which a tensor may begin."""
    return -(-offset // ALIGNMENT) * ALIGNMENT
