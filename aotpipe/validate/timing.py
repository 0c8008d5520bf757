"""Times several ways to call a model in turns, and says whether the machine was calm enough to compare them.

    measured(runners, golden, ...) -> Turns        the samples, and how noisy the machine was
    latency(turns, ...) -> Latency                 the figures

The first call of each way is a cold one and is kept apart; then come calls until a batch takes as long as the
one before. Only after that samples are taken, in rounds in which every way gives some, so that a change of
the machine's speed meets all of them.

Between them runs a fixed kernel, on as many threads and for about as long as a call. Time in which it waits
for a core, or in which it computes slower than before, belongs to the machine. The least of many calls
withstands other work as long as some calls are left alone; whether they were is what `noise` says.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.stages import P90_SAMPLES, P99_SAMPLES, Latency, Timing
from aotpipe.runtime.goldens import Golden

_T = TypeVar("_T")

_ROUNDS: Final = 9
_PARTS: Final = 3
"""Into which the rounds are divided, to see whether they agree."""
_MOST_SAMPLES: Final = 2000
_MOST_POINTS: Final = 65
_STABLE: Final = 0.03
_MOST_WARM_UPS: Final = 10
# OpenMP's threads spin for a while after eager's last op; the next one must not compete with them.
_SETTLE_S: Final = 0.003
_KERNEL_S: Final = (0.0005, 0.02)
"""The shortest and the longest that the kernel takes: a time slice of Linux is some milliseconds."""
_KERNEL_ELEMENTS: Final = 50_000


class Timed(Protocol):
    """What can be timed: a worker that holds a program, or a way to run the model itself."""

    def time(
        self, inputs: Mapping[str, Array], *, entry_point: str, samples: int, reset: bool = False
    ) -> list[float]:
        """Microseconds of each of some calls; `reset` goes before each, untimed."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """One run of the fixed kernel: the CPU time of its slowest thread, and how much longer that one took."""

    cpu_s: float
    waited: float


@dataclass(slots=True)
class Turns:
    """What was seen: by runner, its first call and its samples by round; by round, the kernel's runs."""

    first_us: dict[str, float] = field(default_factory=dict)
    samples_us: dict[str, list[list[float]]] = field(default_factory=dict)
    kernel: list[list[KernelRun]] = field(default_factory=list)

    @property
    def noise(self) -> float:
        """The most that a part of the run differs from the others, or that the kernel always waited."""
        if not all(self.kernel):
            return 0.0
        runs = [run for part in self.kernel for run in part]
        always = min(run.waited for run in runs)
        slower = _apart([min(run.cpu_s for run in part) for part in _parts(self.kernel)])
        calls = (_apart([min(part) for part in _parts(rounds)]) for rounds in self.samples_us.values())
        return max(always, slower, *calls)


def measured(
    runners: Mapping[str, Timed], golden: Golden, *, stateful: bool, budget_s: float, threads: int
) -> Turns:
    """Time one call of each runner on the same inputs.

    A program is timed inside its worker, as a caller of the runner sees it (inputs checked, outputs copied);
    others without the conversion of their arguments.

    Args:
        runners: By name; each on as many threads.
        golden: The call.
        stateful: Whether each sample needs the initial state first.
        budget_s: Seconds for the samples of all runners together, of which each has an equal share. Warming
            up takes half of that at most, and at least the first call. On a machine that is so busy that all
            takes twice as long, there are fewer rounds.
        threads: How many the kernel runs on.
    """

    def timed(name: str, samples: int) -> list[float]:
        time.sleep(_SETTLE_S)
        return runners[name].time(
            golden.inputs, entry_point=golden.entry_point, samples=samples, reset=stateful
        )

    turns = Turns()
    share_us = budget_s / len(runners) * 1e6
    latest_s = time.perf_counter() + 2 * budget_s
    usual = {}
    for name in runners:
        [usual_us] = timed(name, 1)
        turns.first_us[name] = usual_us
        if usual_us < share_us:
            usual_us = _warmed_up(partial(timed, name), share_us)
        usual[name] = usual_us
    longest_us = max(usual.values())
    rounds = max(1, min(_ROUNDS, int(share_us / longest_us)))
    kernel = Kernel(min(longest_us / 1e6, budget_s / rounds / 10), threads)
    for _ in range(rounds):
        runs = []
        for name in runners:
            runs.append(kernel.run())
            fit = min(_MOST_SAMPLES, int(share_us / usual[name])) // rounds
            samples = timed(name, max(1, fit))
            # A way that was still warming up is asked for more now.
            usual[name] = max(statistics.median(samples), 1e-3)
            turns.samples_us.setdefault(name, []).append(samples)
        turns.kernel.append(runs)
        if len(turns.kernel) >= _PARTS and time.perf_counter() > latest_s:
            break
    return turns


