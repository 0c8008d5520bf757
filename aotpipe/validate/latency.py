"""Times a program beside eager: interleaved, warmed up, on the same inputs and the same number of threads.

The program is timed inside its worker, as a caller of the runner sees it (inputs checked, outputs copied);
eager is timed here, without the conversion of its arguments. Both are sampled in turns, so that a change of
the machine's speed meets both.
"""

from __future__ import annotations

import statistics
import time
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
    runners = (worker, eager)

    def timed(runner: Worker | ChainRunner | Eager, samples: int) -> list[float]:
        return runner.time(golden.inputs, entry_point=golden.entry_point, samples=samples, reset=stateful)

    ours, theirs = durations = [timed(runner, 1) for runner in runners]
    spent_s = (ours[0] + theirs[0]) / 1e6
    rounds = _ROUNDS if spent_s * (_ROUNDS + 1) < budget_s else int(budget_s / spent_s) - 1
    if rounds >= 1:
        # The first call is a cold one, so these counts are rather too low.
        counts = [
            max(1, min(_MOST_SAMPLES, int(budget_s / 2 * 1e6 / first)) // rounds) for first, *_ in durations
        ]
        ours, theirs = durations = [[], []]
        for _ in range(rounds):
            time.sleep(_SETTLE_S)
            for runner, count, found in zip(runners, counts, durations, strict=True):
                found += timed(runner, count)
    return Latency(
        entry_point=golden.entry_point,
        samples=len(ours),
        threads=torch.get_num_threads(),
        median_us=statistics.median(ours),
        p90_us=float(np.quantile(ours, 0.9)),
        eager_median_us=statistics.median(theirs),
        eager_p90_us=float(np.quantile(theirs, 0.9)),
    )
