"""Runs eager on the planned calls and records what a program must answer: the goldens.

The answer is eager's in float64, in the dtypes of the model's own outputs; of a large model some calls'
answers are eager's in its own dtypes, which may differ by as much. Integers and bools are eager's as the
model is written. How far answers may differ is measured (`parity`). Calls that the model itself refuses have
to be refused by a program too; what follows them in a sequence is left out, but for calls on the example that
show what they left of the state.

Three cases need a second opinion, which is eager under noise in the last places of weights and inputs:
    jumps           the model compares or rounds floats: elements that flip under noise are not compared
    no float64      the model is float64 already, or its code refuses it: noise takes the place of rounding
    few numbers     eager's error in a sum that cancels may be none by luck: it is at least what noise makes
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final

import numpy as np
import torch

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.values import trace
from aotpipe.core.coverage import UNKNOWN, Coverage
from aotpipe.core.dtypes import Array, is_inexact
from aotpipe.core.precision import Precision
from aotpipe.core.serialization import attributes
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Canonical, CanonicalEntry, Exported, Finding, Legal
from aotpipe.model.torch_arrays import to_numpy
from aotpipe.runtime.goldens import Golden, sequences
from aotpipe.validate.coverage import measure
from aotpipe.validate.coverage.search import Seen
from aotpipe.validate.discontinuity import has_discontinuities
from aotpipe.validate.eager.eager import Eager, EagerFailed
from aotpipe.validate.informative import uninformative
from aotpipe.validate.inputs import Call, Plan, Work, bound, plan, runs_unlike, special_calls
from aotpipe.validate.parity import (
    MULTIPLE,
    NOISE_ULPS,
    Envelope,
    ReferenceOutput,
    floor_of,
    is_few,
    reference_output,
)
from aotpipe.validate.repeatability import require_repeatable
from aotpipe.validate.work import work

# Each finds a near-tie with even odds: of four, one in sixteen is missed. Where an integer flips, eager is
# asked under more of them: an image has many elements, each of which may lie near a tie.
_NOISES: Final = 4
_MORE_NOISES: Final = 12
# A float64 copy of parameters beyond this would be most of what a build takes of memory.
_LARGE_BYTES: Final = 2**27
# An entry point's calls may take so many multiply-adds in float64, which takes three times as long as float32
# where weights are widened as they are used: some seconds on one core.
_WIDE_WORK: Final = 2.5e10
# Where planned calls say nothing, further ones are looked for so long, and so many runs of them are kept.
_SEARCH_S: Final = 4.0
_MOST_KEPT: Final = 4
# Eager's own error above this share of an output's scale leaves little to compare with.
_ILL_CONDITIONED: Final = 0.01

Answer = Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The goldens of a model, for all targets, and what was found on the way."""

    goldens: tuple[Golden, ...]
    findings: tuple[Finding, ...] = ()
    coverage: Coverage = UNKNOWN


@dataclass(slots=True)
class _Record:
    """What eager said to one call: as the model is, in float64, and under each noise.

    `raises` is what it raised for an assert of the model; the answers are empty then.
    """

    call: Call
    model: Answer
    wide: Answer | None = None
    noisy: list[Answer] = field(default_factory=list)
    raises: str = ""


