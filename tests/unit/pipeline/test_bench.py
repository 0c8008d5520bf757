"""Programs are timed, alone or beside eager."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotpipe.pipeline import bench
from tests.unit.bundle import samples


def test_a_program_alone(tmp_path: Path):
    path = samples.packed(tmp_path / "out").path
    rows = bench.measure(path, None, budget_s=0.2, threads=1)
    assert [(row.target, row.entry_point) for row in rows] == [
        ("iree-vmvx", "forward"),
        ("iree-vmvx", "decode"),
    ]
    for row in rows:
        assert row.samples > 1
        assert 0 < row.median_us <= row.p90_us
        assert row.eager_median_us is None
        assert row.to_json()["samples"] == row.samples


def test_what_cannot_run_here_has_a_reason_and_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = samples.packed(tmp_path / "out").path
    monkeypatch.setattr(bench, "why_not_here", lambda *_: "no such device")
    (row,) = bench.measure(path, None)
    assert (row.reason, row.samples) == ("no such device", 0)
