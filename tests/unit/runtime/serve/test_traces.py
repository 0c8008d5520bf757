"""OpenTelemetry spans of requests, kept in memory or exported to a collector of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aotpipe.errors import ServeError
from aotpipe.runtime.serve import opening
from aotpipe.runtime.serve.grpc import Service
from aotpipe.runtime.serve.grpc_messages import MESSAGES
from aotpipe.runtime.serve.http import Application
from aotpipe.runtime.serve.metrics import Metrics
from aotpipe.runtime.serve.pool import Pool
from aotpipe.runtime.serve.repository import Options, Repository
from aotpipe.runtime.serve.scheduler import Limits
from aotpipe.runtime.serve.traces import Traces
from tests.unit.runtime.serve.conftest import Server

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"
X = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 4]}
BODY = json.dumps({"inputs": [X]}).encode()


async def asked(application: Application, path: str, body: bytes, traceparent: str) -> int:
    """The status of a request."""
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"traceparent", traceparent.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "scheme": "http", "headers": headers}
    await application(scope, receive, send)
    return int(statuses[0])


async def called(service: Service) -> None:
    """Make a call by gRPC, as its server does."""
    request = MESSAGES["ModelInferRequest"](model_name="root", raw_input_contents=[b"\0" * 8])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    context = SimpleNamespace(
        time_remaining=lambda: None, invocation_metadata=lambda: [("traceparent", PARENT), ("b-bin", b"\0")]
    )
    await service._ModelInfer(request, context)


async def lose_a_worker(application: Application, pool: Pool) -> None:
    """Kill a worker while it has a call."""
    os.kill(pool._workers[0]._process.pid, signal.SIGSTOP)
    asking = asyncio.ensure_future(asked(application, "/v2/models/root/infer", BODY, ""))
    while not pool.running:
        await asyncio.sleep(0.01)
    pool._workers[0].kill()
    assert await asking == 500
    while not pool.is_ready:
        await asyncio.sleep(0.01)


def test_a_request_has_spans_below_its_callers(bundles: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = Traces(provider)

    async def run() -> tuple[ReadableSpan, ...]:
        counted = Metrics()
        limits = Limits(max_batch_size=8, max_queue_delay_s=0.2)
        repository = Repository({"root": opening.read(bundles / "root")}, Options(limits=limits), counted)
        application = Application(repository, counted, max_body_bytes=9999, timeout_s=9, traces=traces)
        await repository.load("root")
        path = "/v2/models/root/infer"
        calls = [asked(application, path, BODY, PARENT) for _ in range(3)]
        assert await asyncio.gather(*calls) == [200, 200, 200]
        assert await asked(application, path, b"[]", "no traceparent") == 400
        assert await asked(application, path, BODY, PARENT[:-1] + "0") == 200  # not sampled
        await lose_a_worker(application, repository.model("root").pool)
        options = {"timeout_s": 9, "token": "", "model_control": False, "traces": traces}
        await called(Service(repository, lambda: False, **options))
        await repository.close()
        return exporter.get_finished_spans()

    spans = asyncio.run(run())
    requests = [span for span in spans if span.kind.name == "SERVER"]
    # Three that were batched, the refused, the one whose worker was killed, and gRPC's; not the unsampled.
    assert [span.name for span in requests] == [
        *["POST infer"] * 5,
        "inference.GRPCInferenceService/ModelInfer",
    ]
    *batched, refused, lost, by_grpc = requests
    for span in (*batched, by_grpc):
        below = {child.name: child for child in spans if child.parent and child.parent.span_id == ids(span)}
        assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, CALLER)
        assert span.attributes["aotpipe.model"] == "root"
        assert set(below) == {"queue", "batch"}
        [infer] = [child for child in spans if child.parent and child.parent.span_id == ids(below["batch"])]
        ends = [span.start_time, below["queue"].start_time, below["queue"].end_time, infer.start_time]
        assert ends == sorted(ends)
        assert below["queue"].end_time == below["batch"].start_time
        assert infer.end_time <= below["batch"].end_time <= span.end_time
    batches = [
        span.attributes["aotpipe.batch.rows"] for span in spans if span.name == "batch" and span.attributes
    ]
    assert sorted(batches) == [1, 3, 3, 3]
    assert batched[0].attributes["http.response.status_code"] == 200
    assert by_grpc.attributes["rpc.grpc.status_code"] == 0
    assert (refused.parent, refused.attributes["http.response.status_code"]) == (None, 400)
    assert refused.status.status_code is StatusCode.UNSET
    assert lost.status.status_code is StatusCode.ERROR
    assert {child.name for child in spans if child.parent and child.parent.span_id == ids(lost)} == {
        "queue",
        "batch",
    }


def ids(span: ReadableSpan) -> int:
    return int(span.context.span_id)


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(ServeError, match="no exporter of traces is called 'zipkin'"):
        Traces.from_environment()


@pytest.mark.slow
def test_spans_go_where_the_environment_says(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        server = serve("mlp", options=("--traces",))
        assert server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])[0] == 200
        assert server.stop() == 0  # what is left is exported before it ends
        collector.shutdown()
        thread.join()
    [exported] = [rows for request in received for rows in request.resource_spans]
    names = {each.key: each.value.string_value for each in exported.resource.attributes}
    assert names["service.name"] == "mine"
    found = [span.name for scope in exported.scope_spans for span in scope.spans]
    assert sorted(found) == ["POST infer", "batch", "infer", "queue"]
