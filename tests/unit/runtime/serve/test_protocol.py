"""Requests as they are read; what is no request is tried against a server in test_http."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
import pytest

from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import RequestInvalid, ServeError, UnknownModel
from aotpipe.runtime.serve import protocol
from aotpipe.runtime.serve.protocol import Entry, Request
from aotpipe.runtime.serve.tensors import Tensor

X, Y = TensorSpec.parse("x: float32[b, 2]"), TensorSpec.parse("y: float32[b]")
ENTRIES = {
    name: Entry(name, Signature(inputs=(X,), outputs=(Y,), state=state), "b" if not state else "")
    for name, state in (("forward", ()), ("step", (TensorSpec.parse("n: float32[]"),)))
}
INPUT = {"name": "x", "datatype": "FP32", "shape": [3, 2]}


def read(data: dict[str, Any], binary: bytes | None = None) -> Request:
    async def inside() -> Request:
        text = orjson.dumps(data)
        return protocol.read(
            text + (binary or b""), len(text) if binary is not None else None, ENTRIES, timeout_s=2.0
        )

    return asyncio.run(inside())


def test_a_request_may_mix_json_and_bytes() -> None:
    array = np.arange(6, dtype=np.float32)
    as_json = read({"inputs": [{**INPUT, "data": array.tolist()}]})
    as_bytes = read({"inputs": [{**INPUT, "parameters": {"binary_data_size": 24}}]}, array.tobytes())
    for request in (as_json, as_bytes):
        call = request.call
        np.testing.assert_array_equal(call.inputs[0].array(), array.reshape(3, 2))
        assert (call.entry, call.rows, call.session) == ("forward", 3, None)
        assert call.deadline == call.received + 2.0
    assert as_json.call.key == as_bytes.call.key


def test_a_request_says_how_long_it_waits_and_what_it_wants() -> None:
    given = {
        "inputs": [{**INPUT, "data": [0] * 6}],
        "parameters": {"timeout": 5000},
        "outputs": [{"name": "y"}],
    }
    request = read(given)
    assert request.call.deadline == pytest.approx(request.call.received + 0.005)
    assert request.wanted == (("y", False),)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"entry_point": "step"}, RequestInvalid),
        ({"entry_point": "none"}, UnknownModel),
        ({"entry_point": "step", "sequence_id": 0}, RequestInvalid),
        ({"entry_point": "step", "sequence_id": 1, "sequence_start": 1}, RequestInvalid),
        ({"sequence_id": 1}, RequestInvalid),
        ({"binary_data_output": "yes"}, RequestInvalid),
    ],
)
def test_a_session_belongs_to_what_keeps_state(parameters: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        read({"inputs": [{**INPUT, "data": [0] * 6}], "parameters": parameters})


def test_bytes_that_no_input_has_are_refused() -> None:
    with pytest.raises(RequestInvalid, match="4 bytes follow"):
        read({"inputs": [{**INPUT, "parameters": {"binary_data_size": 24}}]}, bytes(28))


def test_an_answer_has_what_was_asked_for() -> None:
    outputs = (Tensor("y", "float32", (3,), np.arange(3, dtype=np.float32).tobytes()),)
    request = read({"id": "7", "inputs": [{**INPUT, "data": [0] * 6}]})
    (text,), size = protocol.written(request, "m", "1", outputs)
    assert size is None
    assert orjson.loads(text) == {
        "model_name": "m",
        "model_version": "1",
        "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [3], "data": [0.0, 1.0, 2.0]}],
    }


def test_what_the_protocol_has_no_datatype_for_is_not_served() -> None:
    with pytest.raises(ServeError, match="complex64"):
        Entry("forward", Signature(inputs=(TensorSpec.parse("x: complex64[2]"),), outputs=()), "")
