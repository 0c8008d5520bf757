"""Plans from costs that are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotpipe.errors import ServeError
from aotpipe.runtime.serve.capacity.costs import Subject
from aotpipe.runtime.serve.capacity.planning import capacity_rps, compare, plan
from aotpipe.runtime.serve.capacity.simulation import Costs
from aotpipe.runtime.serve.repository import Options
from aotpipe.runtime.serve.scheduler import Limits

COSTS = Costs(
    runs={1: np.array([0.002, 0.003]), 8: np.array([0.006, 0.008])},
    request_s=0.0002,
    server_bytes=10,
    worker_bytes=100,
)


def test_more_requests_take_more_cores_and_each_plan_keeps_its_time() -> None:
    limits = Limits(max_batch_size=8)
    found = plan(COSTS, limits, rates=(10, 3000, 1_000_000), p99_s=0.03, threads=1, cores=4)
    assert [each.cores for each in found] == sorted(each.cores for each in found)
    assert (found[0].replicas, found[0].workers, found[0].cores, found[0].memory_bytes) == (1, 1, 2, 110)
    for each in found:
        assert each.simulated.p99_s <= 0.03
        assert each.simulated.refused == 0
        assert each.cores == each.replicas * (each.workers + 1) <= 4 * each.hosts
        assert each.rps < each.replicas * capacity_rps(COSTS, limits, workers=each.workers)


def test_a_time_that_no_server_keeps_is_refused() -> None:
    with pytest.raises(ServeError, match=r"no number of servers .* in 1 ms") as error:
        plan(COSTS, Limits(), rates=[10], p99_s=0.001, threads=1, cores=4)
    assert "one that has little to do takes 3." in error.value.reason


def test_what_a_server_answers_at_most() -> None:
    assert capacity_rps(COSTS, Limits(), workers=2) == pytest.approx(2 / 0.0025)
    assert capacity_rps(COSTS, Limits(max_batch_size=8), workers=2) == pytest.approx(2 * 8 / 0.007)
    assert capacity_rps(COSTS, Limits(max_batch_size=8), workers=99) == pytest.approx(5000)


@pytest.mark.slow
def test_the_model_is_compared_with_a_server(bundles: Path) -> None:
    subject = Subject.of(bundles / "mlp", Options(threads=1))
    costs = Costs(runs={1: np.array([0.005])}, request_s=0.001)  # not this server's, which has little to do
    points = compare(subject, costs, workers=1, seconds=0.5)
    # Shares of the 200 that the server could answer, or of fewer where the host's cores are too few for both.
    assert [point.rps / points[0].rps for point in points] == pytest.approx([1, 3, 5, 7])
    assert 0 < points[0].rps <= 20
    for point in points:
        assert (point.failed, point.requests) == (0, max(50, int(point.rps * 0.5)))
        assert point.p50_error == point.predicted.p50_s / point.measured_p50_s - 1
        assert point.rps_error == pytest.approx(0, abs=0.5)
