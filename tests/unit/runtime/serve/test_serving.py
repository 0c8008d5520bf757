"""How a server begins and ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

from tests.unit.runtime.serve.conftest import Server

Start = Callable[..., Server]
BODY = b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'


def test_sigterm_under_load_loses_no_request(serve: Start) -> None:
    server = serve("mlp")
    lost: list[BaseException] = []
    answered: list[int] = []

    def ask() -> None:
        while True:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
            try:
                connection.connect()
            except OSError:
                return  # the server takes no more
            try:
                while True:
                    connection.request("POST", "/v2/models/mlp/infer", BODY)
                    answer = connection.getresponse()
                    answer.read()
                    answered.append(answer.status)
                    if answer.getheader("connection") == "close":
                        break
            except Exception as error:
                lost.append(error)
                return
            finally:
                connection.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert lost == []
    assert set(answered) == {200}


def test_a_server_that_ends_is_not_ready_and_says_so(serve: Start) -> None:
    server = serve("mlp", options=("--drain-s", "2"))
    assert server.ask("/v2/health/ready")[0] == 200
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    time.sleep(0.5)
    assert server.ask("/v2/health/ready")[0] == 503
    assert server.ask("/v2/models/mlp/infer", BODY)[0] == 200
    stopping.join()


def test_a_token_is_asked_for(serve: Start, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a secret\n")
    server = serve("mlp", options=("--token-file", str(tmp_path / "token")))
    assert server.ask("/v2/models/mlp")[0] == 401
    assert server.ask("/v2/models/mlp", headers={"Authorization": "Bearer a secre"})[0] == 401
    assert server.ask("/v2/models/mlp", headers={"Authorization": "Bearer a secret"})[0] == 200
    assert server.ask("/v2/health/ready")[0] == 200


def test_a_port_that_is_taken_is_a_typed_error(serve: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = serve("mlp", options=("--port", str(taken.getsockname()[1])))
        assert server.process.wait(30) == 80
    assert "cannot be listened on" in server.log


def test_a_bundle_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    server = Server(f"m={tmp_path}", log=tmp_path / "log")
    assert server.process.wait(30) == 51
    assert server.log.startswith("error[bundle]")
