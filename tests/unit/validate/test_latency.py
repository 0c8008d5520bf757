"""Timing: in turns, within the budget, the state brought back before each sample."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import pytest
import torch

from aotpipe.core.stages import CanonicalEntry, Latency
from aotpipe.model.spec import EntryPoint
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.worker import Worker
from aotpipe.validate import latency
from aotpipe.validate.eager.eager import Eager


class _Slow(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return x + 1


class _Worker:
    """Stands in for a worker: what it was asked, and constant times."""

    def __init__(self, duration_us: float, log: list[str]) -> None:
        self.duration_us = duration_us
        self.log = log
        self.resets: list[bool] = []

    def time(self, inputs: Any, *, entry_point: str, samples: int, reset: bool = False) -> list[float]:
        self.log.append("program")
        self.resets.append(reset)
        return [self.duration_us] * samples


def _measure(
    program_us: float, eager_s: float, budget_s: float, *, stateful: bool = False
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
    worker = _Worker(program_us, [])
    measured = latency.measure(
        cast("Worker", worker), Eager([entry]), golden, stateful=stateful, budget_s=budget_s
    )
    return measured, worker


def test_both_are_sampled_in_turns_within_the_budget() -> None:
    started = time.monotonic()
    measured, worker = _measure(100.0, 0.001, 0.5)
    assert time.monotonic() - started < 1.5
    assert len(worker.log) == 6
    assert measured.samples >= 5
    assert measured.median_us == measured.p90_us == 100.0
    assert measured.eager_median_us == pytest.approx(1000, rel=0.5)
    assert measured.ratio == pytest.approx(0.1, rel=0.5)
    assert measured.threads == torch.get_num_threads()


def test_a_call_beyond_the_budget_is_sampled_once() -> None:
    measured, worker = _measure(5e6, 0.0, 1.0)
    assert measured.samples == 1
    assert len(worker.log) == 1


def test_the_state_is_reset_where_there_is_one() -> None:
    _, worker = _measure(100.0, 0.0, 0.05, stateful=True)
    assert all(worker.resets)
    _, worker = _measure(100.0, 0.0, 0.05)
    assert not any(worker.resets)
