"""Metrics: what is counted, and what a scrape finds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aotpipe.errors import QueueFull
from aotpipe.runtime.serve.metrics import Metrics, ModelMetrics
from aotpipe.runtime.serve.scheduler import Call


def test_a_batch_counts_its_rows_once_and_each_request_its_time() -> None:
    loop = asyncio.new_event_loop()
    metrics = Metrics()
    of = ModelMetrics(metrics, "m", "1", {"f": ["sort", "look_up", "sort"], "g": ["other"]})
    calls = [
        Call(entry="f", inputs=(), future=loop.create_future(), received=1.0, started=1.5, rows=rows)
        for rows in (3, 2)
    ]
    of.ran(calls, 4000)
    of.generated(0.5)
    of.generated(None)
    for call in calls:
        of.answered(call, 2.0)
    with pytest.raises(QueueFull), of.counting_failures():
        raise QueueFull("")
    metrics.watch(
        lambda: [
            SimpleNamespace(
                name="m",
                version="1",
                target="t",
                digest="d",
                is_ready=True,
                waiting=4,
                running=2,
                sessions=0,
                slots=3,
            )
        ]
    )
    rows = dict(line.rsplit(" ", 1) for line in metrics.text().decode().splitlines() if line[0] != "#")
    labels = '{model="m",version="1"}'
    assert float(rows[f"nv_inference_count_total{labels}"]) == 5
    assert float(rows[f"nv_inference_exec_count_total{labels}"]) == 1
    assert float(rows[f"nv_inference_queue_duration_us_total{labels}"]) == 1e6
    assert float(rows[f"nv_inference_request_duration_us_total{labels}"]) == 2e6
    assert float(rows[f"nv_inference_compute_infer_duration_us_total{labels}"]) == 4
    assert float(rows['nv_inference_request_failure_total{model="m",reason="QueueFull",version="1"}']) == 1
    assert float(rows[f"nv_inference_pending_request_count{labels}"]) == 4
    assert float(rows['aotpipe_island_runs_total{island="sort",model="m",version="1"}']) == 2
    assert float(rows['aotpipe_island_runs_total{island="look_up",model="m",version="1"}']) == 1
    assert float(rows['aotpipe_island_runs_total{island="other",model="m",version="1"}']) == 0
    assert float(rows[f"aotpipe_slots_used{labels}"]) == 3
    assert float(rows[f"aotpipe_generated_tokens_total{labels}"]) == 2
    assert float(rows[f"aotpipe_first_token_seconds_sum{labels}"]) == 0.5
    loop.close()
