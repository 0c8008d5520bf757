"""Workers: batches, sessions, deaths, limits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.runtime.serve.conftest import Server

Start = Callable[..., Server]


def metric(server: Server, name: str) -> float:
    rows = [row for row in server.ask("/metrics")[1].splitlines() if row.startswith(name)]
    return sum(float(row.split()[-1]) for row in rows)


def test_calls_are_batched_and_each_gets_its_own_rows(serve: Start) -> None:
    server = serve("root", options=("--max-batch-size", "8", "--max-queue-delay-us", "20000"))

    def ask(number: int) -> tuple[int, Any]:
        # The 13th is refused by an assert of the model, and no other with it.
        return server.infer("root", "x", [-1.0 if number == 13 else number**2, number**2], [1, 2])

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, range(40)))
    for number, (status, body) in enumerate(answers):
        if number == 13:
            assert (status, "negative" in body["error"]) == (400, True)
        else:
            assert body["outputs"][0]["data"] == [number, number]
    assert metric(server, "nv_inference_exec_count_total") < 40
    assert metric(server, "nv_inference_count_total") == 40


def test_a_call_without_elements_may_be_the_first(serve: Start) -> None:
    """Two of them, before a worker had memory for tensors, took its two messages, and no call ended."""
    server = serve("mlp")
    workers = server.workers()
    for shape in ([0, 4], [0, (1 << 63) - 1], [0, 1 << 58], [0, 4]):
        status, body = server.infer("mlp", "input", [], shape)
        assert (status, "input" in body["error"]) == (400, True)
    assert server.workers() == workers
    status, body = server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])
    assert (status, body["outputs"][0]["shape"]) == (200, [1, 3])


def test_a_call_of_more_rows_than_a_batch_is_refused_at_once(serve: Start) -> None:
    """It waited at the head of the queue until its time was over."""
    server = serve("root", options=("--max-batch-size", "8"))
    for shape, data in (([9, 2], [1.0] * 18), ([1 << 40, 0], [])):
        status, body = server.infer("root", "x", data, shape)
        assert (status, "a batch has 8 at most" in body["error"]) == (400, True)
    assert server.infer("root", "x", [4.0] * 16, [8, 2])[0] == 200


def add(server: Server, session: str, *, start: bool = False, end: bool = False, x: float = 1.0) -> Any:
    parameters = {"sequence_id": session, "sequence_start": start, "sequence_end": end}
    status, body = server.infer("count", "x", [x, 0, 0], [3], parameters=parameters)
    return body["outputs"][0]["data"][0] if status == 200 else status


def test_each_session_has_a_state_of_its_own(served: Server) -> None:
    assert [add(served, "a", start=True), add(served, "b", start=True, x=10)] == [1, 10]
    assert [add(served, "a"), add(served, "b", x=10), add(served, "a", end=True)] == [2, 20, 3]
    assert add(served, "a") == 404  # it has ended
    assert add(served, "b", start=True, x=5) == 5  # begun anew
    assert add(served, "b", end=True) == 6
    assert add(served, "never") == 404


def test_a_call_of_a_session_that_was_not_run_changes_nothing(serve: Start) -> None:
    server = serve("count", options=("--max-queue-size", "2"))
    assert add(server, "a", start=True) == 1
    stopped = server.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    answers: list[Any] = []

    def ask() -> None:
        parameters = {"sequence_id": "a", "sequence_end": True, "timeout": 400_000}
        answers.append(server.infer("count", "x", [1, 0, 0], [3], parameters=parameters)[0])

    # Two are with the worker, two wait for it and are late, and no more may wait.
    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    time.sleep(0.8)
    os.kill(stopped, signal.SIGCONT)
    for thread in threads:
        thread.join()
    # The first that ran ended the session, which the second then found closed.
    assert sorted(answers) == [200, 404, 429, 429, 504, 504]
    assert [add(server, "a"), add(server, "a", start=True)] == [404, 1]


def test_sessions_are_bounded_and_expire(serve: Start) -> None:
    server = serve("count", options=("--max-sessions", "2", "--session-idle-s", "1.5"))
    assert [add(server, "a", start=True), add(server, "b", start=True)] == [1, 1]
    assert add(server, "c", start=True) == 429
    assert add(server, "a") == 2
    time.sleep(2.0)
    assert [add(server, "a"), add(server, "c", start=True)] == [404, 1]


def test_a_worker_that_dies_is_replaced(serve: Start) -> None:
    server = serve("mlp", "count")
    assert add(server, "a", start=True) == 1
    for _ in range(3):
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])[0] != 200:
            assert time.monotonic() < deadline
        # Both are there before the next are killed: one that is not there yet cannot die.
        while server.ask("/v2/models/count/ready")[0] != 200:
            assert time.monotonic() < deadline
    assert add(server, "a") == 404  # its state went with the worker; nothing goes on from another
    assert metric(server, "aotpipe_worker_restarts_total") >= 6
    assert server.ask("/v2/health/live")[0] == 200


def test_what_waits_for_too_long_and_what_is_too_much_is_told_so(serve: Start) -> None:
    server = serve("mlp", options=("--max-queue-size", "1"))
    stopped = server.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    answers: list[int] = []

    def ask(timeout_us: int) -> None:
        parameters = {"timeout": timeout_us}
        answers.append(server.infer("mlp", "input", [1, 2, 3, 4], [1, 4], parameters=parameters)[0])

    threads = [threading.Thread(target=ask, args=(400_000,)) for _ in range(6)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    time.sleep(0.8)
    os.kill(stopped, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert answers.count(429) == 3  # two were with the worker, one waited
    assert answers.count(504) == 1
    assert answers.count(200) == 2
    assert server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])[0] == 200


@pytest.mark.parametrize("seconds", ["1.0"])
def test_a_worker_that_hangs_is_killed(serve: Start, seconds: str) -> None:
    server = serve("mlp", options=("--call-timeout-s", seconds))
    os.kill(server.workers()[0], signal.SIGSTOP)
    status, body = server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])
    assert (status, "in time" in body["error"]) == (500, True)
    assert server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])[0] == 200