def reference(
    canonical: Canonical,
    legal: Legal,
    buckets: Mapping[str, Sequence[int]] | None = None,
    *,
    calls: Sequence[Call] | None = None,
    policy: Precision | None = None,
    exported: Exported | None = None,
    more: Sequence[Call] = (),
    special: bool = False,
) -> Reference:
    """Run eager on every planned call; of each Dim with buckets at all of these sizes too.

    Args:
        canonical: The model.
        legal: Its programs.
        buckets: Sizes that are tried too.
        calls: They are run in place of planned ones.
        policy: What the programs compute in fewer bits: the errors that it causes are allowed.
        exported: The programs whose branches and loops further calls are looked for to reach; None for none.
        more: The user's own calls.
        special: Whether there are calls on NaN, infinities, denormals and the ends of integers.

    Raises:
        EagerFailed: The model raises even on its own example inputs.
        NotRepeatable: The model gives another answer to the same call.
    """
    signatures = legal.signatures
    costs = {entry.name: work(entry) for entry in legal.entries}
    examples = {} if calls is not None else {each.name: example_inputs(each) for each in canonical.entries}
    seed = canonical.spec.seed
    if calls is not None:
        planned = Plan(calls=tuple(calls))
    else:
        planned = plan(signatures, examples, seed=seed, work=costs, buckets=buckets)
        extreme = _special_calls(signatures, examples, seed) if special else ()
        planned = replace(planned, calls=(*planned.calls, *more, *extreme))
    notes = list(planned.notes)
    eager = Eager(canonical.entries, signatures, policy=policy)
    raised: dict[int, str] = {}
    answers = _run(eager, planned.calls, raised)
    answered = list(zip(planned.calls, answers, strict=True))
    if not any(answer is not None for answer in answers):
        raise EagerFailed(next(iter(raised.values()), "no call was planned"))
    refused = _refused(eager, planned.calls, raised)
    records = [
        _Record(call, answer or {}, raises=refused.get(place, ""))
        for place, (call, answer) in enumerate(answered)
        if answer is not None or place in refused
    ]
    for place, said in raised.items():
        call = planned.calls[place]
        why = f"eager raises {said}, and a program has to refuse it"
        if place not in refused:
            why = f"left out, since eager raises {said}, and not while torch traces the model"
        notes.append(f"{call.entry_point}, {call.case}: {why}")
    fixed = require_repeatable(
        eager, ((record.call, record.model) for record in records if not record.raises)
    )
    if calls is None:
        records += _telling(eager, signatures, examples, records, seed, notes)
    covered = UNKNOWN
    if exported is not None and calls is None:
        covering = _Covering(eager, records, _followers(exported, signatures, examples))
        runs = covering.taken(answered)

        def products(call: Call) -> float:
            sizes = bound(signatures[call.entry_point], call.inputs)
            return 0.0 if sizes is None else costs[call.entry_point](sizes)

        found = measure.search(exported, signatures, examples, runs, seed, covering.accept, products)
        compared = [record.call for record in records if not record.raises]
        covered = measure.coverage(found, compared, signatures, examples, seed)
    _ask_again(canonical, legal, records, costs, policy, notes)
    if policy is not None:
        _widen_outputs(records, signatures)
    goldens = _goldens(records, signatures, canonical.spec.tolerance or MULTIPLE, notes, policy)
    findings = [Finding(severity="note", code="parity-inputs", message=note) for note in notes]
    findings += fixed
    findings += () if calls is not None else _uninformative_outputs(goldens)
    findings += _overflows(records, policy) if policy is not None else ()
    return Reference(goldens=goldens, findings=tuple(findings), coverage=covered)


def _ask_again(
    canonical: Canonical,
    legal: Legal,
    records: Sequence[_Record],
    costs: Mapping[str, Work],
    policy: Precision | None,
    notes: list[str],
) -> None:
    """Ask eager for the recorded calls in float64 and, where that may not tell, under noise."""
    signatures = legal.signatures
    asked = _affordable(records, signatures, costs, limit=_WIDE_WORK)
    if len(asked) < len(records):
        notes.append(
            f"float64 is asked for {len(asked)} of {len(records)} calls, since each takes long; the "
            "others are compared with eager in the model's own dtypes, by the same tolerance"
        )
    is_wide = _widen(canonical.entries, signatures, asked, notes)
    doubtful: Sequence[_Record] = ()
    if not is_wide or has_discontinuities(legal) or _is_same(asked):
        doubtful = records
    elif any(is_few(answer) for record in asked for answer in (record.wide or {}).values()):
        doubtful = _affordable(asked, signatures, costs, limit=_WIDE_WORK / _NOISES)
    for number in range(_NOISES + _MORE_NOISES if doubtful else 0):
        if number == _NOISES:
            # Whole runs: what a call answers depends on those before it.
            runs = sequences(doubtful, lambda record: record.call.reset)
            doubtful = [record for run in runs if any(map(_flips, run)) for record in run]
        if doubtful:
            _ask_noisy(Eager(canonical.entries, signatures, noise=number + 1, policy=policy), doubtful)


def _flips(record: _Record) -> bool:
    """Whether noise changed an integer: of those close to where they change, each noise misses half."""
    return any(
        not is_inexact(answer.dtype) and name in noisy and not np.array_equal(answer, noisy[name])
        for name, answer in record.model.items()
        for noisy in record.noisy
    )


def _special_calls(
    signatures: Mapping[str, Signature], examples: Mapping[str, Answer], seed: int
) -> Iterator[Call]:
    for name, signature in signatures.items():
        yield from special_calls(name, signature, examples[name], seed)


