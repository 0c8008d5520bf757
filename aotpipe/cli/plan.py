"""`aotpipe plan`: how many servers answer a rate of requests."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotpipe.cli import options, text
from aotpipe.core.units import duration, size
from aotpipe.errors import ServeError

if TYPE_CHECKING:
    from aotpipe.runtime.serve.capacity.planning import Plan, Point
    from aotpipe.runtime.serve.capacity.simulation import Costs


@click.command()
@options.bundle_path
@click.option(
    "--rps",
    type=click.FloatRange(0, min_open=True),
    multiple=True,
    required=True,
    help="Requests in a second; may be given several times.",
)
@click.option(
    "--p99-ms",
    type=click.FloatRange(0, min_open=True),
    required=True,
    help="In which 99 of 100 requests are to be answered.",
)
@click.option("-t", "--target", metavar="TARGET", help="Which program. [default: the best that runs here]")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Of each worker.")
@click.option("--cores", type=click.IntRange(1), help="Of one host. [default: this one's]")
@options.batching
@click.option("--measure", is_flag=True, help="Ask a real server too, and print how far the model is off.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=3.0,
    show_default=True,
    help="For how long a server is asked at each rate.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the simulation.")
@options.as_json
def plan(
    *,
    bundle: Path,
    rps: tuple[float, ...],
    p99_ms: float,
    target: str | None,
    threads: int,
    cores: int | None,
    max_batch_size: int,
    preferred_batch_size: tuple[int, ...],
    max_queue_delay_us: int,
    max_queue_size: int,
    measure: bool,
    seconds: float,
    seed: int,
    as_json: bool,
) -> None:
    """Say how many servers, workers, cores and how much memory answer a rate of requests in time.

    The bundle's program and a server are timed on this host, and `aotpipe serve` is simulated with these
    times and its own queue. Needs no torch.
    """
    costs_of, planning = _imported("capacity.costs"), _imported("capacity.planning")
    limits = _imported("scheduler").Limits(
        max_batch_size=max_batch_size,
        preferred_batch_size=preferred_batch_size,
        max_queue_delay_s=max_queue_delay_us / 1e6,
        max_queue_size=max_queue_size,
    )
    cores = cores or os.cpu_count() or 1
    serving = _imported("repository").Options(target=target, threads=threads, limits=limits)
    subject = costs_of.Subject.of(bundle, serving)
    costs: Costs = costs_of.measure(subject)
    plans: list[Plan] = planning.plan(
        costs, limits, rates=rps, p99_s=p99_ms / 1e3, threads=threads, cores=cores, seed=seed
    )
    points: list[Point] = []
    if measure:
        # The event loop and the requests' sender have a core each, where there are as many.
        workers = min(max((os.cpu_count() or 1) - 2, threads) // threads, plans[-1].workers)
        points = planning.compare(subject, costs, workers=max(workers, 1), seconds=seconds, seed=seed)
    if as_json:
        measured = {
            "request_us": costs.request_s * 1e6,
            "batch_us": costs.batch_s * 1e6,
            "idle": [
                {
                    "idle_us": each.idle_s * 1e6,
                    "request_us": each.request_s * 1e6,
                    "p50_us": float(_level(each.latencies_s, 0.5)) * 1e6,
                    "p99_us": float(_level(each.latencies_s, 0.99)) * 1e6,
                }
                for each in costs.idle
            ],
            "server_bytes": costs.server_bytes,
            "worker_bytes": costs.worker_bytes,
            "run_us": {
                str(rows): {"p50": float(_level(runs, 0.5)) * 1e6, "p99": float(_level(runs, 0.99)) * 1e6}
                for rows, runs in costs.runs.items()
            },
        }
        text.echo_json({"costs": measured, "plans": plans, "points": points, "unknown": planning.UNKNOWN})
        return
    runs = ", ".join(f"{rows} in {duration(float(_level(each, 0.5)))}" for rows, each in costs.runs.items())
    text.echo(f"a run of rows: {runs}; the server takes {duration(costs.request_s)} for a request beside it")
    text.echo("\n" + _plans_table(plans))
    text.echo(f"\n{_command(bundle, plans[-1], threads, limits)}")
    if points:
        text.echo("\n" + _points_table(points))
        late = duration(max(point.late_s for point in points))
        text.echo(f"the requests' sender used this host's cores too, and was up to {late} late (p99)")
    text.say("not taken into account: " + "; ".join(planning.UNKNOWN))


def _plans_table(plans: list[Plan]) -> str:
    head = (
        "rps",
        "replicas",
        "workers each",
        "cores",
        "memory",
        "hosts",
        "p50",
        "p99",
        "rows a batch",
        "busy",
    )
    rows = [
        (
            f"{each.rps:g}",
            str(each.replicas),
            str(each.workers),
            str(each.cores),
            size(each.memory_bytes),
            str(each.hosts),
            duration(each.simulated.p50_s),
            duration(each.simulated.p99_s),
            f"{each.simulated.batch_rows:.2g}",
            f"{max(each.simulated.loop_busy, each.simulated.workers_busy):.0%}",
        )
        for each in plans
    ]
    return text.table(head, rows)


def _points_table(points: list[Point]) -> str:
    head = (
        "rps",
        "n",
        "predicted p50",
        "measured",
        "off",
        "predicted p99",
        "measured",
        "off",
        "rps",
        "off",
        "failed",
    )
    rows = [
        (
            f"{each.rps:.4g}",
            str(each.requests),
            duration(each.predicted.p50_s),
            duration(each.measured_p50_s),
            f"{each.p50_error:+.0%}",
            duration(each.predicted.p99_s),
            duration(each.measured_p99_s),
            f"{each.p99_error:+.0%}",
            f"{each.measured_rps:.4g}",
            f"{each.rps_error:+.0%}",
            str(each.failed),
        )
        for each in points
    ]
    return text.table(head, rows)


def _command(bundle: Path, plan: Plan, threads: int, limits: Any) -> str:
    words = ["aotpipe serve", str(bundle), f"--workers {plan.workers} --threads {threads}"]
    if limits.max_batch_size > 1:
        words.append(f"--max-batch-size {limits.max_batch_size}")
    if limits.max_queue_delay_s:
        words.append(f"--max-queue-delay-us {round(limits.max_queue_delay_s * 1e6)}")
    return " ".join(words)


def _level(runs: Any, share: float) -> Any:
    return runs[min(int(len(runs) * share), len(runs) - 1)]


def _imported(module: str) -> Any:
    try:
        return import_module(f"aotpipe.runtime.serve.{module}")
    except ModuleNotFoundError as error:
        raise ServeError(f"{error.name} is not installed", hint="pip install 'aotpipe[serve]'") from error
