"""OpenTelemetry traces: a span for each request, and below it where its time went.

The span of a request is a child of its caller's, which W3C's `traceparent` names. A call has spans below it:

    queue   while the call waited for a worker
    batch   from then on until the worker had answered all calls of its batch
    infer   below `batch`: while the program ran

The standard variables OTEL_* say what is exported, where to, and which requests are sampled. Of all modules
this one alone needs opentelemetry, and only `--traces` imports it.

Raises:
    ServeError: OTEL_TRACES_EXPORTER names an exporter that is not installed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from aotpipe import __version__
from aotpipe.errors import ServeError
from aotpipe.runtime.serve.scheduler import Call

_EXPORTERS: Final = "opentelemetry_traces_exporter"
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_SERVER_ERROR: Final = 500


class Traces:
    """Makes the spans of requests."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("aotpipe", __version__)

    @classmethod
    def from_environment(cls) -> Traces:
        """Traces as OTEL_* say.

        Raises:
            ServeError: An exporter is not installed.
        """
        resource = Resource.create({SERVICE_VERSION: __version__})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "aotpipe"}))
        provider = TracerProvider(resource=resource)
        for exporter in _exporters():
            provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    def begin(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Any]) -> Spans | None:
        """The spans of a request; None where it is not sampled.

        Args:
            name: What the request's span is called.
            headers: The request's, by their names in lower case.
            attributes: The span's.
        """
        parent = propagate.extract(headers)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        return Spans(self._tracer, span) if span.is_recording() else None

    def close(self) -> None:
        """Export what is left; takes no longer than OTEL_BSP_EXPORT_TIMEOUT says."""
        self._provider.shutdown()


class Spans:
    """The span of one request, and those of its call. All of it runs in the thread of the event loop."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span)
        self._queued_ns = self._sent_ns = 0

    def rename(self, name: str) -> None:
        """Say what is asked for."""
        self._span.update_name(name)

    def queued(self, model: str, version: str, entry_point: str) -> None:
        """Hear that the call is queued."""
        self._queued_ns = time.time_ns()
        attributes = {"model": model, "version": version, "entry_point": entry_point}
        self._span.set_attributes({f"aotpipe.{name}": value for name, value in attributes.items()})

    def sent(self) -> None:
        """Hear that a worker was given the call."""
        if not self._queued_ns:  # its caller is gone
            return
        self._sent_ns = time.time_ns()
        self._child("queue", self._queued_ns, self._sent_ns)

    def ran(self, batch: list[Call], at_ns: int, ns: int) -> None:
        """Hear that the program ran for a batch, from `at_ns` of the monotonic clock on."""
        if not self._sent_ns:
            return
        now = time.time_ns()
        begin = max(self._sent_ns, at_ns + now - time.perf_counter_ns())
        sizes = {
            "aotpipe.batch.calls": len(batch),
            "aotpipe.batch.rows": sum(call.rows or 1 for call in batch),
        }
        parent = self._child("batch", self._sent_ns, now, sizes)
        self._child("infer", begin, min(begin + ns, now), parent=parent)
        self._queued_ns = self._sent_ns = 0

    def end(self, attributes: Mapping[str, Any], status: int) -> None:
        """End the request's span; `status` is an HTTP status, 0 where the caller did not wait for one."""
        now = time.time_ns()
        if self._sent_ns:  # its worker died, or its caller is gone
            self._child("batch", self._sent_ns, now)
        elif self._queued_ns:
            self._child("queue", self._queued_ns, now)
        self._queued_ns = self._sent_ns = 0
        self._span.set_attributes(attributes)
        if status >= _SERVER_ERROR:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(now)

    def _child(
        self,
        name: str,
        begin_ns: int,
        end_ns: int,
        attributes: Mapping[str, int] | None = None,
        parent: Any = None,
    ) -> Any:
        span = self._tracer.start_span(
            name, parent or self._context, attributes=attributes, start_time=begin_ns
        )
        span.end(end_ns)
        return trace.set_span_in_context(span)


def _exporters() -> Iterator[Any]:
    for name in map(str.strip, os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")):
        if name in ("", "none"):
            continue
        wanted = name
        if name == "otlp":
            protocol = _first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
            wanted = _OTLP.get(protocol or "http/protobuf", protocol)
        if not (found := tuple(entry_points(group=_EXPORTERS, name=wanted))):
            raise ServeError(
                f"no exporter of traces is called {wanted!r}",
                reason=f"OTEL_TRACES_EXPORTER is {name!r}",
                hint=f"install it, or name one of: {', '.join(sorted(entry_points(group=_EXPORTERS).names))}",
            )
        yield found[0].load()()


def _first(*names: str) -> str:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")
