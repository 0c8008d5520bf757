"""Costs that are measured on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotpipe.errors import ServeError
from aotpipe.runtime.serve.capacity.costs import Subject, measure
from aotpipe.runtime.serve.repository import Options
from aotpipe.runtime.serve.scheduler import Limits


def test_a_model_with_state_is_not_planned_for(bundles: Path) -> None:
    with pytest.raises(ServeError, match="keeps state"):
        Subject.of(bundles / "count", Options())


@pytest.mark.slow
def test_costs_are_measured_by_batch_size(bundles: Path) -> None:
    # A queue of fewer calls than a busy server is asked at once, where none waits too long.
    limits = Limits(max_batch_size=6, max_queue_size=4)
    subject = Subject.of(bundles / "mlp", Options(threads=1, limits=limits))
    assert {array.shape for array in subject.inputs.values()} == {(1, 4)}
    costs = measure(subject)
    assert list(costs.runs) == [1, 2, 4, 6]
    assert all(len(runs) >= 8 and runs.min() > 0 for runs in costs.runs.values())
    assert 0 < costs.request_s < 0.1
    assert [each.idle_s for each in costs.idle] == sorted(each.idle_s for each in costs.idle)
    assert all(costs.request_s <= each.request_s < each.latencies_s.max() for each in costs.idle)
    assert 10e6 < costs.worker_bytes < 1e9
