"""A discrete event simulation of one server: its event loop, its queue and its workers.

Requests come as a Poisson process. Each takes the event loop for a time, waits in the queue, which is the
server's own (`scheduler.Queue`) and so batches as the server does, runs in a worker for a time drawn from
measured ones, and takes the event loop again. The event loop and each worker have a core of their own.

With one batch at a time, no cost but the run's and a queue without bound it is an M/G/c queue.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.runtime.serve.scheduler import (
    Call,
    Limits,
    Queue,
    batches_of_message,
    mean_after,
    messages_at_once,
)

_WARM_UP: Final = 0.1
"""The share of the requests that come before the queue is as it will be; they are not counted."""
_SHORTEST_TIMER_S: Final = 1e-4
_LEVELS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the parts of a server take.

    Attributes:
        runs: For some numbers of rows, measured seconds of runs of a batch of as many.
        batch_s: What a worker takes for a batch beside its run.
        request_s: What the event loop takes for a request: half before the call, half after it.
        path_s: What a request takes on its way beside all that: the loopback's sockets, wake-ups, its client.
        server_bytes: Resident memory of the server's process.
        worker_bytes: Resident memory of a worker.
    """

    runs: Mapping[int, Array]
    batch_s: float = 0.0
    request_s: float = 0.0
    path_s: float = 0.0
    server_bytes: int = 0
    worker_bytes: int = 0

    def run_s(self, rows: int) -> float:
        """The mean seconds of a worker for a batch, linear between the numbers of rows that were measured."""
        sizes = sorted(self.runs)
        means = [float(np.mean(self.runs[size])) for size in sizes]
        return self.batch_s + float(np.interp(rows, sizes, means))


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What clients see of a server, and how busy it is.

    Attributes:
        rps: Requests answered in a second.
        refused: The share of the requests that found the queue full.
        batch_rows: The mean rows of a batch.
        loop_busy: The share of its time that the event loop worked.
        workers_busy: That of the workers.
    """

    rps: float
    p50_s: float
    p99_s: float
    mean_s: float
    refused: float
    batch_rows: float
    loop_busy: float
    workers_busy: float


class _Unanswered:
    """Stands for the future of a call that nobody waits for."""

    def done(self) -> bool:
        return True


@dataclass(slots=True)
class _Server:
    """The simulation's state; times are seconds."""

    costs: Costs
    limits: Limits
    workers: int
    rng: np.random.Generator
    rows: int
    queue: Queue = field(init=False)
    events: list[tuple[float, int, str, Any]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)
    loop_free: float = 0.0
    loop_spent: float = 0.0
    workers_spent: float = 0.0
    mean_ns: float = 0.0
    has_timer: bool = False
    batches: int = 0
    batched_rows: int = 0
    sent: list[int] = field(init=False)
    free_at: list[float] = field(init=False)
    _levels: dict[int, Array] = field(init=False)
    _draws: Any = field(init=False)

    def __post_init__(self) -> None:
        self.queue = Queue(self.limits)
        self.sent = [0] * self.workers
        self.free_at = [0.0] * self.workers
        levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
        self._levels = {rows: np.quantile(runs, levels) for rows, runs in self.costs.runs.items()}
        self._draws = self._drawn()

    def _drawn(self) -> Any:
        """Random levels of the measured times."""
        while True:
            yield from self.rng.integers(_LEVELS, size=4096).tolist()

    def run_s(self, rows: int) -> float:
        """A random time of a run, of the same level of slowness at the measured numbers of rows around it."""
        if rows not in self._levels:
            sizes = sorted(self.costs.runs)
            self._levels[rows] = np.array(
                [
                    np.interp(rows, sizes, [self._levels[size][level] for size in sizes])
                    for level in range(_LEVELS)
                ]
            )
        return float(self._levels[rows][next(self._draws)])

    def later(self, time: float, kind: str, what: Any = None) -> None:
        heapq.heappush(self.events, (time, next(self.order), kind, what))

    def on_loop(self, now: float, seconds: float, kind: str, what: Any) -> None:
        """Let the event loop work, and hear when it has."""
        self.loop_free = max(now, self.loop_free) + seconds
        self.loop_spent += seconds
        self.later(self.loop_free, kind, what)

    def dispatch(self, now: float) -> None:
        """Send what may run to the workers that have room, as `Pool.dispatch` does."""
        slots = messages_at_once(self.mean_ns)
        ready = sorted(
            (each for each in range(self.workers) if self.sent[each] < slots), key=self.sent.__getitem__
        )
        for place, worker in enumerate(ready):
            most = batches_of_message(self.mean_ns, len(self.queue.waiting), len(ready) - place)
            batches: list[tuple[list[Call], float]] = []
            while len(batches) < most and (batch := self.queue.take(now)):
                rows = sum(call.rows or self.rows for call in batch)
                batches.append((batch, self.run_s(rows)))
                self.batches, self.batched_rows = self.batches + 1, self.batched_rows + rows
            if batches:
                seconds = sum(run + self.costs.batch_s for _, run in batches)
                self.sent[worker] += 1
                self.free_at[worker] = max(now, self.free_at[worker]) + seconds
                self.workers_spent += seconds
                self.later(self.free_at[worker], "ran", (worker, batches))
        if ready and not self.has_timer and (due := self.queue.due_in(now)) is not None:
            self.has_timer = True
            self.later(now + max(due, _SHORTEST_TIMER_S), "due")


