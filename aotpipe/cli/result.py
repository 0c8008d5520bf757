"""A build's result for people: one row per target, where things lie, what programs will cost elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aotpipe.build.report import Report, TargetReport
from aotpipe.build.rerun import Row
from aotpipe.cli import text
from aotpipe.core.estimate import Estimate
from aotpipe.core.stages import Latency, Timing
from aotpipe.core.targets import Target
from aotpipe.core.units import count, duration, share, size

_HEAD = (
    "target",
    "status",
    "parity",
    "max error",
    "eager's",
    "median",
    "p90",
    "n",
    "of eager",
    "eager's n",
    "size",
)
_EAGER = "eager"
_MOST_MISSED = 12
_ESTIMATE = (
    "estimate for",
    "program",
    "flops",
    "in matmuls",
    "moved",
    "flops/B",
    "memory",
    "at least",
    "bound by",
)
_LEGEND = (
    "An estimate: what the compiler counts, over the chip's published peaks; nothing was timed. "
    "`at least` is the roofline: the longer of computing the matmuls and moving the bytes."
)


def targets_table(report: Report) -> str:
    """The rows, and below them why a target was not run; `failures` says why others failed.

    `parity` is the largest share of the allowed error that an element used, `max error` and `eager's` are the
    errors of the program and of eager against float64 there, `of eager` is the program's least time over
    eager's.
    """
    many = any(len(row.latency) > 1 for row in report.targets)
    head = (_HEAD[0], "entry point", *_HEAD[1:]) if many else _HEAD
    lines = [line for row in report.targets for line in _lines(row, many=many)]
    reasons = [f"{row.target}: {row.reason}" for row in report.targets if row.reason and not row.exit_code]
    notes = [f"{row.target}: {note}" for row in report.targets for note in _notes(row)]
    return "\n".join([text.table(head, lines), *reasons, *notes])


def coverage(report: Report) -> str:
    """How much of the model the compared calls reach, and a line for each thing that they do not.

    A line of the model that was traced in several states stands in several places of the graph.
    """
    found = report.coverage
    if found.notes:
        return f"coverage: {'; '.join(found.notes)}"
    if not found.total:
        return "coverage: the model has no branches, loops or sizes to reach"
    said = f"coverage: {found.reached} of {found.total} branches, trips and sizes reached"
    counted = Counter(f"  not reached: {goal} ({goal.reason})" for goal in found.missed)
    missed = [
        line if count == 1 else f"{line}, in {count} places of the graph" for line, count in counted.items()
    ]
    more = [f"  and {len(missed) - _MOST_MISSED} more, in the report"] if len(missed) > _MOST_MISSED else []
    return "\n".join([said, *missed[:_MOST_MISSED], *more])


def _notes(row: TargetReport) -> list[str]:
    is_other = row.dialect == "stablehlo" and Target.parse(row.target).backend == "iree"
    spread = [str(row.partition)] if row.partition else []
    return [*(["compiled from StableHLO"] if is_other else []), *spread, *row.notes]


def failures(report: Report) -> str:
    """Why the build or a target failed, and which budgets do not hold."""
    exceeded = [f"error[budget]: {each}" for each in report.budgets if not each.passed]
    return "\n".join([*map(str, report.failures), *exceeded])


def paths(report: Report, folder: Path) -> str:
    """Where the bundle and its report lie."""
    found = {"bundle": report.bundle} if report.bundle else {}
    return text.fields({**found, "report": str(folder / "report.html")})


def profile_table(report: Report) -> str:
    """What each stage took; `from` is its start, since compilers run beside other stages."""
    rows = [
        (
            cost.stage,
            cost.target,
            f"{cost.start_s:.3f}",
            "cached" if cost.cached else f"{cost.wall_s:.3f}",
            size(cost.peak_rss_bytes),
            size(cost.size_bytes) if cost.size_bytes else "",
        )
        for cost in report.stages
    ]
    peak_bytes = max((cost.peak_rss_bytes for cost in report.stages), default=0)
    total = ("total", "", "", f"{report.wall_s:.3f}", size(peak_bytes), "")
    head = ("stage", "target", "from", "seconds", "peak memory", "made")
    return text.table(head, [*rows, total])


def _lines(row: TargetReport, *, many: bool) -> Iterator[list[str]]:
    for number, latency in enumerate(row.latency or (None,)):
        first = number == 0
        entry = [latency.entry_point if latency else ""] if many else []
        yield [
            row.target if first else "",
            *entry,
            row.status if first else "",
            *(_parity(row) if first else ("", "", "")),
            *_latency(latency),
            size(row.size_bytes) if first and row.size_bytes else "",
        ]


def _parity(row: TargetReport) -> tuple[str, str, str]:
    worst = row.parity.worst if row.parity else None
    if worst is None:
        return ("–", "–", "–")
    return (share(worst.ratio), f"{worst.max_abs_error:.2g}", f"{worst.eager_abs_error:.2g}")


def _latency(latency: Latency | None) -> tuple[str, ...]:
    if latency is None:
        return ("–",) * 5
    eager = latency.baselines.get(_EAGER)
    return (*_figures(latency.program), ratio(latency, _EAGER), str(eager.samples) if eager else "–")


def _figures(timing: Timing) -> tuple[str, str, str]:
    p90 = "–" if timing.p90_us is None else duration(timing.p90_us / 1e6)
    return (duration(timing.median_us / 1e6), p90, str(timing.samples))


def ratio(latency: Latency, baseline: str) -> str:
    """A program's time over a baseline's, or that the run does not say it."""
    if baseline not in latency.baselines:
        return "–"
    return "noisy" if latency.noisy else f"×{latency.ratios[baseline]:.2g}"


def bench_table(rows: Iterable[Row]) -> str:
    """A line for each way that an entry point was run, the program first, and what loading took."""
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    for row in rows:
        name = row.target if row.program in {"", row.target} else f"{row.target} ({row.program})"
        if row.latency is None:
            lines.append((name, "", row.reason))
            continue
        latency = row.latency
        lines.append((name, latency.entry_point, "program", *_bench(latency.program), ""))
        for way, timing in latency.baselines.items():
            lines.append(("", "", way, *_bench(timing), ratio(latency, way)))
        if row.server is not None:
            # Its times are from when a call came: how many ended in a second is how many came.
            lines.append(("", "", "Server", *_bench(row.server)[:-1], f"{row.per_s:.4g}", ""))
        notes += [f"{name}: {way} does not take the model: {reason}" for way, reason in row.left_out.items()]
        notes += _costs(name, latency)
    head = ("target", "entry point", "way", "median", "p90", "n", "p99", "per second", "program")
    padded = ((*line, *[""] * (len(head) - len(line))) for line in lines)
    return "\n".join([text.table(head, padded), *notes])


def _bench(timing: Timing) -> tuple[str, ...]:
    p99 = "–" if timing.p99_us is None else duration(timing.p99_us / 1e6)
    return (*_figures(timing), p99, f"{timing.per_s:.4g}")


def _costs(name: str, latency: Latency) -> Iterator[str]:
    """What is no part of a call in the steady state, and whether the machine was calm."""
    costs = {"loaded in": latency.load_us, "first call": latency.program.first_us}
    said = [f"{what} {duration(each / 1e6)}" for what, each in costs.items() if each is not None]
    if latency.peak_rss_bytes:
        said.append(f"peak memory {size(latency.peak_rss_bytes)}")
    said.append(f"{latency.threads} threads" if latency.threads > 1 else "1 thread")
    yield f"{name} {latency.entry_point}: {', '.join(said)}; noise {latency.noise:.0%}"


def estimates_table(rows: Iterable[tuple[str, Sequence[Estimate]]]) -> str:
    """The estimates of each target whose chip is known, and what they are; empty where there is none."""
    lines = [_estimate(target, each) for target, estimates in rows for each in estimates if each.memory_bytes]
    return "\n".join([text.table(_ESTIMATE, lines), _LEGEND]) if lines else ""


def largest(estimates: Iterable[Estimate]) -> list[Estimate]:
    """Of each entry point, the program that takes longest: there is one for each choice of sizes."""
    found: dict[str, Estimate] = {}
    for each in estimates:
        best = found.setdefault(each.entry_point, each)
        if (each.bound_s, each.flops) > (best.bound_s, best.flops):
            found[each.entry_point] = each
    return list(found.values())


def _estimate(target: str, each: Estimate) -> tuple[str, ...]:
    return (
        target + (f", each of {each.devices}" if each.devices > 1 else ""),
        each.program + (f" (loops of unknown length: {each.loops})" if each.loops else ""),
        count(each.flops),
        each.matmuls_text,
        size(each.traffic_bytes),
        f"{each.intensity:.3g}",
        f"{size(each.peak_bytes)} of {size(each.memory_bytes)} ({share(each.memory_share)})",
        duration(each.bound_s),
        each.bound_by or "–",
    )
