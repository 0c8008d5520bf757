"""What the server answers: real clients, requests that are none, and what comes after them."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import socket
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from aotpipe.errors import NotReady
from aotpipe.runtime.serve.completions import Ask, Form, Piece
from aotpipe.runtime.serve.generation import Choice
from aotpipe.runtime.serve.http import Application, _events
from tests.unit.runtime.serve.conftest import Server, mutated

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def answer(server: Server) -> np.ndarray:
    status, body = server.infer("mlp", "input", X.ravel().tolist(), [2, 4])
    assert status == 200, body
    (output,) = body["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def test_health_is_told_in_json_as_the_protocol_says(served: Server) -> None:
    assert served.ask("/v2/health/live") == (200, {"live": True})
    assert served.ask("/v2/health/ready") == (200, {"ready": True})
    assert served.ask("/v2/models/mlp/ready") == (200, {"name": "mlp", "ready": True})


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritons_client_gets_the_program_s_answers(
    served: Server, binary_in: bool, binary_out: bool, compression: str | None
) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        given = triton.InferInput("input", [2, 4], "FP32")
        given.set_data_from_numpy(X, binary_data=binary_in)
        result = client.infer(
            "mlp",
            [given],
            outputs=[triton.InferRequestedOutput("output", binary_data=binary_out)],
            request_id="7",
            request_compression_algorithm=compression,
            response_compression_algorithm=compression,
        )
    np.testing.assert_array_equal(result.as_numpy("output"), answer(served))
    assert result.get_response()["id"] == "7"


def test_tritons_client_reads_what_the_server_is(served: Server) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("mlp")
        assert client.get_server_metadata()["name"] == "aotpipe"
        metadata = client.get_model_metadata("mlp", "1")
        assert metadata["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
        index = {row["name"]: row["state"] for row in client.get_model_repository_index()}
    assert index == dict.fromkeys(("mlp", "root", "centred", "count", "sum"), "READY")


def request(**changes: object) -> dict[str, object]:
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    return {"inputs": [{**tensor, **changes}]}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        ({}, "inputs"),
        ({"inputs": [3]}, "no JSON object with a name"),
        (request(name="x"), "no input 'x'"),
        (request(datatype="FP64"), "wants FP32"),
        (request(shape=[1 << 40, 1 << 40]), "not [1099511627776"),
        (request(shape=[1, -4]), "no size"),
        (request(shape=[1, 4.0]), "no size"),
        (request(shape=[1] * 99), "at most 64"),
        (request(shape=[2, 2]), "input 'input'"),
        (request(data=[1, 2, 3]), "shape [3]"),
        (request(data=[1, 2, 3, "4"]), "input 'input'"),
        (request(data=[1, 2, 3, None]), "input 'input'"),
        (request(data=[[1, 2], [3]]), "no array"),
        (request(data=None), "lacks its data"),
        (request(parameters={"binary_data_size": 16}), "binary_data_size"),
        (request(parameters={"shared_memory_region": "r"}), "not supported"),
        ({**request(), "outputs": [{"name": "y"}]}, "no output 'y'"),
        ({**request(), "parameters": {"sequence_id": 3}}, "keeps no state"),
        ({**request(), "parameters": {"timeout": -1}}, "timeout"),
        ({**request(), "id": "x" * 999}, "id"),
        ({"inputs": request()["inputs"] * 2}, "comes twice"),
    ],
)
def test_a_request_that_is_none_is_told_what_is_wrong(served: Server, body: object, says: str) -> None:
    status, got = served.ask("/v2/models/mlp/infer", body)
    assert status == 400
    assert says in got["error"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v2/models/none/infer", request(), {}, 404),
        ("/v2/models/mlp/versions/9/infer", request(), {}, 404),
        ("/v3", None, {}, 404),
        ("/v2/models/mlp", request(), {}, 405),
        ("/v2/models/mlp/infer", b"x" * 100, {"Content-Encoding": "gzip"}, 400),
        ("/v2/models/mlp/infer", b"x" * 100, {"Content-Encoding": "br"}, 400),
        ("/v2/models/mlp/infer", gzip.compress(b"x" * 100, mtime=0)[:-9], {"Content-Encoding": "gzip"}, 400),
        ("/v2/models/mlp/infer", zlib.compress(bytes(100 << 20)), {"Content-Encoding": "deflate"}, 413),
        ("/v2/models/mlp/infer", b"{}", {"Inference-Header-Content-Length": "9"}, 400),
        ("/v2/models/mlp/infer", b"{}", {"Inference-Header-Content-Length": "-1"}, 400),
        ("/v2/models/count/infer", request(), {}, 400),
    ],
)
def test_the_status_says_whose_fault_it_is(
    served: Server, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    got, text = served.ask(path, body, headers=headers)
    assert got == status
    assert text["error"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(served: Server) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(
            b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert b" 413 " in client.recv(1000)


def test_an_assert_of_the_model_is_the_caller_s_fault(served: Server) -> None:
    status, body = served.infer("root", "x", [1, -1], [1, 2])
    assert (status, "a number is negative" in body["error"]) == (400, True)


def test_what_json_has_no_number_for_is_not_written_as_null(served: Server) -> None:
    status, body = served.infer("centred", "x", [3e38] * 4, [2, 2])  # the sum is infinite
    assert (status, "binary_data" in body["error"]) == (400, True)


def test_random_requests_get_no_answer_of_the_5xx(served: Server) -> None:
    numbers = random.Random(0)
    whole = json.dumps(request()).encode()
    for _ in range(200):
        body = mutated(numbers, whole)
        status, got = served.ask("/v2/models/mlp/infer", body)
        assert status < 500, (body, got)
    assert np.isfinite(answer(served)).all()


def test_metrics_count_what_was_asked(served: Server) -> None:
    def count(name: str) -> float:
        rows = [row for row in served.ask("/metrics")[1].splitlines() if row.startswith(name)]
        return sum(float(row.split()[-1]) for row in rows)

    before = (
        count('nv_inference_request_success_total{model="mlp"'),
        count("nv_inference_request_failure_total"),
    )
    answer(served)
    served.ask("/v2/models/mlp/infer", b"{")
    after = (
        count('nv_inference_request_success_total{model="mlp"'),
        count("nv_inference_request_failure_total"),
    )
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
    assert count("aotpipe_model_ready") == 5


@pytest.mark.parametrize("model", ["mlp", "count"])
def test_the_example_is_a_request(served: Server, model: str) -> None:
    status, request = served.ask(f"/v2/models/{model}/example")
    assert status == 200
    assert served.ask(f"/v2/models/{model}/infer", request)[0] == 200


def test_the_page_asks_for_nothing_from_elsewhere(served: Server) -> None:
    status, page = served.ask("/")
    assert (status, "<title>aotpipe serve</title>" in page) == (200, True)
    assert not re.findall(r"(?:src|href)=[\"'](?!/)", page)
    for path in re.findall(r'href="([^"]+)"', page):
        assert served.ask(path)[0] == 200


class Decoder:
    """A model whose text ends at once; making tokens of a prompt calls `meanwhile`."""

    name, version = "d", "1"

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.sizes = SimpleNamespace(cache=99, prompt=99)
        self.metrics = SimpleNamespace(counting_failures=nullcontext, finished=lambda seconds: None)
        self.tokenizer = SimpleNamespace(tokens=self.tokens_of, text=lambda tokens: "")
        self.meanwhile = meanwhile
        self.texts = 0

    def require_generator(self) -> Any:
        return self

    def tokens_of(self, text: str, most: int) -> tuple[int, ...]:
        self.meanwhile()
        return (1,)

    def require(self, prompt: tuple[int, ...], most: int) -> None:
        pass

    async def tokens(self, *_: Any) -> AsyncGenerator[Any]:
        self.texts += 1
        yield "length"


class Models:
    """A repository of one model, which a test replaces."""

    def __init__(self) -> None:
        self.loaded: Any = None

    def model(self, name: str, version: str = "") -> Any:
        if self.loaded is None:
            raise NotReady("it was unloaded")
        return self.loaded


def test_a_text_is_that_of_the_model_which_is_loaded_once_it_is_read() -> None:
    repository = Models()
    answers: list[int] = []

    async def asked(meanwhile: Callable[[], None] = lambda: None) -> int:
        async def receive() -> Any:
            if not bodies:
                await asyncio.Event().wait()
            meanwhile()
            return {"type": "http.request", "body": bodies.pop()}

        async def send(message: Any) -> None:
            if "status" in message:
                answers.append(message["status"])

        bodies = [b'{"text_input": "a"}']
        application = Application(
            repository,  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            max_body_bytes=99,
            timeout_s=1,
        )
        scope = {"type": "http", "method": "POST", "path": "/v2/models/d/generate", "headers": []}
        await application(scope, receive, send)
        return answers[-1]

    new = Decoder()
    old = repository.loaded = Decoder(lambda: setattr(repository, "loaded", new))
    assert asyncio.run(asked()) == 200
    assert (old.texts, new.texts) == (0, 1)
    repository.loaded = old = Decoder()
    assert asyncio.run(asked(lambda: setattr(repository, "loaded", None))) == 503
    assert old.texts == 0


def test_a_client_that_goes_away_at_the_first_event_leaves_no_text() -> None:
    ended: list[bool] = []

    async def pieces() -> AsyncGenerator[Piece]:
        try:
            yield Piece("a")
            yield Piece("b")
        finally:
            ended.append(True)

    async def run() -> None:
        parts = pieces()
        form = Form(Ask("generate", (1,), Choice(most=2)), Decoder())  # type: ignore[arg-type]
        events = _events(form, await anext(parts), parts, 0.0)
        await anext(events)
        await events.aclose()
        assert ended == [True]

    asyncio.run(run())
