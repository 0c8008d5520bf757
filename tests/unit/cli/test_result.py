"""A build's result for people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aotpipe.cli import result
from aotpipe.cli.result import estimates_table, failures, largest, paths, profile_table, targets_table
from aotpipe.core.coverage import UNKNOWN, Coverage, Goal
from aotpipe.errors import SourceLine
from tests.unit.build.reports import REPORT
from tests.unit.core.test_estimate import SAMPLE


def test_a_result_has_a_row_per_target_and_the_reasons_below():
    text = targets_table(REPORT)
    head, host, aarch64, vmvx, *below = text.splitlines()
    assert head.split()[:3] == ["target", "status", "parity"]
    assert host.split() == [
        *("iree-cpu-host", "executed", "12%", "2.5e-07", "1.5e-07"),
        *("220.0", "µs", "251.5", "µs", "70", "×0.79", "50", "17.7", "kB"),
    ]
    assert aarch64.split()[:3] == ["iree-cpu-aarch64", "compiled", "–"]
    assert vmvx.split()[:3] == ["iree-vmvx", "failed", "∞"]
    assert below == ["iree-cpu-aarch64: not an x86_64 program", "iree-cpu-host: compiled without data tiling"]
    assert failures(REPORT).startswith("error[validate]: output[]")


def test_a_profile_has_a_row_per_stage():
    lines = profile_table(REPORT).splitlines()
    assert lines[1].split() == ["export", "2.000", "1.500", "400.0", "MB"]
    assert lines[2].split() == ["compile", "iree-cpu-host", "3.500", "cached", "1.0", "kB", "17.7", "kB"]
    assert lines[-1].split()[:2] == ["total", "12.500"]


def test_places_name_the_bundle_only_where_there_is_one():
    assert paths(REPORT, Path("/r")) == "bundle  /tmp/out\nreport  /r/report.html"


def test_a_row_says_what_a_program_will_cost() -> None:
    head, row, legend = estimates_table([("xla-tpu-v5e", (SAMPLE,))]).splitlines()
    assert head.startswith("estimate for")
    assert row.split() == [
        *("xla-tpu-v5e", "forward", "batch=8", "seq=64", "4.0", "M", "75%", "bfloat16,", "25%", "float32"),
        *("(highest)", "1.0", "MB", "4", "700.0", "kB", "of", "17.2", "GB", "(<1%)", "5.0", "µs", "memory"),
    ]
    assert "estimate" in legend


def test_where_no_chip_is_known_there_is_nothing_to_say() -> None:
    assert (
        estimates_table([("iree-cpu-host", ()), ("xla-cpu-host", (replace(SAMPLE, memory_bytes=0),))]) == ""
    )


def test_loops_are_named() -> None:
    assert "(loops of unknown length: 2)" in estimates_table([("xla-tpu-v5e", (replace(SAMPLE, loops=2),))])


def test_of_many_sizes_the_one_that_takes_longest_stands_for_all() -> None:
    small = replace(SAMPLE, sizes={"batch": 1}, memory_s=1e-6)
    other = replace(SAMPLE, entry_point="decode")
    assert largest([small, SAMPLE, other]) == [SAMPLE, other]


def test_of_several_devices_each_one_is_meant() -> None:
    assert "xla-tpu-v5e, each of 4  forward" in estimates_table(
        [("xla-tpu-v5e", (replace(SAMPLE, devices=4),))]
    )


def test_what_was_not_reached_is_named_with_its_line() -> None:
    line = SourceLine("m.py", 3)
    reached = Goal(entry_point="forward", kind="branch", what="is true", where=line, case="example")
    missed = Goal(entry_point="forward", kind="branch", what="is false", where=line, reason="none was found")
    said = result.coverage(replace(REPORT, coverage=Coverage(goals=(reached, missed))))
    assert said.splitlines() == [
        "coverage: 1 of 2 branches, trips and sizes reached",
        "  not reached: m.py:3: branch is false (none was found)",
    ]
    many = tuple(replace(missed, where=SourceLine("m.py", 10 + place)) for place in range(20))
    assert "and 8 more" in result.coverage(replace(REPORT, coverage=Coverage(goals=many)))
    twice = result.coverage(replace(REPORT, coverage=Coverage(goals=(reached, missed, missed))))
    assert twice.splitlines()[1:] == [
        "  not reached: m.py:3: branch is false (none was found), in 2 places of the graph"
    ]
    assert "no branches" in result.coverage(replace(REPORT, coverage=Coverage()))
    assert "was not looked at" in result.coverage(replace(REPORT, coverage=UNKNOWN))