def _warmed_up(timed: Callable[[int], list[float]], share_us: float) -> float:
    """Call until a batch takes as long as the one before; the microseconds of a call then."""
    [before] = timed(1)
    spent_us = before
    for _ in range(_MOST_WARM_UPS):
        count = max(1, min(100, int(share_us / 20 / max(before, 1e-3))))
        if spent_us + count * before > share_us / 2:
            break
        batch = timed(count)
        spent_us += sum(batch)
        usual_us = statistics.median(batch)
        if abs(usual_us - before) <= _STABLE * before:
            return usual_us
        before = usual_us
    return max(before, 1e-3)


class Kernel:
    """Work of a fixed size on each of some threads, which takes about `seconds` on a calm machine."""

    def __init__(self, seconds: float, threads: int) -> None:
        self._threads = threads
        self._values = np.linspace(0.0, 1.0, _KERNEL_ELEMENTS)
        least_s = min(self._once()[1] for _ in range(5))
        low, high = _KERNEL_S
        self._repeats = max(1, round(min(max(seconds, low), high) / least_s))

    def _once(self, repeats: int = 1) -> tuple[float, float]:
        start, cpu = time.perf_counter(), time.thread_time()
        for _ in range(repeats):
            # One of the functions of numpy that let other threads run meanwhile.
            np.sin(self._values)
        return time.perf_counter() - start, time.thread_time() - cpu

    def run(self) -> KernelRun:
        """Run it once on all threads."""
        time.sleep(_SETTLE_S)
        found: list[tuple[float, float]] = []

        def work() -> None:
            found.append(self._once(self._repeats))

        others = [threading.Thread(target=work, daemon=True) for _ in range(self._threads - 1)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        waited = max(wall / max(cpu, 1e-9) - 1.0 for wall, cpu in found)
        return KernelRun(cpu_s=max(cpu for _, cpu in found), waited=max(0.0, waited))


def _parts(rounds: Sequence[list[_T]]) -> list[list[_T]]:
    """The rounds as a few parts of equal length, each with all that its rounds have."""
    count = min(_PARTS, len(rounds))
    bounds = [len(rounds) * index // count for index in range(count + 1)]
    return [[each for own in rounds[begin:end] for each in own] for begin, end in pairwise(bounds)]


def _apart(values: Sequence[float]) -> float:
    return max(values) / max(min(values), 1e-12) - 1.0


def timing(rounds: Sequence[list[float]], first_us: float | None = None) -> Timing:
    """The figures of one runner's samples, in microseconds, by round."""
    ordered = sorted(each for own in rounds for each in own)
    points = ordered
    if len(ordered) > _MOST_POINTS:
        points = [ordered[round(at)] for at in np.linspace(0, len(ordered) - 1, _MOST_POINTS)]

    def quantile(at: float, fewest: int) -> float | None:
        return float(np.quantile(ordered, at)) if len(ordered) >= fewest else None

    return Timing(
        samples=len(ordered),
        least_us=ordered[0],
        median_us=statistics.median(ordered),
        per_s=1e6 * len(ordered) / max(sum(ordered), 1e-3),
        p90_us=quantile(0.9, P90_SAMPLES),
        p99_us=quantile(0.99, P99_SAMPLES),
        spread=_apart([statistics.median(part) for part in _parts(rounds)]),
        points_us=tuple(round(each, 3) for each in points),
        first_us=first_us,
    )


def latency(turns: Turns, program: str, *, entry_point: str, threads: int) -> Latency:
    """The figures of a program and of the others that it was timed beside."""
    timings = {name: timing(rounds, turns.first_us[name]) for name, rounds in turns.samples_us.items()}
    return Latency(
        entry_point=entry_point,
        threads=threads,
        program=timings.pop(program),
        baselines=timings,
        noise=turns.noise,
    )
