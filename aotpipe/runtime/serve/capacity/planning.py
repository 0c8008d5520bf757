"""Looks for the fewest cores that answer a rate of requests within a time; compares the model with a server.

A replica is one `aotpipe serve`: its event loop has a core, and each thread of each worker has one. Requests
are spread over replicas at random, so that each has a Poisson process of its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aotpipe.errors import ServeError
from aotpipe.runtime.serve.capacity import open_loop
from aotpipe.runtime.serve.capacity.costs import Subject, server
from aotpipe.runtime.serve.capacity.simulation import Costs, Host, Simulated, counted_from, poisson, simulate
from aotpipe.runtime.serve.scheduler import Limits

# Shares of what a server can answer, of which the largest is taken that keeps the time.
_SHARES: Final = (0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01)
_REQUESTS: Final = 10_000
_MORE_REPLICAS: Final = 8
_MEASURED_SHARES: Final = (0.1, 0.3, 0.5, 0.7)
_FEWEST_MEASURED: Final = 50
# The share of a host's cores that a server and the sender of its requests may take where they are compared.
_BUSY_HOST: Final = 0.6
UNKNOWN: Final = (
    "the network between clients, load balancers and servers",
    "hosts with other processors, and other processes on the same cores",
    "requests of other sizes than the recorded call, and arrivals in bursts",
    "spare replicas for those that fail or are being replaced",
)
"""What a plan does not take into account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What answers a rate of requests.

    Attributes:
        rps: The rate.
        replicas: Servers.
        workers: Of each server.
        cores: Of all servers: one for each event loop, and one for each thread of each worker.
        memory_bytes: Resident, of all processes; pages that several share are counted in each.
        hosts: As many as have these cores.
        simulated: What the clients of one server see.
    """

    rps: float
    replicas: int
    workers: int
    cores: int
    memory_bytes: int
    hosts: int
    simulated: Simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A rate at which a real server was asked, and what the model says of it.

    Attributes:
        rps: The rate.
        late_s: How late this program sent its requests, at the 99th percentile.
        failed: Requests that were refused or not answered.
        p50_error: The predicted over the measured time, less 1; so are the others.
    """

    rps: float
    requests: int
    workers: int
    predicted: Simulated
    measured_p50_s: float
    measured_p99_s: float
    measured_rps: float
    failed: int
    late_s: float
    p50_error: float
    p99_error: float
    rps_error: float


