"""Timing: warm calls alone, in turns, within the budget, and a machine that is not calm says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aotpipe.validate as validation
from aotpipe.core.stages import Latency
from aotpipe.runtime.goldens import Golden
from aotpipe.validate import timing

GOLDEN = Golden(
    entry_point="forward",
    case="example",
    reset=True,
    inputs={"x": np.zeros(2, np.float32)},
    outputs={},
    allowed={},
)


class _Clock:
    """Stands in for the module `time`: only what is measured takes time, whatever else this machine does.

    `stolen` is the share of a core that other work takes while the kernel runs.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.cpu_s = 0.0
        self.stolen = 0.0
        self.speed: Iterator[float] = itertools.repeat(1.0)

    def perf_counter(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.cpu_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def sin(self, _: Any) -> None:
        took = 1e-4 * next(self.speed)
        self.cpu_s += took
        self.now_s += took * (1 + self.stolen)


class _Runner:
    """What it was asked, and its times; the first call is a cold one, and the next few take longer, too."""

    def __init__(self, clock: _Clock, duration_us: float, cold: int = 3) -> None:
        self.clock = clock
        self.duration_us = duration_us
        self.cold = cold
        self.asked: list[int] = []
        self.resets: set[bool] = set()

    def time(self, inputs: Any, *, entry_point: str, samples: int, reset: bool = False) -> list[float]:
        self.asked.append(samples)
        self.resets.add(reset)
        found = []
        for _ in range(samples):
            found.append(self.duration_us * (50 if self.cold > 0 else 1))
            self.cold -= 1
        self.clock.now_s += sum(found) / 1e6
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    found = _Clock()
    monkeypatch.setattr(timing, "time", found)
    monkeypatch.setattr(timing.np, "sin", found.sin)
    return found


def _measure(clock: _Clock, budget_s: float, stateful: bool = False, **runners: _Runner) -> Latency:
    (measured,) = validation.measure_latency(
        runners.pop("program"),  # type: ignore[arg-type]
        runners,
        [GOLDEN],
        stateful=stateful,
        budget_s=budget_s,
        threads=1,
    )
    return measured


def test_no_cold_call_is_in_a_figure(clock: _Clock) -> None:
    runners = {"program": _Runner(clock, 100.0), "eager": _Runner(clock, 1000.0)}
    found = _measure(clock, 0.5, **runners)
    assert found.program.first_us == 5000.0
    assert found.baselines["eager"].first_us == 50000.0
    for each, took in ((found.program, 100.0), (found.baselines["eager"], 1000.0)):
        assert each.least_us == each.median_us == each.p90_us == took
        assert each.samples >= 64
    assert found.ratios == {"eager": 0.1}
    assert found.baselines["eager"].samples != found.program.samples
    assert clock.now_s < 1.2


def test_a_call_beyond_the_budget_is_sampled_once_after_a_cold_one(clock: _Clock) -> None:
    runner = _Runner(clock, 5e6, cold=1)
    found = _measure(clock, 1.0, program=runner)
    assert runner.asked == [1, 1]
    assert (found.program.samples, found.program.least_us, found.program.p90_us) == (1, 5e6, None)


@pytest.mark.parametrize(
    ("samples", "p90", "p99"), [(63, False, False), (64, True, False), (662, True, True)]
)
def test_a_quantile_needs_samples(samples: int, p90: bool, p99: bool) -> None:
    found = timing.timing([[float(each) for each in range(1, samples + 1)]])
    assert (found.p90_us is not None, found.p99_us is not None) == (p90, p99)
    assert found.points_us[0] == 1.0
    assert found.points_us[-1] == samples
    assert len(found.points_us) <= 65


def test_the_state_is_reset_where_there_is_one(clock: _Clock) -> None:
    for stateful in (True, False):
        runner = _Runner(clock, 100.0)
        _measure(clock, 0.05, stateful, program=runner)
        assert runner.resets == {stateful}


def test_a_core_that_is_always_shared_is_noise(clock: _Clock) -> None:
    clock.stolen = 0.5
    found = _measure(clock, 0.5, program=_Runner(clock, 100.0), eager=_Runner(clock, 200.0))
    assert found.noise == pytest.approx(0.5)
    assert found.noisy
    assert found.ratios == {}


def test_a_machine_that_becomes_slower_is_noise(clock: _Clock) -> None:
    clock.speed = itertools.chain(itertools.repeat(1.0, 60), itertools.repeat(1.4))
    found = _measure(clock, 0.5, program=_Runner(clock, 100.0), eager=_Runner(clock, 200.0))
    assert found.noise == pytest.approx(0.4, rel=0.1)


def test_calls_that_become_slower_are_noise(clock: _Clock) -> None:
    class Slower(_Runner):
        def time(self, *args: Any, **given: Any) -> list[float]:
            if len(self.asked) > 8:
                self.duration_us = 150.0
            return super().time(*args, **given)

    found = _measure(clock, 0.5, program=Slower(clock, 100.0), eager=_Runner(clock, 200.0))
    assert found.noise == pytest.approx(0.5)


def test_the_kernel_runs_on_as_many_threads() -> None:
    run = timing.Kernel(0.001, 2).run()
    assert run.cpu_s > 0
    assert run.waited >= 0