def simulate(
    costs: Costs,
    limits: Limits,
    *,
    workers: int,
    rps: float,
    requests: int,
    seed: int = 0,
    rows: int = 1,
    most_s: float = math.inf,
) -> Simulated:
    """Let requests come to a server.

    Args:
        costs: What its parts take.
        limits: How it batches and what may wait.
        workers: Its workers.
        rps: Requests in a second, on average.
        requests: How many come.
        seed: Of the random numbers: equal ones give equal results.
        rows: Of each request.
        most_s: Once more than a hundredth of all requests took longer, no more of them come.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1.0 / rps, requests)).tolist()
    server = _Server(costs, limits, workers, rng, rows)
    is_batched = limits.max_batch_size > 1
    latencies = np.full(requests, np.nan)
    half_s = costs.request_s / 2
    unanswered = cast("Any", _Unanswered())
    refused, next_arrival, now, last = 0, 0, 0.0, 0.0
    first_counted = int(requests * _WARM_UP)
    slow, most_slow = 0, (requests - first_counted) / 100
    while (server.events or next_arrival < requests) and slow <= most_slow:
        if next_arrival < requests and (not server.events or arrivals[next_arrival] <= server.events[0][0]):
            now = arrivals[next_arrival]
            server.on_loop(now, half_s, "read", next_arrival)
            next_arrival += 1
            continue
        now, _, kind, what = heapq.heappop(server.events)
        if kind == "read":
            if len(server.queue.waiting) >= limits.max_queue_size:
                refused += what >= first_counted
                continue
            call = Call(
                entry="",
                inputs=(),
                future=unanswered,
                received=now,
                session=what,
                rows=rows if is_batched else 0,
                key=0,
            )
            server.queue.waiting.append(call)
            server.dispatch(now)
        elif kind == "due":
            server.has_timer = False
            server.dispatch(now)
        elif kind == "ran":
            calls = sum(len(batch) for batch, _ in what[1])
            server.on_loop(now, half_s * calls, "answered", what)
        else:
            worker, batches = what
            server.sent[worker] -= 1
            for batch, run_s in batches:
                server.mean_ns = mean_after(server.mean_ns, run_s * 1e9)
                for call in batch:
                    number = cast("int", call.session)
                    latencies[number] = now - arrivals[number]
                    slow += number >= first_counted and latencies[number] + costs.path_s > most_s
                last = now
            server.dispatch(now)
    counted = latencies[first_counted:]
    answered = counted[~np.isnan(counted)] + costs.path_s
    span = max(last, arrivals[-1]) - arrivals[first_counted]
    whole = max(last, arrivals[-1])
    p50_s, p99_s = np.percentile(answered, (50, 99)) if answered.size else (math.inf, math.inf)
    return Simulated(
        rps=answered.size / span if span else 0.0,
        p50_s=float(p50_s),
        p99_s=float(p99_s),
        mean_s=float(answered.mean()) if answered.size else math.inf,
        refused=refused / counted.size,
        batch_rows=server.batched_rows / max(server.batches, 1),
        loop_busy=server.loop_spent / whole,
        workers_busy=server.workers_spent / (whole * workers),
    )
