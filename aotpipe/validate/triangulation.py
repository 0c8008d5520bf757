"""Who is the outlier where programs of several targets were compared, and one differs. Torch-free.

`outliers(opinions)` gives a sentence for each output of each call on which a program failed, from who agrees
with whom among float64, eager and the programs: one program alone, all of one compiler and dialect, all
programs together (what they share is at fault), or float64 itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aotpipe.core.stages import Parity, ParityCase

_MOST: Final = 8
_NEAR: Final = 0.5
"""How near two errors are of which one explains the other, of the larger."""
Where = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the program of a target said; `family` names its compiler and dialect."""

    target: str
    family: str
    parity: Parity


def outliers(opinions: Sequence[Opinion]) -> list[str]:
    """A sentence per output and call on which a program differs from eager; of many the first ones."""
    if len(opinions) == 1:
        return []  # there is nobody to agree with
    by_place: dict[Where, dict[str, ParityCase]] = {}
    # What a target said to a call as a whole: one that refuses it has no case of any output.
    passed: dict[tuple[str, str], dict[str, bool]] = {}
    for opinion in opinions:
        for case in opinion.parity.cases:
            by_place.setdefault((case.entry_point, case.case, case.output), {})[opinion.target] = case
            answered = passed.setdefault((case.entry_point, case.case), {})
            answered[opinion.target] = answered.get(opinion.target, True) and case.passed
    families = {opinion.target: opinion.family for opinion in opinions}
    said = [
        _sentence(where, cases, passed[where[:2]], families)
        for where, cases in by_place.items()
        if not all(each.passed for each in cases.values())
    ]
    more = [f"and {len(said) - _MOST} more"] if len(said) > _MOST else []
    return [*said[:_MOST], *more]


def _sentence(
    where: Where, cases: Mapping[str, ParityCase], passed: Mapping[str, bool], families: Mapping[str, str]
) -> str:
    entry_point, name, output = where
    place = f"`{output}` of {entry_point} ({name})"
    wrong = {target: case for target, case in cases.items() if not case.passed}
    right = [target for target in passed if (passed[target] if output == "*" else target in cases)]
    right = [target for target in right if target not in wrong]
    values = ", ".join(f"{target} {_said(case)}" for target, case in wrong.items())
    if right:
        of_one = {families[target] for target in wrong}
        alone = not of_one & {families[target] for target in right}
        [who, *others] = wrong
        outlier = (
            f"all of {of_one.pop()}" if len(of_one) == 1 and alone and others else _listed([who, *others])
        )
        return f"{place}: the outlier is {outlier} ({values}); float64, eager and {_listed(right)} agree"
    who = _listed(list(wrong))
    if len({families[target] for target in wrong}) == 1:
        ran = "ran" if len({families[target] for target in passed}) == 1 else "answers it"
        return f"{place}: {who} differ from float64 and eager ({values}), and no other compiler {ran}"
    if all(_is_near(case.max_abs_error, case.eager_abs_error) for case in wrong.values()):
        return f"{place}: the outlier is float64, by {_error(wrong)}: eager is as far from it as {who}"
    if _agree(list(wrong.values())):
        return (
            f"{place}: {who} agree ({values}), and float64 and eager do: "
            "the outlier is what the programs share, their export or a pass before lowering"
        )
    return f"{place}: no two of float64 and eager, {who} agree ({values})"


def _said(case: ParityCase) -> str:
    if case.message and not case.worst_index:
        return f"says: {case.message}"
    index = ", ".join(map(str, case.worst_index))
    return f"gives {case.got:.6g} for {case.want:.6g} at [{index}]"


def _error(cases: Mapping[str, ParityCase]) -> str:
    return f"{max(case.max_abs_error for case in cases.values()):.3g}"


def _agree(cases: Sequence[ParityCase]) -> bool:
    """Whether programs are wrong alike: at one place, by one number."""
    first = cases[0]
    return all(
        case.worst_index == first.worst_index
        and case.message.partition(" ")[0] == first.message.partition(" ")[0]
        and (case.got == first.got or _is_near(case.got - case.want, first.got - first.want, share=1e-3))
        for case in cases[1:]
    )


def _is_near(one: float, other: float, share: float = _NEAR) -> bool:
    return abs(one - other) <= share * max(abs(one), abs(other)) and bool(one) and bool(other)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