def _telling(
    eager: Eager,
    signatures: Mapping[str, Signature],
    examples: Mapping[str, Answer],
    records: Sequence[_Record],
    seed: int,
    notes: list[str],
) -> list[_Record]:
    """Further calls that say something of the outputs of entry points of which the others say nothing."""
    started = time.monotonic()
    found: list[_Record] = []
    for name, signature in signatures.items():
        own = [record for record in records if record.call.entry_point == name]
        if not own or not _says_nothing(own, signature):
            continue
        kept = 0
        for calls in runs_unlike(name, signature, examples[name], seed):
            if kept == _MOST_KEPT or time.monotonic() - started > _SEARCH_S:
                break
            answered = zip(calls, _run(eager, calls), strict=True)
            run = [_Record(call, answer) for call, answer in answered if answer is not None]
            if len(run) == len(calls) and not _says_nothing([*own, *run], signature):
                found += run
                kept += 1
        if kept:
            notes.append(f"{name}: no planned call says anything of an output, {kept} on other values do")
    return found


def _followers(
    exported: Exported, signatures: Mapping[str, Signature], examples: Mapping[str, Answer]
) -> dict[str, Answer]:
    """The entry points whose answers show what a call that raised left of the state, with their examples."""
    if any(finding.code == "state-before-raise" for finding in exported.findings):
        return {}  # the user was told that the program leaves another state
    return {name: examples[name] for name, each in signatures.items() if each.state}


@dataclass(slots=True)
class _Covering:
    """Asks eager for runs that a search has found, and records its answers.

    `followers` are the entry points that are called on their examples after a call that raised.
    """

    eager: Eager
    records: list[_Record]
    followers: Mapping[str, Answer]

    def taken(self, answered: Iterable[tuple[Call, Answer | None]]) -> Iterator[tuple[Call, ...]]:
        """The planned runs, each up to the first call that eager raises on."""
        for run in sequences(answered, lambda each: each[0].reset):
            calls = tuple(call for call, _ in takewhile(lambda each: each[1] is not None, run))
            if calls:
                yield calls

    def accept(self, seen: Seen) -> bool:
        """Whether eager answers where the program does, and raises where an assert of it does not hold."""
        raised: dict[int, str] = {}
        answers = _run(self.eager, seen.run, raised)
        found = [
            _Record(call, answer)
            for call, answer in zip(seen.run, answers, strict=True)
            if answer is not None
        ]
        if len(found) != seen.answered or seen.refused == (len(found) == len(seen.run)):
            return False
        self.records += found
        if seen.refused:
            refused = seen.run[seen.answered]
            self.records += [_Record(refused, {}, raises=raised[seen.answered]), *self._after(refused)]
        return True

    def _after(self, refused: Call) -> Iterator[_Record]:
        """Calls that follow one which raised: their answers show what it left of the state."""
        case = f"{refused.case.partition('/')[0]}/after it raised"
        for name, inputs in self.followers.items():
            call = Call(entry_point=name, case=case, reset=False, inputs=inputs)
            [answer] = _run(self.eager, [call])
            if answer is None:
                return
            yield _Record(call, answer)


def _says_nothing(records: Sequence[_Record], signature: Signature) -> bool:
    """Whether eager's answers show none of the outputs at work."""
    names = {spec.name for spec in signature.tensor_outputs}
    goldens = [
        Golden(
            **attributes(record.call, "entry_point case reset inputs"),
            outputs=(outputs := {name: array for name, array in record.model.items() if name in names}),
            allowed={
                name: (0.0, floor_of(array.dtype))
                for name, array in outputs.items()
                if is_inexact(array.dtype)
            },
        )
        for record in records
    ]
    return len(uninformative(goldens)) == len({name for golden in goldens for name in golden.outputs})


def _uninformative_outputs(goldens: Sequence[Golden]) -> Iterator[Finding]:
    """The outputs of which no call says anything: they are compared, and prove nothing."""
    for (entry_point, output), why in uninformative(goldens).items():
        yield Finding(
            severity="note",
            code="uninformative-output",
            message=f"`{output}` {why}, so that comparing it proves nothing",
            hint="give example inputs or value ranges that change it",
            entry_point=entry_point,
        )


def _ask_noisy(eager: Eager, records: Sequence[_Record]) -> None:
    for record, answer in zip(records, _answers(eager, records), strict=True):
        if answer is not None:
            record.noisy.append(answer)


def example_inputs(entry: CanonicalEntry) -> dict[str, Array]:
    """The example's tensor inputs by name."""
    return {
        name: array
        for name, leaf in pytrees.example_leaves(entry).items()
        if name not in entry.constants and (array := to_numpy(leaf)) is not None
    }


def example_sizes(canonical: Canonical, signatures: Mapping[str, Signature]) -> dict[str, Mapping[str, int]]:
    """By entry point, the size of each symbol in its example; none where the signature does not admit it."""
    found = {entry.name: bound(signatures[entry.name], example_inputs(entry)) for entry in canonical.entries}
    return {name: sizes for name, sizes in found.items() if sizes is not None}


