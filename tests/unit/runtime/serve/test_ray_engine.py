"""Replicas of Ray Serve; what starts Ray only under --all, where ray is installed."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np
import psutil
import pytest

from aotpipe.errors import ServeError
from aotpipe.runtime.bundle import files
from aotpipe.runtime.goldens import compare
from aotpipe.runtime.serve.opening import Opening
from aotpipe.runtime.serve.tensors import DATATYPES
from tests.unit.runtime.serve.conftest import Server

pytest.importorskip("ray")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ray's own use of pydantic
    from aotpipe.runtime.serve.ray_engine import Scale, run
from aotpipe.runtime.serve.repository import Options
from aotpipe.runtime.serve.serving import Listen

BODY = b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'


@pytest.mark.parametrize(
    ("name", "listen", "scale", "said"),
    [
        ("mlp", Listen(grpc_port=0), Scale(), "--grpc-port"),
        ("mlp", Listen(model_control=True), Scale(), "--model-control"),
        ("count", Listen(), Scale(replicas=2), "keeps state"),
        ("count", Listen(), Scale(most_replicas=2), "keeps state"),
    ],
)
def test_what_ray_cannot_do_is_refused(
    bundles: Path, name: str, listen: Listen, scale: Scale, said: str
) -> None:
    with Opening([bundles / name]) as opening, pytest.raises(ServeError, match=said):
        run((f"{name}={bundles / name}",), opening, Options(), listen, scale)


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    paths = [f"{name}={bundles / name}" for name in ("mlp", "root", "sum")]
    options = ("--engine", "ray", "--replicas", "2", "--threads", "1")
    server = Server(*paths, *options, log=tmp_path_factory.mktemp("ray") / "log")
    assert server.port, server.log
    yield server
    assert server.stop() == 0
    assert not replicas(server)


def replicas(server: Server) -> list[int]:
    """The PIDs of the replicas."""
    try:
        below = psutil.Process(server.process.pid).children(recursive=True)
        return [each.pid for each in below if "ServeReplica" in "".join(each.cmdline())]
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "root"])
def test_the_recorded_calls_have_the_recorded_answers(server: Server, bundles: Path, name: str) -> None:
    for golden in files.goldens(files.open_bundle(bundles / name)):
        inputs = [
            {
                "name": each,
                "datatype": DATATYPES[array.dtype.name],
                "shape": array.shape,
                "data": array.ravel().tolist(),
            }
            for each, array in golden.inputs.items()
        ]
        for _ in range(4):  # of both replicas
            status, body = server.ask(f"/v2/models/{name}/infer", {"inputs": inputs})
            assert status == 200
            for output in body["outputs"]:
                want = golden.outputs[output["name"]]
                got = np.array(output["data"], want.dtype).reshape(output["shape"])
                allowed = golden.allowed.get(output["name"], (0.0, 0.0))
                assert compare(got, want, *allowed, golden.unsure.get(output["name"])).ratio <= 1


@pytest.mark.slow
def test_a_decoder_streams_and_a_malformed_request_is_refused(server: Server) -> None:
    body = {"model": "sum", "prompt": "ab", "temperature": 0, "max_tokens": 4, "stream": True}
    status, found = server.ask("/v1/completions", body)
    assert (status, found.strip().endswith("[DONE]")) == (200, True)
    assert server.ask("/v2/models/mlp/infer", b"{")[0] == 400


@pytest.mark.slow
def test_a_replica_that_is_killed_loses_what_it_had_and_no_more(
    server: Server, print_table: Callable[[str], None]
) -> None:
    clients, found, done = 4, Counter[int](), threading.Event()

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
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
    time.sleep(2)
    before = replicas(server)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    deadline = time.monotonic() + 120
    while len(replicas(server)) < 2 or before[0] in replicas(server):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(2)
    done.set()
    for thread in threads:
        thread.join()
    print_table(f"{dict(found)} with a replica killed under {clients} clients")
    assert found[200] > 100
    assert sum(found.values()) - found[200] <= clients
