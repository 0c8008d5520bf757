"""`aotpipe bench`: a row per entry point of each program."""

from __future__ import annotations

import json
from pathlib import Path

from aotpipe.build import bench
from tests.unit.cli.commands import run
from tests.unit.runtime.bundle import samples


def test_a_bundle_alone(tmp_path: Path):
    path = str(samples.packed(tmp_path / "out").path)
    rows = json.loads(run("bench", path, "--seconds", "0.1", "--json", "-q"))
    assert [row["entry_point"] for row in rows] == ["forward", "decode"]
    head, *lines = run("bench", path, "--seconds", "0.1", "-q").splitlines()
    assert head.split() == ["target", "entry", "point", "median", "p90", "eager", "of", "eager", "n"]
    assert len(lines) == 2


def test_beside_eager_and_not_here(tmp_path: Path, monkeypatch):
    rows = [
        bench.Row(
            target="iree-vmvx",
            entry_point="forward",
            samples=9,
            median_us=500.0,
            p90_us=600.0,
            eager_median_us=1000.0,
            eager_p90_us=1200.0,
        ),
        bench.Row(target="iree-cpu-host", reason="this CPU lacks avx9"),
    ]
    monkeypatch.setattr(bench, "measure", lambda *_, **__: rows)
    _, first, second = run("bench", "out", "m.py").splitlines()
    assert first.split() == ["iree-vmvx", "forward", "500.0", "µs", "600.0", "µs", "1.00", "ms", "×0.5", "9"]
    assert "this CPU lacks avx9" in second