def _answers(eager: Eager, records: Sequence[_Record]) -> list[Answer | None]:
    """The answer to each recorded call, as `_run` gives it."""
    raising = {number for number, record in enumerate(records) if record.raises}
    return _run(eager, [record.call for record in records], raising=raising)


def _refused(eager: Eager, calls: Sequence[Call], raised: Mapping[int, str]) -> dict[int, str]:
    """Of what eager raises, by place, that which it raises while torch traces the model too.

    What stands behind `if not torch.compiler.is_compiling()` is in no program.
    """
    found: dict[int, str] = {}
    for run in sequences(enumerate(calls), lambda each: each[1].reset):
        places = [place for place, _ in run]
        wanted = [at for at, place in enumerate(places) if place in raised]
        if not wanted:
            continue
        again: dict[int, str] = {}
        with trace.assigned(torch.compiler, _is_compiling_flag=True):
            _run(eager, [call for _, call in run], again)
        found |= {places[at]: again[at] for at in wanted if again.get(at) == raised[places[at]]}
    return found


def _run(
    eager: Eager,
    calls: Sequence[Call],
    raised: dict[int, str] | None = None,
    *,
    raising: Collection[int] = (),
) -> list[Answer | None]:
    """The answer to each call, None from one that the model refuses to the next reset.

    `raised` is told what the model raises, by the place of the call. The calls at the places `raising` have
    to be refused: they give an empty answer, and do not end the run.
    """
    answers: list[Answer | None] = []
    for place, call in enumerate(calls):
        if call.reset:
            eager.reset()
        elif answers and answers[-1] is None:
            answers.append(None)
            continue
        try:
            answer = eager.infer(call.inputs, entry_point=call.entry_point)
            answers.append(None if place in raising else answer)
        except EagerFailed as error:
            answers.append({} if place in raising else None)
            if raised is not None:
                raised[place] = str(error).splitlines()[0][:160]
    return answers


def _affordable(
    records: Sequence[_Record],
    signatures: Mapping[str, Signature],
    costs: Mapping[str, Work],
    *,
    limit: float,
) -> list[_Record]:
    """The records that take no entry point over `limit` multiply-adds, in whole runs from reset to reset.

    An entry point's first run is one of them, whatever it takes.
    """
    spent: dict[str, float] = {}
    asked: list[_Record] = []
    for run in sequences(records, lambda record: record.call.reset):
        took: dict[str, float] = {}
        for record in run:
            signature = signatures[name := record.call.entry_point]
            sizes = bound(signature, record.call.inputs)
            took[name] = took.get(name, 0.0) + (0.0 if sizes is None else costs[name](sizes))
        if all(name not in spent or spent[name] + more <= limit for name, more in took.items()):
            spent |= {name: spent.get(name, 0.0) + more for name, more in took.items()}
            asked += run
    return asked


def _widen(
    entries: Sequence[CanonicalEntry],
    signatures: Mapping[str, Signature],
    records: Sequence[_Record],
    notes: list[str],
) -> bool:
    parameters = {id(each): each.nbytes for entry in entries for each in entry.module.parameters()}
    is_large = sum(parameters.values()) > _LARGE_BYTES
    wide = Eager(entries, signatures, precision="float64", frugal=True) if is_large else None
    answers = _answers(wide, records) if wide else []
    if wide is None or None in answers:
        try:
            wide = Eager(entries, signatures, precision="float64")
        except (TypeError, RuntimeError) as error:
            notes.append(f"no float64 reference, since a weight has no float64 form: {error}")
            return False
        answers = _answers(wide, records)
    if None in answers:
        # Code that asks for a dtype may take another path, or raise, where all are wide.
        unwidened = Eager(entries, signatures, precision="float64", unwidened=True)
        others = _answers(unwidened, records)
        if others.count(None) < answers.count(None):
            wide, answers = unwidened, others
    for record, answer in zip(records, answers, strict=True):
        record.wide = answer
    if lacking := answers.count(None):
        refused: dict[int, str] = {}
        _run(wide, [records[0].call], refused)
        notes.append(
            f"no float64 reference for {lacking} of {len(answers)} calls; eager under noise is the "
            f"measure there (the model raises {refused.get(0, 'in float64')})"
        )
    return not lacking


def _is_same(records: Sequence[_Record]) -> bool:
    """Whether float64 changed nothing: the model is float64, or computes with whole numbers only."""
    return all(
        record.wide is not None and np.array_equal(array, record.wide[name], equal_nan=True)
        for record in records
        for name, array in record.model.items()
        if is_inexact(array.dtype)
    )


