"""A build's result for people."""

from __future__ import annotations

from pathlib import Path

from aotpipe.cli.result import failures, paths, profile_table, targets_table
from tests.unit.build.report.samples import REPORT


def test_a_result_has_a_row_per_target_and_the_reasons_below():
    text = targets_table(REPORT)
    head, host, aarch64, vmvx, *below = text.splitlines()
    assert head.split()[:3] == ["target", "status", "parity"]
    assert host.split() == [
        *("iree-cpu-host", "executed", "12%", "2.5e-07", "1.5e-07"),
        *("220.0", "µs", "251.5", "µs", "×0.79", "50", "17.7", "kB"),
    ]
    assert aarch64.split()[:3] == ["iree-cpu-aarch64", "compiled", "–"]
    assert vmvx.split()[:3] == ["iree-vmvx", "failed", "∞"]
    assert below == [
        "iree-cpu-aarch64: not an x86_64 program",
        "iree-cpu-host: compiled without data tiling",
    ]
    assert failures(REPORT).startswith("error[validate]: output[]")


def test_a_profile_has_a_row_per_stage():
    lines = profile_table(REPORT).splitlines()
    assert lines[1].split() == ["export", "2.000", "1.500", "400.0", "MB"]
    assert lines[2].split() == ["compile", "iree-cpu-host", "3.500", "cached", "1.0", "kB", "17.7", "kB"]
    assert lines[-1].split()[:2] == ["total", "12.500"]


def test_places_name_the_bundle_only_where_there_is_one():
    assert paths(REPORT, Path("/r")) == "bundle  /tmp/out\nreport  /r/report.html"
