"""gRPC, by Triton's own client."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.unit.runtime.serve.conftest import Server

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    paths = [f"{name}={bundles / name}" for name in ("mlp", "root", "count")]
    server = Server(
        *paths, "--grpc-port", "0", "--model-control", log=tmp_path_factory.mktemp("grpc") / "log"
    )
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    found = re.search(r"gRPC on (\S+)", server.log)
    assert found
    with triton.InferenceServerClient(found[1]) as client:
        yield client


def tensor(name: str, array: np.ndarray) -> triton.InferInput:
    given = triton.InferInput(name, list(array.shape), triton.np_to_triton_dtype(array.dtype))
    given.set_data_from_numpy(array)
    return given


def test_it_answers_what_http_answers(server: Server, client: triton.InferenceServerClient) -> None:
    status, body = server.infer("mlp", "input", X.ravel().tolist(), [2, 4])
    assert status == 200
    for compression in (None, "gzip"):
        result = client.infer("mlp", [tensor("input", X)], request_id="7", compression_algorithm=compression)
        np.testing.assert_array_equal(
            result.as_numpy("output").ravel(), np.array(body["outputs"][0]["data"], np.float32)
        )
        assert result.get_response().id == "7"


def test_it_says_what_it_is(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("mlp")
    assert client.get_server_metadata().name == "aotpipe"
    metadata = client.get_model_metadata("mlp", "1")
    assert [(each.name, each.datatype, list(each.shape)) for each in metadata.inputs] == [
        ("input", "FP32", [-1, 4])
    ]
    assert {each.name for each in client.get_model_repository_index().models} == {"mlp", "root", "count"}
    client.load_model("mlp")
    assert client.is_model_ready("mlp")


@pytest.mark.parametrize(
    ("model", "name", "array", "code"),
    [
        ("none", "input", X, "NOT_FOUND"),
        ("mlp", "x", X, "INVALID_ARGUMENT"),
        ("mlp", "input", X.astype(np.float64), "INVALID_ARGUMENT"),
        ("mlp", "input", X.ravel(), "INVALID_ARGUMENT"),
        ("root", "x", -X.reshape(4, 2), "INVALID_ARGUMENT"),
        ("count", "x", np.zeros(3, np.float32), "INVALID_ARGUMENT"),
    ],
)
def test_a_refusal_has_its_code(
    client: triton.InferenceServerClient, model: str, name: str, array: np.ndarray, code: str
) -> None:
    with pytest.raises(InferenceServerException) as error:
        client.infer(model, [tensor(name, array)])
    assert error.value.status() == f"StatusCode.{code}"


def test_a_session(client: triton.InferenceServerClient) -> None:
    x = [tensor("x", np.array([1, 2, 3], np.float32))]
    for number in (1, 2, 3):
        result = client.infer("count", x, sequence_id=5, sequence_start=number == 1, sequence_end=number == 3)
        assert result.as_numpy("output") == 6 * number


def test_a_deadline_is_the_call_s(server: Server, client: triton.InferenceServerClient) -> None:
    stopped = server.workers()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(InferenceServerException) as error:
            client.infer("mlp", [tensor("input", X)], client_timeout=0.3)
        assert error.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert client.infer("mlp", [tensor("input", X)]).as_numpy("output").shape == (2, 3)


def test_numbers_that_are_no_bytes_are_taken_too(server: Server, serve: Callable[..., Server]) -> None:
    import grpc

    from aotpipe.runtime.serve.grpc_messages import MESSAGES, SERVICE

    found = re.search(r"gRPC on (\S+)", server.log)
    assert found
    request = MESSAGES["ModelInferRequest"](
        model_name="mlp",
        inputs=[
            {"name": "input", "datatype": "FP32", "shape": [2, 4], "contents": {"fp32_contents": X.ravel()}}
        ],
    )
    with grpc.insecure_channel(found[1]) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=MESSAGES["ModelInferRequest"].SerializeToString,
            response_deserializer=MESSAGES["ModelInferResponse"].FromString,
        )
        answer = call(request, timeout=10)
    _, body = server.infer("mlp", "input", X.ravel().tolist(), [2, 4])
    got = np.frombuffer(answer.raw_output_contents[0], np.float32)
    np.testing.assert_array_equal(got, np.array(body["outputs"][0]["data"], np.float32))