def _widen_outputs(records: Sequence[_Record], signatures: Mapping[str, Signature]) -> None:
    """Give answers that were computed in fewer bits the dtypes of the outputs, as a program does."""
    for record in records:
        dtypes = {spec.name: spec.dtype for spec in signatures[record.call.entry_point].tensor_outputs}
        typed: list[Answer] = [
            {
                name: array.astype(np.float32) if dtypes.get(name) == "float32" and array.ndim else array
                for name, array in answer.items()
            }
            for answer in (record.model, *record.noisy)
        ]
        record.model, *record.noisy = typed


def _overflows(records: Sequence[_Record], policy: Precision) -> Iterator[Finding]:
    """The outputs that are no numbers in fewer bits, where they are in float64: these are not judged."""
    said: set[tuple[str, str]] = set()
    for record in records:
        for name, wide in (record.wide or {}).items():
            where, array = (record.call.entry_point, name), record.model[name]
            if where in said or not is_inexact(array.dtype) or array.shape != wide.shape:
                continue
            lost = int((np.isfinite(wide.astype(np.float64)) & ~np.isfinite(array.astype(np.float64))).sum())
            if lost:
                said.add(where)
                yield Finding(
                    severity="warning",
                    code="precision-overflow",
                    message=f"{lost} elements of {name!r} are beyond {policy.dtype} in {record.call.case}",
                    hint="keep what grows in float32 (--keep-float32 OP), or take --dtype bf16",
                    entry_point=record.call.entry_point,
                )


def _goldens(
    records: Sequence[_Record],
    signatures: Mapping[str, Signature],
    multiple: float,
    notes: list[str],
    policy: Precision | None = None,
) -> tuple[Golden, ...]:
    lowest, units = (None, NOISE_ULPS) if policy is None else (policy.dtype, 1.0)
    judged: list[dict[str, ReferenceOutput]] = []
    envelopes: dict[tuple[str, str], Envelope] = {}
    dtypes: dict[tuple[str, str], np.dtype[Any]] = {}
    said: set[tuple[str, str]] = set()
    for record in records:
        call = record.call
        outputs = {
            spec.name: reference_output(
                record.model[spec.name],
                None if record.wide is None else record.wide[spec.name],
                [answer[spec.name] for answer in record.noisy],
                spec.dtype,
                units,
            )
            for spec in signatures[call.entry_point].tensor_outputs
            if spec.name in record.model
        }
        judged.append(outputs)
        for name, output in outputs.items():
            where = (call.entry_point, name)
            dtype, error = output.want.dtype, output.eager_error
            envelopes.setdefault(where, Envelope()).add(output.finite, output.errors, output.scale)
            dtypes[where] = dtype
            if where in said or not is_inexact(dtype):
                continue
            if error > max(_ILL_CONDITIONED, 2 * floor_of(dtype, lowest)) * output.scale > 0:
                said.add(where)
                notes.append(
                    f"{call.entry_point}, output {name!r} is ill-conditioned: eager itself is off by "
                    f"{error:.3g} from float64 at a scale of {output.scale:.3g} ({call.case})"
                )
    laws = {
        where: envelopes[where].fit(dtype, multiple, lowest)
        for where, dtype in dtypes.items()
        if is_inexact(dtype)
    }
    return tuple(_golden(record, outputs, laws) for record, outputs in zip(records, judged, strict=True))


def golden_of(call: Call, model: Answer, wide: Answer | None, signature: Signature) -> Golden:
    """A call with what it must answer, from eager's answers in the model's dtypes and in float64."""
    [golden] = _goldens([_Record(call, model, wide)], {call.entry_point: signature}, MULTIPLE, [])
    return golden


def _golden(
    record: _Record,
    outputs: Mapping[str, ReferenceOutput],
    laws: Mapping[tuple[str, str], tuple[float, float]],
) -> Golden:
    call = record.call
    allowed: dict[str, tuple[float, float]] = {}
    for name, output in outputs.items():
        atol, rtol = laws.get((call.entry_point, name), (0.0, 0.0))
        allowed[name] = (atol * (output.scale or 1.0), rtol)
    return Golden(
        **attributes(call, "entry_point case reset inputs"),
        outputs={name: output.want for name, output in outputs.items()},
        allowed=allowed,
        unsure={name: output.unsure for name, output in outputs.items() if output.unsure is not None},
        eager_error={name: output.eager_error for name, output in outputs.items()},
        raises=record.raises,
    )
