"""A discrete event simulation of one server: its event loop, its queue and its workers.

Each request takes the event loop for a time, waits in the queue, which is the server's own
(`scheduler.Queue`) and so batches as the server does, runs in a worker for a time drawn from measured ones,
and takes the event loop again. The event loop and each worker have a core of their own, or share those of a
host with a client. A server that was
idle takes longer for a request than one that is busy: its threads have to be woken, and its data is no longer
in the caches. What that adds is measured by how long the server was idle.

With requests of a Poisson process, one batch at a time, no cost but the run's and a queue without bound it is
an M/G/c queue.
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
_SHARES: Final = (np.arange(_LEVELS) + 0.5) / _LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What a request takes that comes to a server which was idle.

    Attributes:
        idle_s: For how long.
        request_s: What the event loop takes for it.
        latencies_s: Of such requests, as a client sees them, ascending.
    """

    idle_s: float
    request_s: float
    latencies_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the parts of a server take.

    Attributes:
        runs: For some numbers of rows, measured seconds of runs of a batch of as many.
        batch_s: What a worker takes for a batch beside its run.
        request_s: What an event loop that is busy takes for a request: half before the call, half after it.
        idle: What a request takes that comes to an idle server, in ascending order of the time that it was
            idle.
        server_bytes: Resident memory of the server's process.
        worker_bytes: Resident memory of a worker.
    """

    runs: Mapping[int, Array]
    batch_s: float = 0.0
    request_s: float = 0.0
    idle: tuple[Idle, ...] = ()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where a server and its client run, with fewer cores than they have threads that work.

    Attributes:
        cores: How many.
        client_s: What the client takes for a request: half before it is sent, half after its answer has come.
    """

    cores: int
    client_s: float


class _Cores:
    """The cores of a host, each of which works on what comes to it in turn.

    An operating system would share a core between several: short work waits less for long work there.
    """

    def __init__(self, cores: int) -> None:
        self._free_at = [0.0] * cores

    def run(self, start: float, seconds: float) -> float:
        """When work ends that may begin at a moment."""
        end = max(start, self._free_at[0]) + seconds
        heapq.heapreplace(self._free_at, end)
        return end


@dataclass(frozen=True, slots=True)
class _Batch:
    """Calls that run at once, and the level of slowness of their run."""

    calls: list[Call]
    level: int
    run_s: float


@dataclass(frozen=True, slots=True)
class _IdleCosts:
    """What a request takes by how long the server was idle, linear between the times that were measured."""

    idle_s: list[float]
    of_loop: list[float]
    of_path: list[list[float]]

    @classmethod
    def of(cls, costs: Costs) -> _IdleCosts:
        alone = costs.batch_s + np.quantile(costs.runs[min(costs.runs)], _SHARES)
        of_path = [
            np.maximum(np.quantile(each.latencies_s, _SHARES) - each.request_s - alone, 0.0).tolist()
            for each in costs.idle
        ]
        # What a busy server adds on the way cannot be told from its queues: the least idle one stands for it.
        first = of_path[0] if of_path else [0.0] * _LEVELS
        return cls(
            [0.0, *(each.idle_s for each in costs.idle)],
            [costs.request_s, *(each.request_s for each in costs.idle)],
            [first, *of_path],
        )

    def request_s(self, idle_s: float) -> float:
        return float(np.interp(idle_s, self.idle_s, self.of_loop))

    def path_s(self, idle_s: float, level: int) -> float:
        return float(np.interp(idle_s, self.idle_s, [levels[level] for levels in self.of_path]))


