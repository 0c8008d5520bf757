"""Which calls a bundle keeps as its goldens: few of them, in bytes of its weights. Torch-free.

The example of each entry point is always kept. Then come the runs that reach what no run before them does,
and the others in their order, while all together take no more than a share of the weights, or a floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from aotpipe.core.coverage import Coverage
from aotpipe.runtime.goldens import Golden, sequences

_SHARE: Final = 1 / 8
_FLOOR_BYTES: Final = 1 << 18


def to_keep(goldens: Sequence[Golden], coverage: Coverage, weights_bytes: int) -> tuple[Golden, ...]:
    """The goldens to pack, whole runs from reset to reset, in their order; each answers.

    What eager raises on, and what follows it, is compared at the build only: a bundle says what its programs
    answer.
    """
    answering = (list(takewhile(lambda golden: not golden.raises, run)) for run in sequences(goldens))
    runs = [run for run in answering if run]
    firsts: dict[str, int] = {}
    for number, run in enumerate(runs):
        for golden in run:
            firsts.setdefault(golden.entry_point, number)
    telling = {(goal.entry_point, goal.case) for goal in coverage.goals if goal.reached}

    def order(number: int) -> tuple[bool, bool, int]:
        tells = any((golden.entry_point, golden.case) in telling for golden in runs[number])
        return number not in firsts.values(), not tells, number

    limit = max(_FLOOR_BYTES, weights_bytes * _SHARE)
    kept: set[int] = set()
    spent = 0
    for number in sorted(range(len(runs)), key=order):
        took = _size(runs[number])
        if number in firsts.values() or spent + took <= limit:
            kept.add(number)
            spent += took
    return tuple(golden for number, run in enumerate(runs) if number in kept for golden in run)


def _size(run: Iterable[Golden]) -> int:
    return sum(
        array.nbytes
        for golden in run
        for named in (golden.inputs, golden.outputs, golden.unsure)
        for array in named.values()
    )
