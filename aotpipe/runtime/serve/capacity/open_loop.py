"""Asks a server at the moments of a Poisson process, whether or not it has answered, and times the answers.

A latency counts from the moment at which the request was to be sent, so that what waits because this program
or the server is late counts too. It runs in two threads of this process and takes up to a core, which a
server on the same machine lacks.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.errors import ServeError

_ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked and answered.

    Attributes:
        statuses: How many answers of each HTTP status; 0 stands for requests without an answer.
        latencies_s: Of the answers with status 200.
        late_s: How late requests were sent, at the 99th percentile.
    """

    statuses: Mapping[int, int]
    latencies_s: Array
    late_s: float
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
        self.due = 0.0
        self._received = b""

    def send(self, request: bytes, due: float) -> None:
        """Send a request that is due at a moment."""
        self.due = due
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
        self.send(request, 0.0)
        while (status := self.receive()) is None:
            pass
        return status


def ask(port: int, request: bytes, *, rps: float, requests: int, seed: int = 0) -> Load:
    """Ask a server on this machine at random moments.

    Args:
        port: Where it listens.
        request: The bytes of a request.
        rps: Requests in a second, on average.
        requests: How many.
        seed: Of the moments.

    Raises:
        ServeError: The server closed a connection, or takes none.
    """
    moments = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rps, requests)).tolist()
    free: deque[Connection] = deque()
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    late: list[float] = []
    failed: list[Exception] = []
    is_over = threading.Event()
    with selectors.DefaultSelector() as selector:

        def receive() -> None:
            try:
                while not is_over.is_set() and sum(statuses.values()) < requests:
                    for key, _ in selector.select(0.05):
                        connection: Connection = key.data
                        if (status := connection.receive()) is None:
                            continue
                        if status == 200:
                            latencies.append(time.perf_counter() - connection.due)
                        statuses[status] += 1
                        free.append(connection)
            except (OSError, ServeError, ValueError) as error:
                failed.append(error)

        receiving = threading.Thread(target=receive, daemon=True)
        connections: list[Connection] = []
        start = time.perf_counter()
        try:
            receiving.start()
            for moment in moments:
                due = start + moment
                if (left := due - time.perf_counter()) > 0:
                    time.sleep(left)
                if failed:
                    break
                try:
                    connection = free.popleft()
                except IndexError:
                    connection = Connection(port)
                    connections.append(connection)
                    selector.register(connection.socket, selectors.EVENT_READ, connection)
                late.append(time.perf_counter() - due)
                connection.send(request, due)
            receiving.join(_ANSWER_TIMEOUT_S)
        except OSError as error:
            failed.append(error)
        finally:
            is_over.set()
            receiving.join()
            seconds = time.perf_counter() - start
            for each in connections:
                each.socket.close()
    if failed:
        raise ServeError("the server did not answer", reason=str(failed[0])) from failed[0]
    if missing := requests - sum(statuses.values()):
        statuses[0] = missing
    return Load(statuses, np.array(latencies), float(np.percentile(late, 99)), seconds)
