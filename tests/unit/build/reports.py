"""A report with one target of each status."""

from __future__ import annotations

import math
from dataclasses import replace

from aotpipe.build.events import StageFinished
from aotpipe.build.report import Failure, Report, TargetReport
from aotpipe.core.stages import Finding, Latency, Parity, ParityCase, Timing
from aotpipe.errors import SourceLine

GOOD = ParityCase(
    entry_point="forward",
    case="seed 0",
    output="output",
    max_abs_error=2.5e-7,
    eager_abs_error=1.5e-7,
    ratio=0.12,
    worst_index=(3, 1),
    got=0.25,
    want=0.2500001,
)
BAD = replace(
    GOOD, ratio=math.inf, got=math.nan, worst_index=(), message="is nan, where the reference is 1.0"
)
TIME = Latency(
    entry_point="forward",
    threads=2,
    program=Timing(
        samples=70,
        least_us=210.0,
        median_us=220.0,
        per_s=4545.0,
        p90_us=251.5,
        points_us=(210.0, 220.0, 260.0),
    ),
    baselines={
        "eager": Timing(samples=50, least_us=266.0, median_us=280.0, per_s=3571.0, points_us=(266.0, 400.0))
    },
    noise=0.02,
    load_us=3000.0,
    peak_rss_bytes=40_000_000,
)
REPORT = Report(
    name="tiny",
    bundle="/tmp/out",
    targets=(
        TargetReport(
            target="iree-cpu-host",
            status="executed",
            parity=Parity(cases=(GOOD,), calls=3, rule="8 x eager's own error"),
            latency=(TIME,),
            size_bytes=17743,
            flags=("--iree-a", "--iree-b=<c>"),
            notes=("compiled without data tiling",),
        ),
        TargetReport(target="iree-cpu-aarch64", status="compiled", reason="not an x86_64 program"),
        TargetReport(
            target="iree-vmvx",
            status="failed",
            failure=Failure(
                error="ParityError", stage="validate", exit_code=40, message="output[]: got nan & <1.0>\x00"
            ),
            reason="error[validate]: output[]: got nan & <1.0>\x00",
            parity=Parity(cases=(GOOD, BAD), calls=3, rule="8 x eager's own error"),
        ),
    ),
    findings=(
        Finding(
            severity="warning",
            code="unused-input",
            message="`mask` is not read",
            hint="drop it",
            where=SourceLine("model.py", 7),
            entry_point="forward",
        ),
        Finding(severity="note", code="constant-input", message="`scale` is 2"),
    ),
    remarks=("the cache is full",),
    stages=(
        StageFinished(
            stage="export", target="", start_s=2.0, wall_s=1.5, peak_rss_bytes=400_000_000, cached=False
        ),
        StageFinished(
            stage="compile",
            target="iree-cpu-host",
            start_s=3.5,
            wall_s=0.0,
            peak_rss_bytes=1000,
            size_bytes=17743,
            cached=True,
        ),
    ),
    toolchain={"torch": "2.13.0"},
    wall_s=12.5,
)
