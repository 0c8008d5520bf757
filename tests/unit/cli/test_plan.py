"""`aotpipe plan`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aotpipe.runtime.serve.capacity import costs, planning
from aotpipe.runtime.serve.capacity.simulation import Costs
from tests.in_process import aotpipe

COSTS = Costs(runs={1: np.array([0.002, 0.003])}, request_s=0.0002, server_bytes=10**7, worker_bytes=10**8)


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.Subject, "of", classmethod(lambda *_: None))
    monkeypatch.setattr(costs, "measure", lambda _: COSTS)


@pytest.mark.usefixtures("_measured")
def test_a_plan_says_what_to_start_and_what_it_does_not_know(tmp_path: Path) -> None:
    asked = ["plan", "bundle", "--rps", "10", "--rps", "1e5", "--cores", "2", "--p99-ms"]
    ran = aotpipe(*asked, "20", folder=tmp_path)
    assert ran.returncode == 0
    assert "aotpipe serve bundle --workers" in ran.stdout
    assert "not taken into account: the network" in ran.stderr
    found = json.loads(aotpipe(*asked, "20", "--json", folder=tmp_path).stdout)
    assert [each["rps"] for each in found["plans"]] == [10, 100_000]
    assert found["costs"]["run_us"]["1"] == {"p50": pytest.approx(3000), "p99": pytest.approx(3000)}
    assert found["unknown"] == list(planning.UNKNOWN)
    assert aotpipe(*asked, "0.5", folder=tmp_path).returncode == 80
