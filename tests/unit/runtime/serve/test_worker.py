"""What a worker proves before it is ready, and that it ends with its server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.unit.runtime.serve.conftest import Server

Start = Callable[..., Server]


def test_rows_that_depend_on_each_other_are_not_batched(serve: Start) -> None:
    server = serve("centred", options=("--max-batch-size", "4"))
    assert server.process.wait(30) == 40
    assert "changes with the other rows of its batch" in server.log


def test_what_keeps_state_is_not_batched(serve: Start) -> None:
    server = serve("count", options=("--max-batch-size", "4"))
    assert server.process.wait(30) == 80
    assert "can be batched" in server.log


def test_a_worker_reads_no_manifest(serve: Start) -> None:
    # pydantic, which reads one, takes 10 MB of each worker.
    (pid,) = serve("mlp").workers()
    assert "pydantic" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_worker_ends_with_its_server(serve: Start) -> None:
    server = serve("mlp")
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/stat").exists() and not _is_dead(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z" or os.kill(pid, 0) is not None
    except OSError:
        return True
