"""What a server counts, for Prometheus: `nv_inference_*` mean what Triton's metrics of these names mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from aotpipe.errors import AotpipeError
from aotpipe.runtime.serve.scheduler import Call

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_LABELS: Final = ("model", "version")
_SECONDS: Final = (
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Served(Protocol):
    """What a gauge reads of a model."""

    name: str
    version: str
    target: str
    digest: str
    is_ready: bool
    waiting: int
    running: int
    sessions: int
    slots: int


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, (*_LABELS, *labels), registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, _LABELS, buckets=buckets, registry=self.registry)

        self.success = counter("nv_inference_request_success", "Requests that were answered")
        self.failure = counter(
            "nv_inference_request_failure", "Requests that were refused or failed", "reason"
        )
        self.count = counter(
            "nv_inference_count", "Inferences: the rows of batches, and calls outside of them"
        )
        self.executions = counter("nv_inference_exec_count", "Runs of a program")
        self.request_us = counter(
            "nv_inference_request_duration_us", "Microseconds of requests in the server"
        )
        self.queue_us = counter("nv_inference_queue_duration_us", "Microseconds of requests in the queue")
        self.compute_us = counter("nv_inference_compute_infer_duration_us", "Microseconds in programs")
        self.island_runs = counter(
            "aotpipe_island_runs", "Runs of Python functions that are no part of a program", "island"
        )
        self.restarts = counter("aotpipe_worker_restarts", "Workers that died and were replaced")
        self.tokens = counter("aotpipe_generated_tokens", "Tokens of texts")
        self.first_token_s = histogram(
            "aotpipe_first_token_seconds", "Seconds until the first token of a text", _SECONDS
        )
        self.request_s = histogram("aotpipe_request_seconds", "Seconds of a request in the server", _SECONDS)
        self.queue_s = histogram("aotpipe_queue_seconds", "Seconds of a request in the queue", _SECONDS)
        self.batch = histogram("aotpipe_batch_rows", "Rows of a run of a program", _ROWS)

    def watch(self, models: Any) -> None:
        """Read gauges of the models that a function gives whenever metrics are asked for."""
        self.registry.register(_Gauges(models))

    def text(self) -> bytes:
        """All metrics in Prometheus' own format."""
        return generate_latest(self.registry)


class ModelMetrics:
    """The counters of one version of a model, looked up once.

    `islands` are the names of the functions that a run of an entry point calls.
    """

    def __init__(
        self, metrics: Metrics, model: str, version: str, islands: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._labels = (model, version)
        self._islands = {
            entry: [metrics.island_runs.labels(*self._labels, name) for name in names]
            for entry, names in (islands or {}).items()
        }
        self._failure = metrics.failure
        self._success = metrics.success.labels(*self._labels)
        self._count = metrics.count.labels(*self._labels)
        self._executions = metrics.executions.labels(*self._labels)
        self._request_us = metrics.request_us.labels(*self._labels)
        self._queue_us = metrics.queue_us.labels(*self._labels)
        self._compute_us = metrics.compute_us.labels(*self._labels)
        self._restarts = metrics.restarts.labels(*self._labels)
        self._request_s = metrics.request_s.labels(*self._labels)
        self._queue_s = metrics.queue_s.labels(*self._labels)
        self._batch = metrics.batch.labels(*self._labels)
        self._tokens = metrics.tokens.labels(*self._labels)
        self._first_token_s = metrics.first_token_s.labels(*self._labels)

    def ran(self, batch: list[Call], ns: int) -> None:
        """Count a run of a program."""
        rows = sum(call.rows or 1 for call in batch)
        self._executions.inc()
        for runs in self._islands.get(batch[0].entry, ()):
            runs.inc()
        self._count.inc(rows)
        self._batch.observe(rows)
        self._compute_us.inc(ns / 1000)

    def answered(self, call: Call, now: float) -> None:
        """Count a request that was answered."""
        self._success.inc()
        spent, waited = now - call.received, call.started - call.received
        self._request_us.inc(spent * 1e6)
        self._queue_us.inc(waited * 1e6)
        self._request_s.observe(spent)
        self._queue_s.observe(waited)

    @contextmanager
    def counting_failures(self) -> Iterator[None]:
        """Count a request that is refused or fails inside."""
        try:
            yield
        except AotpipeError as error:
            self._failure.labels(*self._labels, type(error).__name__).inc()
            raise

    def generated(self, waited_s: float | None) -> None:
        """Count a token; of a text's first one, for how long it was waited."""
        self._tokens.inc()
        if waited_s is not None:
            self._first_token_s.observe(waited_s)

    def finished(self, seconds: float) -> None:
        """Count a request whose text has ended."""
        self._success.inc()
        self._request_us.inc(seconds * 1e6)
        self._request_s.observe(seconds)

    def restarted(self) -> None:
        """Count a worker that died."""
        self._restarts.inc()


class _Gauges:
    """What is so at the moment of a scrape."""

    def __init__(self, models: Any) -> None:
        self._models = models

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        ready = GaugeMetricFamily("aotpipe_model_ready", "Whether a model answers", labels=_LABELS)
        pending = GaugeMetricFamily(
            "nv_inference_pending_request_count", "Requests that wait", labels=_LABELS
        )
        running = GaugeMetricFamily("aotpipe_running_requests", "Requests in a worker", labels=_LABELS)
        sessions = GaugeMetricFamily("aotpipe_sessions", "Open sessions", labels=_LABELS)
        slots = GaugeMetricFamily("aotpipe_slots_used", "Texts that have a slot of a cache", labels=_LABELS)
        program = GaugeMetricFamily(
            "aotpipe_program_info", "The program that runs", labels=(*_LABELS, "target", "digest")
        )
        served: Iterable[Served] = self._models()
        for model in served:
            labels = (model.name, model.version)
            ready.add_metric(labels, float(model.is_ready))
            pending.add_metric(labels, model.waiting)
            running.add_metric(labels, model.running)
            sessions.add_metric(labels, model.sessions)
            slots.add_metric(labels, model.slots)
            program.add_metric((*labels, model.target, model.digest), 1.0)
        return [ready, pending, running, sessions, slots, program]
