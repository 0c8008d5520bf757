"""Models that are loaded, unloaded and replaced while others call them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import aotpipe
from aotpipe.errors import IslandNotFound, ServeError, SignatureInvalid
from aotpipe.runtime.serve import opening
from aotpipe.runtime.serve.repository import named
from tests.unit.cli.test_bundles import NET
from tests.unit.runtime.bundle.samples import keys
from tests.unit.runtime.serve.conftest import Server

Start = Callable[..., Server]
ONE = ([1, 2, 3, 4], [1, 4])


def test_a_reload_under_load_fails_no_request(serve: Start) -> None:
    server = serve("mlp", options=("--model-control",))
    answers: list[int] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(server.infer("mlp", "input", *ONE)[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        assert server.ask("/v2/repository/models/mlp/load", {})[0] == 200
    done.set()
    for thread in threads:
        thread.join()
    assert set(answers) == {200}
    assert len(answers) > 20


def test_a_request_whose_body_comes_during_a_reload_is_answered(serve: Start) -> None:
    server = serve("mlp", options=("--model-control",))
    body = b'{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'
    head = f"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(head.encode() + body[:10])
        before = server.workers()
        assert server.ask("/v2/repository/models/mlp/load", {})[0] == 200
        deadline = time.monotonic() + 20
        while set(before) & set(server.workers()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        client.sendall(body[10:])
        assert b" 200 " in client.recv(1000)


def test_a_version_that_cannot_be_loaded_leaves_the_one_that_is_served(bundles: Path, tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    shutil.copytree(bundles / "mlp", versions / "1")
    server = Server(f"m={versions}", "--model-control", log=tmp_path / "log")
    try:
        (versions / "2").mkdir()
        status, body = server.ask("/v2/repository/models/m/load", {})
        assert (status, "cannot be loaded" in body["error"]) == (400, True)
        assert server.ask("/v2/models/m")[1]["versions"] == ["1"]
        assert server.infer("m", "input", *ONE)[0] == 200
        (versions / "2").rmdir()
        shutil.copytree(bundles / "mlp", versions / "2")
        assert server.ask("/v2/repository/models/m/load", {})[0] == 200
        assert server.ask("/v2/models/m/versions/1")[0] == 404
        assert server.ask("/v2/repository/models/m/unload", {})[0] == 200
        assert server.infer("m", "input", *ONE)[0] == 503
        assert server.ask("/v2/repository/index", {})[1][0]["reason"] == "it was unloaded"
    finally:
        server.process.kill()
        server.process.wait()


def test_sighup_loads_again_and_no_request_does_unless_it_may(serve: Start) -> None:
    server = serve("mlp")
    status, body = server.ask("/v2/repository/models/mlp/unload", {})
    assert (status, "--model-control" in body["error"]) == (400, True)
    before = server.workers()
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while "mlp was loaded again" not in server.log or len(server.workers()) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert set(server.workers()) != set(before)
    assert server.infer("mlp", "input", *ONE)[0] == 200


def test_a_bundle_that_was_replaced_takes_no_worker_s_place(bundles: Path, tmp_path: Path) -> None:
    shutil.copytree(bundles / "mlp", tmp_path / "m")
    server = Server(f"m={tmp_path / 'm'}", log=tmp_path / "log")
    try:
        shutil.rmtree(tmp_path / "m")
        shutil.copytree(bundles / "root", tmp_path / "m")
        os.kill(server.workers()[0], signal.SIGKILL)
        deadline = time.monotonic() + 20
        while "not the one that is served" not in str(server.ask("/v2/models/m/ready")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert server.infer("m", "input", *ONE)[0] in (503, 500)
    finally:
        server.process.kill()
        server.process.wait()


def test_what_is_not_signed_is_not_served(bundles: Path, tmp_path: Path) -> None:
    pytest.importorskip("model_signing")
    private, public = keys(tmp_path, "ours")
    shutil.copytree(bundles / "mlp", tmp_path / "m")
    asked = (f"m={tmp_path / 'm'}", "--require-signature", str(public))
    assert Server(*asked, log=tmp_path / "unsigned").process.wait(30) == SignatureInvalid.exit_code
    aotpipe.sign(tmp_path / "m", private)
    server = Server(*asked, log=tmp_path / "log")
    assert server.infer("m", "input", *ONE)[0] == 200
    server.stop()


def test_a_bundle_in_one_file_is_served(bundles: Path, tmp_path: Path) -> None:
    aotpipe.archive(bundles / "mlp", tmp_path / "mlp.tar")
    server = Server(f"m={tmp_path / 'mlp.tar'}", log=tmp_path / "log")
    assert server.infer("m", "input", *ONE)[0] == 200
    server.stop()


def test_names(bundles: Path) -> None:
    mlp, root = (opening.read(bundles / each) for each in ("mlp", "root"))
    found = named((str(bundles / "mlp"), f"other={bundles / 'mlp'}"), [mlp, mlp])
    assert found == {mlp.bundle.manifest.name: mlp, "other": mlp}
    with pytest.raises(ServeError, match="two models"):
        named((f"a={bundles / 'mlp'}", f"a={bundles / 'root'}"), [mlp, root])
    with pytest.raises(ServeError, match="no name"):
        named((f"a/b={bundles / 'mlp'}",), [mlp])


def test_a_model_with_islands_runs_those_that_are_allowed_and_counts_them(tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "island_of_a_test.py").write_text(NET)
    model = folder / "island_of_a_test.py"
    aotpipe.build(
        str(model), targets=["iree-vmvx"], allow_islands=True, out=tmp_path / "b", latency=False, cache=False
    )
    asked = f"m={tmp_path / 'b'}"
    refused = Server(asked, log=tmp_path / "refused", modules=folder)
    assert refused.process.wait(30) == IslandNotFound.exit_code
    server = Server(asked, "--island", "island_of_a_test:order", log=tmp_path / "log", modules=folder)
    try:
        status, answer = server.infer("m", "x", [3, 1, 2], [3])
        assert (status, answer["outputs"][0]["data"]) == (200, [3, 5, 7])
        metrics = server.ask("/metrics")[1]
    finally:
        assert server.stop() == 0
    runs = 'aotpipe_island_runs_total{island="island_of_a_test:order",model="m",version="1"} 1.0'
    assert runs in metrics.splitlines()
