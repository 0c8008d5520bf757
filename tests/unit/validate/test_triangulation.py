"""Of several programs, the one that differs is named; where all differ alike, what they share is."""

from __future__ import annotations

from typing import Any

from aotpipe.core.stages import Parity, ParityCase
from aotpipe.runtime.goldens import Golden
from aotpipe.validate.parity import failure
from aotpipe.validate.triangulation import Opinion, outliers

IREE, SHLO, XLA = "iree's torch dialect", "iree's stablehlo dialect", "xla's stablehlo dialect"
RIGHT: dict[str, Any] = {"ratio": 0.1, "max_abs_error": 1e-7, "eager_abs_error": 1e-7}
WRONG: dict[str, Any] = {
    "ratio": 50.0,
    "max_abs_error": 2.0,
    "eager_abs_error": 1e-7,
    "worst_index": (3,),
    "got": 3.0,
    "want": 1.0,
}


def said(**cases: tuple[str, dict[str, Any]]) -> list[str]:
    """What is said of programs, each with its family and its comparison."""
    return outliers(
        [
            Opinion(
                target,
                family,
                Parity(
                    cases=(ParityCase(entry_point="forward", case="seed 0", output="y", **case),),
                    calls=1,
                    rule="",
                ),
            )
            for target, (family, case) in cases.items()
        ]
    )


def test_one_program_alone():
    [sentence] = said(iree=(IREE, WRONG), xla=(XLA, RIGHT))
    assert sentence.startswith("`y` of forward (seed 0): the outlier is iree (iree gives 3 for 1 at [3]); ")
    assert sentence.endswith("float64, eager and xla agree")


def test_all_programs_of_a_dialect():
    [sentence] = said(a=(IREE, WRONG), b=(IREE, WRONG), c=(SHLO, RIGHT), d=(XLA, RIGHT))
    assert f"the outlier is all of {IREE} (" in sentence
    assert "eager and c and d agree" in sentence


def test_what_all_programs_share():
    [sentence] = said(iree=(IREE, WRONG), xla=(XLA, WRONG))
    assert "the outlier is what the programs share, their export" in sentence
    [refused] = said(iree=(IREE, {**WRONG, "message": "the program answers"}), xla=(XLA, RIGHT))
    assert "float64, eager and xla agree" in refused


def test_float64_alone():
    far = {**WRONG, "eager_abs_error": 2.1}
    [sentence] = said(iree=(IREE, far), xla=(XLA, far))
    assert "the outlier is float64, by 2: eager is as far from it as iree and xla" in sentence


def test_no_two_agree():
    [sentence] = said(iree=(IREE, WRONG), xla=(XLA, {**WRONG, "got": 9.0, "worst_index": (1,)}))
    assert "no two of float64 and eager, iree and xla agree" in sentence


def test_one_program_has_nobody_to_agree_with_and_one_compiler_is_said():
    assert said(iree=(IREE, WRONG)) == []
    [sentence] = said(a=(IREE, WRONG), b=(IREE, WRONG))
    assert sentence.endswith("and no other compiler ran")


def test_those_that_agree_are_not_listed():
    assert said(iree=(IREE, RIGHT), xla=(XLA, RIGHT)) == []


def test_a_program_that_answers_is_right_where_another_refuses_the_call():
    golden = Golden(entry_point="forward", case="seed 0", reset=True, inputs={}, outputs={}, allowed={})
    refusal = failure(golden, "*", "the program refuses the call: too small")
    answer = ParityCase(entry_point="forward", case="seed 0", output="y", **RIGHT)
    wrong = ParityCase(entry_point="forward", case="seed 0", output="y", **WRONG)

    def said_of(other: ParityCase) -> list[str]:
        return outliers(
            [
                Opinion("iree", IREE, Parity(cases=(refusal,), calls=1, rule="")),
                Opinion("xla", XLA, Parity(cases=(other,), calls=1, rule="")),
            ]
        )

    [sentence] = said_of(answer)
    assert "the outlier is iree (iree says: the program refuses the call" in sentence
    assert sentence.endswith("float64, eager and xla agree")
    assert [each.rpartition(", and ")[2] for each in said_of(wrong)] == ["no other compiler answers it"] * 2
