"""Reports are written whole and read back."""

from __future__ import annotations

import errno
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import jinja2
import pytest

from aotpipe.build import report as reports
from aotpipe.build.report import Report, render, row_of, to_junit, to_trace
from aotpipe.core.stages import Latency
from aotpipe.errors import DiskFull
from tests.unit.build.reports import BAD, REPORT
from tests.unit.core.test_estimate import SAMPLE
from tests.unit.runtime.bundle import samples


def test_written_files(tmp_path: Path):
    folder = reports.folder_of(tmp_path / "out")
    assert folder == tmp_path / "out.report"
    reports.write(REPORT, folder)
    reports.write(REPORT, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
        "trace.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out.report"]
    read = reports.read(folder)
    assert read is not None
    assert read.name == "tiny"
    assert reports.read(tmp_path) is None


def test_a_full_disk_leaves_the_report_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "out.report"
    reports.write(REPORT, folder)
    before = (folder / "report.json").read_bytes()

    def full(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskFull):
        reports.write(REPORT, folder)
    assert (folder / "report.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.report"]


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


def test_a_row_tells_of_all_its_programs_and_times_the_one_that_is_loaded():
    latency = Latency(
        entry_point="f", samples=9, threads=1, median_us=5, p90_us=6, eager_median_us=9, eager_p90_us=9
    )
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


class _Outline(HTMLParser):
    void = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href"}, "the page needs another file"
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_is_one_page_and_escapes_what_it_shows():
    page = render(REPORT)
    outline = _Outline()
    outline.feed(page)
    assert outline.open == []
    text = " ".join(" ".join(outline.text).split())
    for part in (
        "model.py:7",
        "got nan & <1.0>",
        "--iree-b=<c>",
        "×0.79",
        "17.7 kB",
        "12%",
        "the cache is full",
    ):
        assert part in text, part
    assert "<1.0>" not in page


def test_estimates_are_called_so():
    assert "estimate" not in render(REPORT).lower()
    row = replace(REPORT.targets[1], estimates=(SAMPLE, replace(SAMPLE, memory_bytes=0, loops=77)))
    page = render(replace(REPORT, targets=(row,)))
    assert "<h2>Estimates</h2>" in page
    assert "75% bfloat16, 25% float32 (highest)" in page
    assert "unknown length" not in page


def test_junit_has_one_test_per_target():
    suite = ET.fromstring(to_junit(REPORT).encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    by_name = {case.get("name"): case for case in suite}
    assert by_name["iree-cpu-host"].findtext("system-out") == "3 calls, worst 0.12 of the allowed error"
    assert by_name["iree-cpu-aarch64"].find("skipped") is not None
    failure = by_name["iree-vmvx"].find("failure")
    assert failure is not None
    assert failure.get("type") == "validate"
    assert "is nan, where the reference is 1.0" in (failure.text or "")


def test_every_stage_is_a_complete_event():
    trace = json.loads(to_trace(REPORT))
    export, compiled = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert (export["name"], export["ts"], export["dur"]) == ("export", 2_000_000, 1_500_000)
    assert export["args"] == {"cached": False, "peak_rss_bytes": 400_000_000}
    assert compiled["name"] == "compile iree-cpu-host"
    assert compiled["args"]["size_bytes"] == 17743


def test_tracks_are_named():
    trace = json.loads(to_trace(REPORT))
    events = trace["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tracks = [names[event["tid"]] for event in events if event["ph"] == "X"]
    assert tracks == ["build", "compile iree-cpu-host"]
    assert len({event["pid"] for event in events}) == 1


def test_the_page_is_compiled_once_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_slowly(_: jinja2.Environment, source: str) -> object:
        compiled.append(source)
        time.sleep(0.2)
        return object()

    reports._template.cache_clear()
    monkeypatch.setattr(jinja2.Environment, "from_string", compile_slowly)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: reports.template(), range(2))
    finally:
        reports._template.cache_clear()
    assert first is second
    assert len(compiled) == 1
