"""Reports are written whole and read back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aotpipe.build.report import Report, row_of
from aotpipe.core.stages import Latency, Timing
from tests.unit.build.reports import BAD, REPORT
from tests.unit.core.test_estimate import SAMPLE
from tests.unit.runtime.bundle import samples


def test_json_round_trip():
    text = json.dumps(REPORT.to_json(), allow_nan=False)
    back = Report.from_json(json.loads(text))
    assert json.dumps(back.to_json()) == text  # NaN is not equal to itself
    assert back.targets[:2] == REPORT.targets[:2]
    assert back.findings == REPORT.findings
    parity = back.targets[2].parity
    assert parity is not None
    assert parity.worst is not None
    assert parity.worst.ratio == BAD.ratio
    assert not parity.passed


def test_estimates_travel_and_may_be_absent():
    row = replace(REPORT.targets[1], estimates=(SAMPLE,))
    data = json.loads(json.dumps(replace(REPORT, targets=(row,)).to_json()))
    assert Report.from_json(data).targets == (row,)
    del data["targets"][0]["estimates"]
    assert Report.from_json(data).targets[0].estimates == ()


def test_a_report_without_a_diff_of_the_source_is_read():
    report = replace(REPORT, source_diff="--- a.py\n+++ a.py\n")
    data = json.loads(json.dumps(report.to_json()))
    assert Report.from_json(data).source_diff == report.source_diff
    del data["source_diff"]
    assert Report.from_json(data).source_diff == ""


def test_a_row_tells_of_all_its_programs_and_times_the_one_that_is_loaded():
    program = Timing(samples=9, least_us=5, median_us=5, per_s=2e5)
    latency = Latency(entry_point="f", threads=1, program=program)
    worse = replace(
        samples.validated(samples.HOST, "llvm-cpu"),
        parity=samples.parity(ratio=0.5),
        latency=(latency,),
        notes=("slow",),
    )
    own = samples.validated()
    row = row_of(own.compiled.target, replace(own, variants=(worse,)))
    assert row.parity == worse.parity
    assert row.latency == (latency,)
    assert row.size_bytes == len(own.compiled.payload) + len(worse.compiled.payload)
    assert row.notes == ("with programs for iree-cpu-host; this CPU takes the first", "iree-cpu-host: slow")
    assert row_of(own.compiled.target, own).notes == ()


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match="schema 99"):
        Report.from_json({**REPORT.to_json(), "schema": 99})


def test_a_target_that_was_not_run_is_no_failure():
    assert not REPORT.ok
    assert REPORT.exit_code == 40
    assert replace(REPORT, targets=REPORT.targets[:2]).ok
