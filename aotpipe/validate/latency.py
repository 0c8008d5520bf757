"""Times a program beside eager: interleaved, warmed up, on the same inputs and the same number of threads.

The program is timed inside its worker, as a caller of the runner sees it (inputs checked, outputs copied);
eager is timed here, without the conversion of its arguments. Both are sampled in turns, so that a change of
the machine's speed meets both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from aotpipe.core.stages import Latency
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.islands.chain_runner import ChainRunner
from aotpipe.runtime.worker import Worker
from aotpipe.validate.eager.eager import Eager

_ROUNDS: Final = 5
_MOST_SAMPLES: Final = 500
# OpenMP's threads spin for a while after eager's last op; the program must not compete with them.
_SETTLE_S: Final = 0.003


def measure(
    worker: Worker | ChainRunner, eager: Eager, golden: Golden, *, stateful: bool, budget_s: float
) -> Latency:
    """Time one call of a loaded program and of eager.

    Args:
        worker: Holds the program, loaded with as many threads as torch uses here.
        eager: In the model's own dtypes.
        golden: The call.
        stateful: Whether each sample needs the initial state first.
        budget_s: Seconds for both together; a call that takes longer is sampled once.
    """

    def program(samples: int) -> list[float]:
        return worker.time(golden.inputs, entry_point=golden.entry_point, samples=samples, reset=stateful)

    def reference(samples: int) -> list[float]:
        return _time_eager(eager, golden, samples, stateful=stateful)

    first, eager_first = program(1), reference(1)
    spent_s = (first[0] + eager_first[0]) / 1e6
    rounds = _ROUNDS if spent_s * (_ROUNDS + 1) < budget_s else int(budget_s / spent_s) - 1
    if rounds < 1:
        return _latency(golden, first, eager_first)
    each = [_per_round(budget_s / 2, sample, rounds) for sample in (first[0], eager_first[0])]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        time.sleep(_SETTLE_S)
        ours += program(each[0])
        theirs += reference(each[1])
    return _latency(golden, ours, theirs)


def _per_round(budget_s: float, first_us: float, rounds: int) -> int:
    """Samples in each round: the first call is a cold one, so that this rather gives too few."""
    return max(1, min(_MOST_SAMPLES, int(budget_s * 1e6 / first_us)) // rounds)


def _time_eager(eager: Eager, golden: Golden, samples: int, *, stateful: bool) -> list[float]:
    durations = []
    with eager.ready():
        for _ in range(samples):
            if stateful:
                eager.reset()
            # Anew for each: a model may change its inputs in place.
            call = eager.prepare(golden.inputs, entry_point=golden.entry_point)
            start = time.perf_counter_ns()
            call()
            durations.append((time.perf_counter_ns() - start) / 1000)
    return durations


def _latency(golden: Golden, ours: Sequence[float], theirs: Sequence[float]) -> Latency:
    return Latency(
        entry_point=golden.entry_point,
        samples=len(ours),
        threads=torch.get_num_threads(),
        median_us=statistics.median(ours),
        p90_us=float(np.quantile(ours, 0.9)),
        eager_median_us=statistics.median(theirs),
        eager_p90_us=float(np.quantile(theirs, 0.9)),
    )
