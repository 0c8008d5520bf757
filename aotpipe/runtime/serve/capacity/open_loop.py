"""Asks a server at the moments of a Poisson process, whether or not it has answered, and times the answers.

A request is sent whether or not those before it have answers, so that none waits for a slow server unseen. A
latency counts from its sending; how late this program itself was says `Load.late_s`. It takes up to a core,
which a server on the same machine lacks.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.errors import ServeError

_ANSWER_TIMEOUT_S = 10.0
_MOST_CONNECTIONS = 900
"""`select` takes descriptors below 1024."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked and answered.

    Attributes:
        statuses: How many answers of each HTTP status; 0 stands for requests without an answer.
        sent_s: When each request was sent, in seconds from the first one that was due.
        latencies_s: Of the answers with status 200, in the order in which they came.
        late_s: How late requests were sent, at the 99th percentile.
        client_s: What this process took of a core for a request.
    """

    statuses: Mapping[int, int]
    sent_s: Array
    latencies_s: Array
    late_s: float
    client_s: float
    seconds: float

    @property
    def rps(self) -> float:
        """Requests answered with 200 in a second."""
        return len(self.latencies_s) / self.seconds


class Connection:
    """A connection on which one request at a time is answered."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0.0
        self._received = b""

    def fileno(self) -> int:
        """The socket's, for `select`."""
        return self.socket.fileno()

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.sent = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> int | None:
        """The status of the answer once all of it has come; None before.

        Raises:
            ServeError: The server closed the connection.
        """
        data = self.socket.recv(1 << 20)
        if not data:
            raise ServeError("the server closed a connection")
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return None
        _, _, after = head.lower().partition(b"\r\ncontent-length:")
        if len(body) < int(after.split(b"\r\n", 1)[0] or 0):
            return None
        self._received = b""
        return int(head.split(b" ", 2)[1])

    def ask(self, request: bytes) -> int:
        """The status of an answer.

        Raises:
            ServeError: The server closed the connection.
        """
        self.send(request)
        while (status := self.receive()) is None:
            pass
        return status


def ask(port: int, request: bytes, moments: Array) -> Load:
    """Ask a server on this machine at some moments.

    Args:
        port: Where it listens.
        request: The bytes of a request.
        moments: When to ask, ascending, in seconds.

    Raises:
        ServeError: The server closed a connection, or takes none.
    """
    asked = _Asked(port, request)
    try:
        for moment in moments.tolist():
            asked.receive_until(asked.start + moment)
            asked.send()
        end = time.perf_counter() + _ANSWER_TIMEOUT_S
        while asked.waiting and time.perf_counter() < end:
            asked.receive(end - time.perf_counter())
    except (OSError, ServeError, ValueError) as error:
        raise ServeError("the server did not answer", reason=str(error)) from error
    finally:
        seconds, spent = time.perf_counter() - asked.start, time.process_time() - asked.spent
        for each in (*asked.free, *asked.waiting):
            each.socket.close()
    if asked.waiting:
        asked.statuses[0] = len(asked.waiting)
    late_s = float(np.percentile(np.array(asked.sent) - moments, 99))
    return Load(
        asked.statuses, np.array(asked.sent), np.array(asked.latencies), late_s, spent / len(moments), seconds
    )


class _Asked:
    """The connections of a client, and what came of its requests."""

    def __init__(self, port: int, request: bytes) -> None:
        self.port, self.request = port, request
        self.free: list[Connection] = []
        self.waiting: dict[Connection, None] = {}
        self.statuses: Counter[int] = Counter()
        self.sent: list[float] = []
        self.latencies: list[float] = []
        self.start, self.spent = time.perf_counter(), time.process_time()

    def send(self) -> None:
        while not self.free and len(self.waiting) >= _MOST_CONNECTIONS:
            self.receive(_ANSWER_TIMEOUT_S)
        connection = self.free.pop() if self.free else Connection(self.port)
        connection.send(self.request)
        self.sent.append(connection.sent - self.start)
        self.waiting[connection] = None

    def receive_until(self, moment: float) -> None:
        """Take the answers that come before a moment."""
        while (left := moment - time.perf_counter()) > 0:
            self.receive(left)

    def receive(self, timeout_s: float) -> None:
        """Take the answers that are there, or wait for one."""
        # The timeouts of epoll and poll are whole milliseconds in Python.
        ready, _, _ = select.select(list(self.waiting), (), (), max(timeout_s, 0.0))
        for connection in ready:
            if (status := connection.receive()) is None:
                continue
            if status == 200:
                self.latencies.append(time.perf_counter() - connection.sent)
            self.statuses[status] += 1
            del self.waiting[connection]
            self.free.append(connection)
