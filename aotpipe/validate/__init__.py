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

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

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
from aotpipe.runtime.tensor_file import Shard
from aotpipe.runtime.worker import Worker
from aotpipe.validate.informative import described, uninformative
from aotpipe.validate.parity import RULE, describe, failure, judge
from aotpipe.validate.timing import Timed, latency, measured

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager

PARITY_BUDGET_S: Final = 120.0
"""A program slower than this is judged on the calls that fit, and its notes say how many."""

Caller = Worker | ChainRunner
"""What calls a program's entry points."""

LATENCY_BUDGET_S: Final = 2.0
"""Of program and eager together, over all entry points."""

_PROGRAM: Final = "program"
_REFUSED: Final = "the program refuses the call, as eager does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loadable:
    """What a model's programs are loaded with, the same for all targets.

    Attributes:
        weights: Files of `runtime.tensor_file` with the weights and, under `state/NAME`, the initial state;
            every worker maps them.
        threads: How many a program runs on; one per core where None.
        parts: Of a model with islands: what its programs hold in place of its entry points.
        islands: The names of the islands that may run.
    """

    signatures: Mapping[str, Signature]
    weights: tuple[Shard, ...] = field(metadata=ELSEWHERE)
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
            timings = measure_latency(
                caller,
                {"eager": eager},
                examples(goldens),
                stateful=stateful,
                budget_s=LATENCY_BUDGET_S,
                threads=loadable.threads or os.cpu_count() or 1,
                process=process,
            )
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
    worker: Caller,
    baselines: Mapping[str, Timed],
    goldens: Sequence[Golden],
    *,
    stateful: bool,
    budget_s: float,
    threads: int,
    process: Worker | None = None,
) -> tuple[Latency, ...]:
    """Time calls, one of each entry point, of a program in turns with others.

    `process` is the worker of the program, which knows what loading it took.
    """
    runners: dict[str, Timed] = {_PROGRAM: worker, **baselines}
    found = []
    for golden in goldens:
        turns = measured(
            runners, golden, stateful=stateful, budget_s=budget_s / len(goldens), threads=threads
        )
        timed = latency(turns, _PROGRAM, entry_point=golden.entry_point, threads=threads)
        if process is not None:
            costs = process.costs()
            timed = replace(
                timed,
                program=replace(timed.program, first_us=costs.first_call_us.get(golden.entry_point)),
                load_us=costs.load_us,
                peak_rss_bytes=costs.peak_rss_bytes,
            )
        found.append(timed)
    return tuple(found)
