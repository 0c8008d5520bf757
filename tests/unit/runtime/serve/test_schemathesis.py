"""The server under requests that schemathesis makes of its OpenAPI document."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from tests.unit.runtime.serve.conftest import Server

WARM_UP = 1_000
"""Requests after which the server's memory is as large as it will be."""
HUGE = (0, 1, 2**31, 2**31 + 1, 2**63 - 1, 2**63, 2**64, 2**200, -1)


def resident_bytes(server: Server) -> int:
    """Of the server and its workers."""
    pages = [
        int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        for pid in (server.process.pid, *server.workers())
    ]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def with_huge_shapes(numbers: random.Random, body: Any) -> Any:
    """The body of a call for a model that is there, of which some sizes are huge."""
    if not isinstance(body, dict) or not isinstance(body.get("inputs"), list):
        return body
    for tensor in body["inputs"]:
        if isinstance(tensor, dict):
            tensor["shape"] = [numbers.choice(HUGE) for _ in range(numbers.randint(0, 6))]
            if numbers.random() < 0.7:
                tensor |= {"name": "input", "datatype": "FP32"}
            if numbers.random() < 0.5:
                tensor["data"] = [numbers.choice((0.5, 1e308, 2**70, "a", None))] * numbers.randint(0, 9)
            else:
                tensor["parameters"] = {"binary_data_size": numbers.choice(HUGE)}
    return body


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("requests", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_request_is_the_servers_fault_and_each_answer_is_as_documented(
    serve: Callable[..., Server], print_table: Callable[[str], None], requests: int
) -> None:
    server = serve("mlp", "count", "sum", options=("--model-control", "--max-body-bytes", "1000000"))
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations()]
    numbers = random.Random(0)
    statuses: Counter[int] = Counter()
    before = 0

    def ask(case: Any) -> None:
        nonlocal before
        if case.path_parameters and numbers.random() < 0.8:
            # What unloads a model would leave the rest of the requests without one.
            loads = case.operation.path.endswith("load")
            case.path_parameters["model"] = "none" if loads else numbers.choice(("mlp", "count", "sum"))
            if "version" in case.path_parameters:
                case.path_parameters["version"] = "1"
        if numbers.random() < 0.5:
            case.body = with_huge_shapes(numbers, case.body)
        answer = case.call(timeout=60)
        statuses[answer.status_code] += 1
        if (count := sum(statuses.values())) % 500 == 0 and count >= WARM_UP and not before:
            before = resident_bytes(server)
        assert answer.status_code < 500 or answer.status_code == 503, (case.as_curl_command(), answer.text)
        responses = case.operation.definition.raw["responses"]
        assert str(answer.status_code) in responses, (case.as_curl_command(), answer.text)

    def fuzz(operation: Any, mode: Any, count: int) -> None:
        run = settings(
            max_examples=count,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        with suppress(Unsatisfiable):  # nothing of a request without a parameter can be wrong
            run(given(operation.as_strategy(generation_mode=mode))(ask))()

    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    for operation in operations:
        for mode in modes:
            fuzz(operation, mode, requests // len(operations) // 2)
    while sum(statuses.values()) < requests:  # an operation without parameters has one request
        fuzz(schema["/v2/models/{model}/infer"]["POST"], modes[0], requests // 10)
    after = resident_bytes(server)
    print_table(f"{sum(statuses.values())} requests, {dict(statuses)}, resident memory {before} -> {after}")
    assert not before or after < before * 1.05
    assert server.infer("mlp", "input", [1, 2, 3, 4], [1, 4])[0] == 200
