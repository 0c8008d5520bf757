"""Timing: in turns, within the budget, the state brought back before each sample."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

import aotpipe.validate as validation
from aotpipe.core.stages import CanonicalEntry, Latency
from aotpipe.model.spec import EntryPoint
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.worker import Worker
from aotpipe.validate.eager import eager
from aotpipe.validate.eager.eager import Eager


class _Clock:
    """Stands in for the module `time`: only what is measured takes time, whatever else this machine does."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class _Slow(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Not by an attribute: what a model reaches is put back after each call.
        validation.time.sleep(self.seconds)
        return x + 1


class _Worker:
    """Stands in for a worker: what it was asked, and constant times."""

    def __init__(self, clock: _Clock, duration_us: float) -> None:
        self.clock = clock
        self.duration_us = duration_us
        self.log: list[str] = []
        self.resets: list[bool] = []

    def time(self, inputs: Any, *, entry_point: str, samples: int, reset: bool = False) -> list[float]:
        self.clock.sleep(samples * self.duration_us / 1e6)
        self.log.append("program")
        self.resets.append(reset)
        return [self.duration_us] * samples


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    found = _Clock()
    monkeypatch.setattr(validation, "time", found)
    monkeypatch.setattr(eager, "time", found)
    return found


def _measure(
    clock: _Clock, program_us: float, eager_s: float, budget_s: float, *, stateful: bool = False
) -> tuple[Latency, _Worker]:
    golden = Golden(
        entry_point="forward",
        case="example",
        reset=True,
        inputs={"x": np.zeros(2, np.float32)},
        outputs={},
        allowed={},
    )
    entry = CanonicalEntry(
        name="forward",
        entry=EntryPoint(args=(torch.zeros(2),)),
        module=_Slow(eager_s).eval(),
        input_names=("x",),
        constants={},
        output_names=("output",),
    )
    worker = _Worker(clock, program_us)
    (measured,) = validation.measure_latency(
        cast("Worker", worker), Eager([entry]), [golden], stateful=stateful, budget_s=budget_s
    )
    return measured, worker


def test_both_are_sampled_in_turns_within_the_budget(clock: _Clock) -> None:
    measured, worker = _measure(clock, 100.0, 0.001, 0.5)
    assert 0.1 < clock.now_ns / 1e9 < 0.5
    assert len(worker.log) == 6
    assert measured.samples == 500
    assert measured.median_us == measured.p90_us == 100.0
    assert measured.eager_median_us == measured.eager_p90_us == 1000.0
    assert measured.ratio == 0.1
    assert measured.threads == torch.get_num_threads()


def test_a_call_beyond_the_budget_is_sampled_once(clock: _Clock) -> None:
    measured, worker = _measure(clock, 5e6, 0.0, 1.0)
    assert measured.samples == 1
    assert len(worker.log) == 1


def test_the_state_is_reset_where_there_is_one(clock: _Clock) -> None:
    _, worker = _measure(clock, 100.0, 1e-6, 0.05, stateful=True)
    assert all(worker.resets)
    _, worker = _measure(clock, 100.0, 1e-6, 0.05)
    assert not any(worker.resets)