def capacity_rps(costs: Costs, limits: Limits, *, workers: int, rows: int = 1) -> float:
    """The requests in a second that a server can answer at most: of its workers or of its event loop."""
    most = max(limits.max_batch_size // rows, 1)
    by_workers = workers * most / costs.run_s(most * rows)
    return min(by_workers, 1.0 / costs.request_s) if costs.request_s else by_workers


def plan(
    costs: Costs,
    limits: Limits,
    *,
    rates: Sequence[float],
    p99_s: float,
    threads: int,
    cores: int,
    seed: int = 0,
    rows: int = 1,
) -> list[Plan]:
    """The fewest cores that answer so many requests within a time, for each rate.

    Args:
        costs: What a server's parts take.
        limits: How it batches.
        rates: Requests in a second.
        p99_s: In which 99 of 100 requests are to be answered.
        threads: Of each worker.
        cores: Of one host.
        seed: Of the simulation.
        rows: Of each request.

    Raises:
        ServeError: One server alone is slower, however few requests it gets.
    """

    def seen(rps: float, workers: int, most_s: float = p99_s) -> Simulated:
        arrivals = poisson(rps, _REQUESTS, seed=seed)
        return simulate(
            costs, limits, workers=workers, arrivals=arrivals, seed=seed, rows=rows, most_s=most_s
        )

    def keeps(found: Simulated) -> bool:
        return found.p99_s <= p99_s and not found.refused

    most = max((cores - 1) // threads, 1)
    plans: list[list[Plan]] = [[] for _ in rates]
    least_s = math.inf
    for workers in sorted({*(1 << power for power in range(most.bit_length())), most}):
        most_rps = capacity_rps(costs, limits, workers=workers, rows=rows)
        shares = (share * most_rps for share in _SHARES)
        if (kept := next((rps for rps in shares if keeps(seen(rps, workers))), None)) is None:
            least_s = min(least_s, seen(_SHARES[-1] * most_rps, workers, most_s=math.inf).p99_s)
            continue
        for found, rps in zip(plans, rates, strict=True):
            fewest = math.ceil(rps / kept)
            for replicas in range(fewest, fewest + _MORE_REPLICAS):
                if keeps(simulated := seen(rps / replicas, workers)):
                    found.append(_planned(costs, simulated, rps, replicas, workers, threads, cores))
                    break
    if not all(plans):
        raise ServeError(
            f"no number of servers answers 99 of 100 requests in {p99_s * 1e3:g} ms",
            reason=f"one that has little to do takes {least_s * 1e3:.3g} ms" if least_s < math.inf else "",
            hint="allow more time, a shorter --max-queue-delay-us or more --threads",
        )
    return [min(found, key=lambda each: (each.cores, each.replicas)) for found in plans]


def _planned(
    costs: Costs, found: Simulated, rps: float, replicas: int, workers: int, threads: int, cores: int
) -> Plan:
    each = workers * threads + 1
    return Plan(
        rps=rps,
        replicas=replicas,
        workers=workers,
        cores=replicas * each,
        memory_bytes=replicas * (costs.server_bytes + workers * costs.worker_bytes),
        hosts=math.ceil(replicas / max(cores // each, 1)),
        simulated=found,
    )


def compare(subject: Subject, costs: Costs, *, workers: int, seconds: float, seed: int = 0) -> list[Point]:
    """Ask a real server on this machine at some rates, beside what the model says of the same requests.

    The model is given the moments at which they were sent, and what their sender took of this host's cores.
    The rates are shares of what the server can answer, or of what leaves this host some of its cores.

    Raises:
        ServeError: It does not start, or does not answer.
    """
    limits = subject.options.limits
    cores, threads = os.cpu_count() or 1, subject.options.threads or 1
    most_rps = capacity_rps(costs, limits, workers=workers, rows=subject.rows)
    points = []
    with server(subject, workers=workers) as (port, _):
        request = subject.request()
        first = open_loop.ask(port, request, poisson(min(most_rps * 0.1, 200.0), _FEWEST_MEASURED))
        most_rows = max(limits.max_batch_size // subject.rows, 1)
        spent_s = (
            costs.request_s + first.client_s + threads * costs.run_s(most_rows * subject.rows) / most_rows
        )
        most_rps = min(most_rps, _BUSY_HOST * cores / spent_s)
        for share in _MEASURED_SHARES:
            rps = share * most_rps
            requests = max(int(rps * seconds), _FEWEST_MEASURED)
            load = open_loop.ask(port, request, poisson(rps, requests, seed=seed))
            predicted = simulate(
                costs,
                limits,
                workers=workers,
                arrivals=load.sent_s,
                seed=seed,
                rows=subject.rows,
                host=Host(cores=cores, client_s=load.client_s),
            )
            points.append(_point(load, predicted, rps, workers))
    return points


def _point(load: open_loop.Load, predicted: Simulated, rps: float, workers: int) -> Point:
    requests = sum(load.statuses.values())
    latencies_s = load.latencies_s[counted_from(requests) :]
    p50_s, p99_s = np.percentile(latencies_s, (50, 99)) if latencies_s.size else (math.nan, math.nan)
    return Point(
        rps=rps,
        requests=requests,
        workers=workers,
        predicted=predicted,
        measured_p50_s=float(p50_s),
        measured_p99_s=float(p99_s),
        measured_rps=load.rps,
        failed=requests - load.statuses.get(200, 0),
        late_s=load.late_s,
        p50_error=predicted.p50_s / float(p50_s) - 1,
        p99_error=predicted.p99_s / float(p99_s) - 1,
        rps_error=predicted.rps / load.rps - 1 if load.rps else math.inf,
    )
