"""Requests at random moments, against servers of the test's own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from aotpipe.errors import ServeError
from aotpipe.runtime.serve.capacity import open_loop
from aotpipe.runtime.serve.capacity.simulation import poisson

REQUEST = b"GET / HTTP/1.1\r\n\r\n"


def answering(serve: Callable[[socket.socket], None]) -> socket.socket:
    """A listener each of whose connections a thread answers."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            serve(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def test_each_request_is_sent_though_none_is_answered_yet() -> None:
    def slow(connection: socket.socket) -> None:
        number = 0
        while connection.recv(1000):
            time.sleep(0.1)
            status = b"200 OK" if number % 2 == 0 else b"429 Too Many"
            number += 1
            # In two parts, of which the first ends within the body.
            connection.sendall(
                b"HTTP/1.1 "
                + status
                + b"\r\nInference-Header-Content-Length: 1\r\nContent-Length: 4\r\n\r\nab"
            )
            time.sleep(0.01)
            connection.sendall(b"cd")

    with closing(answering(slow)) as listener:
        moments = poisson(200, 60, seed=1)
        found = open_loop.ask(listener.getsockname()[1], REQUEST, moments)
    assert sum(found.statuses.values()) == 60
    assert set(found.statuses) == {200, 429}
    assert len(found.latencies_s) == found.statuses[200]
    assert found.latencies_s.min() >= 0.11
    assert found.seconds < 60 * 0.11
    assert len(found.sent_s) == 60
    assert (found.sent_s >= moments).all()
    assert 0 < found.client_s < found.seconds / 60


def test_a_server_that_closes_is_told() -> None:
    with (
        closing(answering(lambda connection: connection.close())) as listener,
        pytest.raises(ServeError, match="did not answer"),
    ):
        open_loop.ask(listener.getsockname()[1], REQUEST, poisson(100, 20))


def test_requests_without_an_answer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_loop, "_ANSWER_TIMEOUT_S", 0.2)

    def silent(connection: socket.socket) -> None:
        while connection.recv(1000):
            pass

    with closing(answering(silent)) as listener:
        found = open_loop.ask(listener.getsockname()[1], REQUEST, poisson(1000, 5))
    assert found.statuses == {0: 5}
    assert found.rps == 0
