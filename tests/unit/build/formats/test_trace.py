"""The stages as trace events."""

from __future__ import annotations

import json

from aotpipe.build.formats.trace import to_trace
from tests.unit.build.reports import REPORT


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
