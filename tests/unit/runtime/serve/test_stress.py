"""Servers for longer and under more than a test of one behaviour needs; only under --all."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np
import pytest

import aotpipe
from tests.unit.runtime.serve.conftest import Server, mutated

pytestmark = pytest.mark.slow
Start = Callable[..., Server]
PrintTable = Callable[[str], None]
BODY = b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'


@contextmanager
def load(server: Server, clients: int) -> Iterator[Counter[int]]:
    """Clients that ask for the whole time; the statuses of their answers, 0 where there was none."""
    found: Counter[int] = Counter()
    done = threading.Event()

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
        with closing(connection):
            while not done.is_set():
                try:
                    connection.request("POST", "/v2/models/mlp/infer", BODY)
                    answer = connection.getresponse()
                    answer.read()
                    found[answer.status] += 1
                except (OSError, HTTPException):
                    found[0] += 1
                    connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        done.set()
        for thread in threads:
            thread.join()


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("options", [(), ("--max-batch-size", "16", "--workers", "2")])
def test_160_000_inputs_of_16_clients_get_their_own_answers(
    serve: Start, bundles: Path, options: tuple[str, ...], print_table: PrintTable
) -> None:
    server = serve("mlp", options=options)
    wrong: list[int] = []

    def ask(seed: int) -> None:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
        xs = np.random.default_rng(seed).standard_normal((10_000, 4), dtype=np.float32)
        with aotpipe.load(bundles / "mlp") as runner:
            want = np.concatenate(
                [runner.infer({"input": xs[i : i + 50]})["output"] for i in range(0, len(xs), 50)]
            )
        head = b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": '
        with closing(connection):
            for x, y in zip(xs, want, strict=True):
                connection.request(
                    "POST", "/v2/models/mlp/infer", head + json.dumps(x.tolist()).encode() + b"}]}"
                )
                body = json.loads(connection.getresponse().read())
                if not np.allclose(body["outputs"][0]["data"], y, atol=1e-5):
                    wrong.append(seed)

    start = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_table(f"{options}: {len(wrong)} wrong of 160000, {160_000 / (time.perf_counter() - start):.0f}/s")
    assert not wrong


def test_10_000_random_requests(serve: Start, print_table: PrintTable) -> None:
    server = serve("mlp")
    numbers = random.Random(1)
    statuses: Counter[int] = Counter()
    before = 0
    for number in range(10_000):
        body = mutated(numbers, BODY)
        statuses[server.ask("/v2/models/mlp/infer", body)[0]] += 1
        if number == 1000:
            before = rss_bytes(server.process.pid)
    after = rss_bytes(server.process.pid)
    print_table(f"{dict(statuses)}, resident memory {before} -> {after}")
    assert not [status for status in statuses if status >= 500]
    assert after < before * 1.05


def test_a_worker_killed_every_second(serve: Start, print_table: PrintTable) -> None:
    server = serve("mlp")
    gaps = []
    with load(server, 4) as found:
        for _ in range(20):
            time.sleep(1.0)
            answered, start = found[200], time.perf_counter()
            os.kill(server.workers()[0], signal.SIGKILL)
            time.sleep(0.02)
            while found[200] < answered + 8:
                time.sleep(0.005)
            gaps.append(time.perf_counter() - start)
    print_table(f"{dict(found)}, without answers for {min(gaps):.2f}..{max(gaps):.2f} s")
    assert set(found) <= {200, 500}
    assert found[500] <= 20 * 4


def test_200_reloads_under_load(serve: Start, print_table: PrintTable) -> None:
    server = serve("mlp", options=("--model-control",))
    with load(server, 4) as found:
        for _ in range(200):
            assert server.ask("/v2/repository/models/mlp/load", {})[0] == 200
    print_table(f"{dict(found)}")
    assert set(found) == {200}


def test_three_times_what_may_wait(serve: Start, print_table: PrintTable) -> None:
    server = serve("mlp", options=("--max-queue-size", "4"))
    with load(server, 36) as found:
        time.sleep(5.0)
    start = time.perf_counter()
    assert server.ask("/v2/models/mlp/infer", BODY)[0] == 200
    print_table(f"{dict(found)}, answered after {time.perf_counter() - start:.3f} s")
    assert set(found) <= {200, 429, 503}
    assert time.perf_counter() - start < 2.0