@dataclass(slots=True)
class _Server:
    """The simulation's state; times are seconds."""

    costs: Costs
    limits: Limits
    workers: int
    rng: np.random.Generator
    rows: int
    host: Host | None = None
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
    idle_s: dict[int, float] = field(default_factory=dict)
    _levels: dict[int, Array] = field(init=False)
    _idle: _IdleCosts = field(init=False)
    _draws: Any = field(init=False)
    _cores: _Cores | None = field(init=False)

    def __post_init__(self) -> None:
        self.queue = Queue(self.limits)
        self.sent = [0] * self.workers
        self.free_at = [0.0] * self.workers
        self._levels = {rows: np.quantile(runs, _SHARES) for rows, runs in self.costs.runs.items()}
        self._idle = _IdleCosts.of(self.costs)
        self._draws = self._drawn()
        self._cores = _Cores(self.host.cores) if self.host else None

    def _drawn(self) -> Any:
        """Random levels of the measured times."""
        while True:
            yield from self.rng.integers(_LEVELS, size=4096).tolist()

    def run_s(self, rows: int, level: int) -> float:
        """A time of a run, of one level of slowness at the measured numbers of rows around it."""
        if rows not in self._levels:
            sizes = sorted(self.costs.runs)
            self._levels[rows] = np.array(
                [
                    np.interp(rows, sizes, [self._levels[size][level] for size in sizes])
                    for level in range(_LEVELS)
                ]
            )
        return float(self._levels[rows][level])

    def later(self, time: float, kind: str, what: Any = None) -> None:
        heapq.heappush(self.events, (time, next(self.order), kind, what))

    def read(self, now: float, number: int) -> None:
        """Let the event loop read a request."""
        self.idle_s[number] = max(now - self.loop_free, 0.0)
        self._client(now)
        self._on_loop(now, self._idle.request_s(self.idle_s[number]) / 2, "read", number)

    def answer(self, now: float, worker: int, batches: list[_Batch]) -> None:
        """Let the event loop write the answers of what a worker ran; only the first finds it idle."""
        first, *others = (cast("int", call.session) for batch in batches for call in batch.calls)
        idle_s = self.idle_s[first] if now >= self.loop_free else 0.0
        seconds = self._idle.request_s(idle_s) + len(others) * self.costs.request_s
        self._on_loop(now, seconds / 2, "answered", (worker, batches))

    def received(self, now: float, number: int, batch: _Batch) -> float:
        """When the client has an answer that the event loop has written."""
        return self._client(now) + self._idle.path_s(self.idle_s[number], batch.level)

    def _client(self, now: float) -> float:
        """Let the client do its half for a request; when it has."""
        return self._run(now, self.host.client_s / 2) if self.host else now

    def _run(self, start: float, seconds: float) -> float:
        """When work ends that may begin at a moment, for all that its thread has to do."""
        return self._cores.run(start, seconds) if self._cores else start + seconds

    def _on_loop(self, now: float, seconds: float, kind: str, what: Any) -> None:
        """Let the event loop work, and hear when it has."""
        self.loop_free = self._run(max(now, self.loop_free), seconds)
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
            batches: list[_Batch] = []
            while len(batches) < most and (calls := self.queue.take(now)):
                rows = sum(call.rows or self.rows for call in calls)
                level = next(self._draws)
                batches.append(_Batch(calls, level, self.run_s(rows, level)))
                self.batches, self.batched_rows = self.batches + 1, self.batched_rows + rows
            if batches:
                seconds = sum(batch.run_s + self.costs.batch_s for batch in batches)
                self.sent[worker] += 1
                self.free_at[worker] = self._run(max(now, self.free_at[worker]), seconds)
                self.workers_spent += seconds
                self.later(self.free_at[worker], "ran", (worker, batches))
        if ready and not self.has_timer and (due := self.queue.due_in(now)) is not None:
            self.has_timer = True
            self.later(now + max(due, _SHORTEST_TIMER_S), "due")


def poisson(rps: float, requests: int, *, seed: int = 0) -> Array:
    """The moments of a Poisson process, ascending, in seconds."""
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rps, requests))


def simulate(
    costs: Costs,
    limits: Limits,
    *,
    workers: int,
    arrivals: Array,
    seed: int = 0,
    rows: int = 1,
    most_s: float = math.inf,
    host: Host | None = None,
) -> Simulated:
    """Let requests come to a server.

    Args:
        costs: What its parts take.
        limits: How it batches and what may wait.
        workers: Its workers.
        arrivals: When requests come, ascending, in seconds.
        seed: Of the random numbers: equal ones give equal results.
        rows: Of each request.
        most_s: Once more than a hundredth of all requests took longer, no more of them come.
        host: Whose cores the server shares; without one it has as many as it needs.
    """
    moments, requests = arrivals.tolist(), len(arrivals)
    server = _Server(costs, limits, workers, np.random.default_rng(seed), rows, host)
    is_batched = limits.max_batch_size > 1
    latencies = np.full(requests, np.nan)
    unanswered = cast("Any", _Unanswered())
    refused, next_arrival, now, last = 0, 0, 0.0, 0.0
    first_counted = counted_from(requests)
    slow, most_slow = 0, (requests - first_counted) / 100
    while (server.events or next_arrival < requests) and slow <= most_slow:
        if next_arrival < requests and (not server.events or moments[next_arrival] <= server.events[0][0]):
            now = moments[next_arrival]
            server.read(now, next_arrival)
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
            server.answer(now, *what)
        else:
            worker, batches = what
            server.sent[worker] -= 1
            for batch in batches:
                server.mean_ns = mean_after(server.mean_ns, batch.run_s * 1e9)
                for call in batch.calls:
                    number = cast("int", call.session)
                    latencies[number] = server.received(now, number, batch) - moments[number]
                    slow += number >= first_counted and latencies[number] > most_s
            last = now
            server.dispatch(now)
    counted = latencies[first_counted:]
    answered = counted[~np.isnan(counted)]
    span = max(last, moments[-1]) - moments[first_counted]
    whole = max(last, moments[-1])
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


def counted_from(requests: int) -> int:
    """The first of so many requests that comes once the queue is as it will be."""
    return int(requests * _WARM_UP)
