"""Judges compiled programs: `reference.reference` once per model, `validate` once per program.

    reference(canonical, legal) -> Reference             eager's answers to planned calls, for all targets
    validate(compiled, loadable, goldens) -> Validated   a program's answers against them

A program runs in a process of its own. It is `executed` where it ran on this machine and every answer was
within its tolerance, `unproven` where these answers would be those of many another program (`informative`),
`compiled` where this machine cannot run it; otherwise an error says what is wrong.
This module itself is torch-free: only what is timed beside eager needs torch.

Raises:
    ParityError: An answer differs; the worst element, its index and both values are named.
    ProgramCrashed: The program died, hung or failed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.serialization import ELSEWHERE
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Compiled, Latency, Parity, ParityCase, Status, Validated
from aotpipe.core.targets import Target
from aotpipe.errors import AssertionViolated, InputError, OutsideBuckets, ParityError
from aotpipe.runtime.goldens import Golden, examples, sequences
from aotpipe.runtime.input_checks import Packer
from aotpipe.runtime.islands.chain import Parts
from aotpipe.runtime.islands.chain_runner import ChainRunner, load_parts
from aotpipe.runtime.loading import why_not_runnable
from aotpipe.runtime.worker import Worker
from aotpipe.validate.informative import described, uninformative
from aotpipe.validate.parity import RULE, describe, failure, judge

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager

PARITY_BUDGET_S: Final = 120.0
"""A program slower than this is judged on the calls that fit, and its notes say how many."""

Caller = Worker | ChainRunner
"""What calls a program's entry points."""

LATENCY_BUDGET_S: Final = 2.0
"""Of program and eager together, over all entry points."""

_REFUSED: Final = "the program refuses the call, as eager does"
_ROUNDS: Final = 5
_MOST_SAMPLES: Final = 500
# OpenMP's threads spin for a while after eager's last op; the program must not compete with them.
_SETTLE_S: Final = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Loadable:
    """What a model's programs are loaded with, the same for all targets.

    Attributes:
        weights: A file of `runtime.tensor_file` with the weights and, under `state/NAME`, the initial state;
            every worker maps it.
        threads: How many a program runs on; one per core where None.
        parts: Of a model with islands: what its programs hold in place of its entry points.
        islands: The names of the islands that may run.
    """

    signatures: Mapping[str, Signature]
    weights: Path = field(metadata=ELSEWHERE)
    initial_state: Mapping[str, Array] = field(metadata=ELSEWHERE)
    asserts: Mapping[str, tuple[str, ...]]
    threads: int | None = None
    parts: Parts | None = None
    islands: tuple[str, ...] = ()

    @property
    def is_stateful(self) -> bool:
        """Whether calls depend on the calls before."""
        return any(signature.state for signature in self.signatures.values())


def validate(
    compiled: Compiled,
    loadable: Loadable,
    goldens: Sequence[Golden],
    *,
    eager: Eager | None = None,
    worker: Worker | None = None,
) -> Validated:
    """Run a program on every golden and compare; then time it.

    Args:
        compiled: The program.
        loadable: What it is loaded with.
        goldens: The calls, with what they must answer.
        eager: In the model's own dtypes, to be timed beside; None to time nothing.
        worker: Without a program yet, to be ended here; one is started where None.
    """
    if reason := why_not_runnable(compiled.target, compiled.host_features):
        return Validated(compiled=compiled, status="compiled", reason=reason)
    with worker or Worker() as process:
        caller = loaded(process, compiled, loadable)
        parity, notes, vacuous = _run(caller, goldens, loadable.signatures)
        if not parity.passed:
            raise _parity_error(compiled.target, parity)
        timings: tuple[Latency, ...] = ()
        if eager is not None:
            stateful = loadable.is_stateful
            timings = measure_latency(caller, eager, goldens, stateful=stateful, budget_s=LATENCY_BUDGET_S)
    status: Status = "unproven" if vacuous else "executed"
    return Validated(
        compiled=compiled, status=status, reason=vacuous, parity=parity, latency=timings, notes=notes
    )


def loaded(process: Worker, compiled: Compiled, loadable: Loadable) -> Caller:
    """Load a program into a worker; what calls it: the worker, or a chain whose segments it runs."""
    return load_parts(
        partial(
            process.load,
            compiled.target,
            compiled.payload,
            weights=loadable.weights,
            threads=loadable.threads,
        ),
        loadable.parts,
        signatures=loadable.signatures,
        initial_state=loadable.initial_state,
        asserts=loadable.asserts,
        allowed=loadable.islands,
    )


