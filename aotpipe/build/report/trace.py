"""A build's stages on a time line, as the trace events that Perfetto and chrome://tracing open.

The format is Chrome's Trace Event Format (JSON): a complete event (`ph` X) per stage, microseconds from the
start of the build. Stages of the build itself lie on one track; compilers run beside it, each on its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aotpipe.build.report.contents import Report, StageCost

_PROCESS: Final = 1
_BUILD: Final = "build"


def to_trace(report: Report) -> str:
    """The JSON text; stages whose results came from the store are on it with the time that took."""
    tracks = {
        name: number for number, name in enumerate(dict.fromkeys([_BUILD, *map(_track, report.stages)]))
    }
    names = [_named("process_name", 0, f"aotpipe build {report.name}")]
    names += [_named("thread_name", number, name) for name, number in tracks.items()]
    events = [_event(cost, tracks[_track(cost)]) for cost in report.stages]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"}) + "\n"


def _track(cost: StageCost) -> str:
    return f"compile {cost.target}" if cost.stage == "compile" else _BUILD


def _named(kind: str, track: int, name: str) -> Mapping[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _event(cost: StageCost, track: int) -> Mapping[str, Any]:
    details = {
        "target": cost.target,
        "cached": cost.cached,
        "peak_rss_bytes": cost.peak_rss_bytes,
        "size_bytes": cost.size_bytes,
    }
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
