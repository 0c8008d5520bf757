"""Random programs of nested control flow compute what eager computes, or are refused with a typed error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from aotpipe.backends.iree.lower import importer
from aotpipe.errors import AotpipeError
from tests.programs import fuzz
from tests.programs.through import compare, forget_traces, legal, load
from tests.sweep import sweep


def outcome(seed: int) -> str:
    """`equal`, or what refused the program; a wrong result or any other failure raises."""
    generator = fuzz.Generator(seed)
    module = fuzz.model(generator)
    options = {"dynamic_shapes": fuzz.dynamic_shapes()} if generator.is_dynamic else {}
    example = fuzz.call(generator, 4, 3)
    forget_traces()
    try:
        with torch.no_grad():
            module(*example)
    except Exception as error:  # torch's own control flow fails on it: no program to compare with
        return f"refused by eager: {type(error).__name__}"
    try:
        program = legal(module, example, **options)
        lowered = importer.lower(program)
    except AotpipeError as error:
        return f"refused: {type(error).__name__}"
    sizes = [(4, 3), (4, 0), (4, 1)] + ([(2, 2), (8, 4)] if generator.is_dynamic else [])
    with load(program, lowered) as runner:
        for batch, n in sizes:
            compare(runner, program, module, fuzz.call(generator, batch, n))
    return "equal"


# 4 is left out: torch cannot run it.
@pytest.mark.parametrize("seed", sweep([0, 1, 2, 3, 5, 6, 7, 8], quick=1))
def test_a_random_program_computes_what_eager_computes(seed: int) -> None:
    assert outcome(seed) == "equal"


# In each, two loops started from one buffer and wrote to it.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [113, 119, 129])
def test_loops_do_not_write_to_each_others_stacks(seed: int) -> None:
    assert outcome(seed) == "equal"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_of_200_random_programs_all_are_equal_or_refused(print_table: Callable[[str], None]) -> None:
    tally: Counter[str] = Counter()
    wrong = {}
    for seed in range(9, 209):
        try:
            tally[outcome(seed)] += 1
        except Exception as error:  # all are counted before the test fails
            wrong[seed] = f"{type(error).__name__}: {error}"
            tally["wrong"] += 1
    print_table("\n".join(f"{count:4d}  {what}" for what, count in tally.most_common()))
    assert not wrong