def _run(
    worker: Caller, goldens: Sequence[Golden], signatures: Mapping[str, Signature]
) -> tuple[Parity, tuple[str, ...], str]:
    """Judge the calls one by one, so that an answer is gone before the next is made.

    Returns:
        The comparisons, notes, and why they prove nothing; empty where they prove something.
    """
    packers = {name: Packer(signature) for name, signature in signatures.items()}
    started = time.monotonic()
    cases: list[ParityCase] = []
    judged: list[Golden] = []
    outside = 0
    seen: set[str] = set()
    for sequence in sequences(goldens):
        if time.monotonic() - started > PARITY_BUDGET_S and {each.entry_point for each in sequence} <= seen:
            continue
        worker.reset()
        for place, golden in enumerate(sequence):
            try:
                cases += _judge_call(worker, golden, packers[golden.entry_point])
            except OutsideBuckets:
                # The program's state is not eager's from here on.
                outside += len(sequence) - place
                break
            seen.add(golden.entry_point)
            judged.append(golden)
    notes = []
    if outside:
        notes.append(
            f"{outside} of {len(goldens)} calls have sizes that no bucket takes, and were not compared"
        )
    if (calls := len(judged)) + outside < len(goldens):
        notes.append(
            f"{calls} of {len(goldens)} calls were compared: more would take over {PARITY_BUDGET_S:g} s"
        )
    for golden in goldens:
        if golden.entry_point not in seen:
            # What nothing was compared of is not at parity.
            cases.append(failure(golden, "*", "no recorded call has sizes that a bucket takes"))
            seen.add(golden.entry_point)
    reasons = uninformative(judged)
    marked = tuple(
        replace(case, uninformative=True, note=f"not counted: {reasons[where]}")
        if (where := (case.entry_point, case.output)) in reasons
        else case
        for case in cases
    )
    vacuous = described(reasons) if all(case.uninformative for case in marked) else ""
    return Parity(cases=marked, calls=calls, rule=RULE), tuple(notes), vacuous


def _judge_call(worker: Caller, golden: Golden, packer: Packer) -> list[ParityCase]:
    try:
        answer = worker.infer(golden.inputs, entry_point=golden.entry_point)
    except OutsideBuckets:
        raise
    except (AssertionViolated, InputError) as error:
        if golden.raises:
            return [_refusal(golden)]
        # Eager took this call, so a program that refuses it differs from eager.
        said = " ".join(filter(None, (error.message, error.reason)))
        return [failure(golden, "*", f"the program refuses the call: {said}")]
    if golden.raises:
        return [failure(golden, "*", f"the program answers, where eager raises {golden.raises}")]
    # By its flag, which is compared, an output that is not there is anything.
    return judge(golden, packer.unpack(answer, flags=True))


def _refusal(golden: Golden) -> ParityCase:
    """The case of a call that both refuse: it says nothing of any output."""
    return ParityCase(
        entry_point=golden.entry_point, case=golden.case, output="*", note=_REFUSED, uninformative=True
    )


def _parity_error(target: Target, parity: Parity) -> ParityError:
    worst = parity.worst
    assert worst is not None
    failed = sum(not case.passed for case in parity.cases)
    return ParityError(
        f"{target}: {describe(worst)}",
        reason=f"{failed} of {len(parity.cases)} outputs of {parity.calls} calls differ",
        hint=f"`aotpipe bisect MODEL -t {target}` finds the op; Spec.tolerance widens the rule",
        parity=parity,
    )


def measure_latency(
    worker: Caller, eager: Eager, goldens: Sequence[Golden], *, stateful: bool, budget_s: float
) -> tuple[Latency, ...]:
    """Time the first call of each entry point, its example, of a program and of eager, as `time_in_turns`."""
    import torch

    first = examples(goldens)
    found = []
    for golden in first:
        share_s = budget_s / len(first)
        ours, theirs = time_in_turns((worker, eager), golden, stateful=stateful, budget_s=share_s)
        times = {**median_and_p90(ours), **median_and_p90(theirs, "eager_")}
        threads = torch.get_num_threads()
        found.append(Latency(entry_point=golden.entry_point, samples=len(ours), threads=threads, **times))
    return tuple(found)


def time_in_turns(
    runners: Sequence[Caller | Eager], golden: Golden, *, stateful: bool, budget_s: float
) -> list[list[float]]:
    """Time one call of each runner, warmed up, on the same inputs.

    A program is timed inside its worker, as a caller of the runner sees it (inputs checked, outputs copied);
    eager is timed here, without the conversion of its arguments. The samples are taken in rounds, in each of
    which every runner gives some of its own after the one before it, so that a change of the machine's speed
    meets all of them.

    Args:
        runners: Workers that hold a program, loaded with as many threads as torch uses here, or eager in the
            model's own dtypes.
        golden: The call.
        stateful: Whether each sample needs the initial state first.
        budget_s: Seconds for the samples of all runners together, of which each has an equal share; where a
            call of each takes more than half of it, these calls are the only samples.

    Returns:
        For each runner the microseconds of each sample.
    """

    def timed(runner: Caller | Eager, samples: int) -> list[float]:
        return runner.time(golden.inputs, entry_point=golden.entry_point, samples=samples, reset=stateful)

    durations = [timed(runner, 1) for runner in runners]
    spent_s = sum(first for first, *_ in durations) / 1e6
    rounds = _ROUNDS if spent_s * (_ROUNDS + 1) < budget_s else int(budget_s / spent_s) - 1
    if rounds >= 1:
        # The first call is a cold one, so these counts are rather too low.
        share_us = budget_s / len(runners) * 1e6
        counts = [max(1, min(_MOST_SAMPLES, int(share_us / first)) // rounds) for first, *_ in durations]
        durations = [[] for _ in runners]
        for _ in range(rounds):
            time.sleep(_SETTLE_S)
            for runner, count, found in zip(runners, counts, durations, strict=True):
                found += timed(runner, count)
    return durations


def median_and_p90(durations: Sequence[float], prefix: str = "") -> dict[str, Any]:
    """The fields of a `Latency` that durations in microseconds give."""
    p90 = float(np.quantile(durations, 0.9))
    return {f"{prefix}median_us": statistics.median(durations), f"{prefix}p90_us": p90}
