"""Judges a program's answers by the goldens: one case per output of each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.stages import Parity, ParityCase
from aotpipe.runtime.goldens import Golden
from aotpipe.validate.tolerance import MULTIPLE

RULE: Final = (
    "|program - float64| <= atol + rtol * |float64|, the tightest such law over all calls that covers "
    "{multiple:g} times eager's own error against float64 and {floor}; integers, bools, NaN and infinities "
    "are equal, except where eager disagrees with itself under noise of 16 units in the last place"
)
_FLOOR: Final = "32 units in the last place of float32 (float64: 64, float16 and bfloat16: 2)"


def judge(answers: Iterable[tuple[Golden, Mapping[str, Array]]], *, multiple: float | None = None) -> Parity:
    """Compare each call's answer with its golden."""
    cases: list[ParityCase] = []
    calls = 0
    for golden, answer in answers:
        calls += 1
        cases += [judge_output(golden, name, answer.get(name)) for name in golden.outputs]
        unknown = [name for name in answer if name not in golden.outputs]
        cases += [failure(golden, name, "eager does not give it") for name in unknown]
    rule = RULE.format(multiple=MULTIPLE if multiple is None else multiple, floor=_FLOOR)
    return Parity(cases=tuple(cases), calls=calls, rule=rule)


def judge_output(golden: Golden, name: str, got: Array | None) -> ParityCase:
    """Compare one output."""
    if got is None:
        return failure(golden, name, "the program does not give it")
    measure, unsure = golden.measure(name, got), golden.unsure.get(name)
    skipped = 0 if unsure is None else int(np.count_nonzero(unsure))
    return ParityCase(
        entry_point=golden.entry_point,
        case=golden.case,
        output=name,
        max_abs_error=measure.max_abs_error,
        eager_abs_error=golden.eager_error.get(name, 0.0),
        ratio=measure.ratio,
        worst_index=measure.worst_index,
        got=measure.got,
        want=measure.want,
        message=measure.message,
        note=f"{skipped} elements on which eager disagrees with itself were not compared" if skipped else "",
    )


def describe(case: ParityCase) -> str:
    """Describe a failure in one sentence."""
    place = f"`{case.output}` of {case.entry_point} ({case.case})"
    at = f"[{', '.join(map(str, case.worst_index))}]"
    if case.message:
        return f"{place} at {at}: {case.message}" if case.worst_index else f"{place}: {case.message}"
    return (
        f"{place} at {at}: is {case.got:.9g}, eager gives {case.want:.9g}; "
        f"that is {case.ratio:.3g} times the allowed error (worst error {case.max_abs_error:.3g}, "
        f"eager's own {case.eager_abs_error:.3g})"
    )


def failure(golden: Golden, name: str, message: str) -> ParityCase:
    """The case of an output that cannot be compared."""
    return ParityCase(
        entry_point=golden.entry_point,
        case=golden.case,
        output=name,
        max_abs_error=np.inf,
        eager_abs_error=0.0,
        ratio=np.inf,
        worst_index=(),
        got=np.nan,
        want=np.nan,
        message=message,
    )
