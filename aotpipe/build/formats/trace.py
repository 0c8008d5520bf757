"""The stages of a build on a time line, as trace events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aotpipe.build.events import StageFinished
from aotpipe.build.report import Report
from aotpipe.core.serialization import attributes

_PROCESS: Final = 1
_BUILD: Final = "build"


def to_trace(report: Report) -> str:
    """The stages on a time line, as the trace events that Perfetto and chrome://tracing open.

    The format is Chrome's Trace Event Format (JSON): a complete event (`ph` X) per stage, in microseconds
    from the start of the build. The build's own stages share one track; each compiler has a track of its own.
    A stage whose result came from the store has the time that this took.
    """
    tracks = {name: index for index, name in enumerate(dict.fromkeys([_BUILD, *map(_track, report.stages)]))}
    named = [("process_name", 0, f"aotpipe build {report.name}")]
    named += [("thread_name", track, name) for name, track in tracks.items()]
    names = [
        {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": {"name": name}}
        for kind, track, name in named
    ]
    events = [_event(cost, tracks[_track(cost)]) for cost in report.stages]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"}) + "\n"


def _track(cost: StageFinished) -> str:
    return f"compile {cost.target}" if cost.stage == "compile" else _BUILD


def _event(cost: StageFinished, track: int) -> Mapping[str, Any]:
    details = attributes(cost, "target cached peak_rss_bytes size_bytes")
    return {
        "ph": "X",
        "name": f"{cost.stage} {cost.target}".strip(),
        "cat": cost.stage,
        "pid": _PROCESS,
        "tid": track,
        "ts": round(cost.start_s * 1e6),
        "dur": round(cost.wall_s * 1e6),
        "args": {key: value for key, value in details.items() if value or key == "cached"},
    }
