"""The server by the clients of KServe's Python package; only under --all, where kserve is installed.

Its requirements contradict those of tritonclient, so that it needs an environment of its own.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpipe
from tests.unit.runtime.serve.conftest import Server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    kserve = pytest.importorskip("kserve", exc_type=ImportError)

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def request(*, binary: bool) -> Any:
    given = kserve.InferInput("input", [2, 4], "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return kserve.InferRequest(model_name="mlp", infer_inputs=[given], request_id="7")


@pytest.mark.parametrize("binary", [False, True])
def test_rest_and_grpc_answer_as_the_program(
    serve: Callable[..., Server], bundles: Path, binary: bool
) -> None:
    server = serve("mlp", options=("--grpc-port", "0"))
    address = re.search(r"gRPC on (\S+)", server.log)
    assert address
    with aotpipe.load(bundles / "mlp") as runner:
        want = runner.infer({"input": X})["output"]

    async def run() -> None:
        rest = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
        url = f"http://127.0.0.1:{server.port}"
        assert await rest.is_server_live(url)
        assert await rest.is_server_ready(url)
        assert await rest.is_model_ready(url, "mlp")
        by_rest = await rest.infer(url, request(binary=binary), model_name="mlp")
        await rest.close()
        grpc = kserve.InferenceGRPCClient(url=address[1])
        assert await grpc.is_server_ready()
        assert await grpc.is_model_ready("mlp")
        by_grpc = await grpc.infer(request(binary=binary))
        await grpc.close()
        for answer in (by_rest, by_grpc):
            assert answer.id == "7"
            np.testing.assert_array_equal(answer.outputs[0].as_numpy().reshape(want.shape), want)

    asyncio.run(run())
