"""What there is to reach, with the lines of the user's statements."""

from __future__ import annotations

import inspect
import linecache

import torch

from aotpipe.validate.coverage import goals
from tests.unit.validate.coverage.models import Fixed, Halving, Nested, exported


def listed(model: torch.nn.Module) -> list[tuple[str, str, str]]:
    """The text of the line, the kind, and what of each goal, sorted; `and` and `or` apart."""
    found = []
    for target in goals.targets(exported(model)).values():
        if target.what in goals.OPERANDS:
            continue
        assert target.where is not None
        text = linecache.getline(target.where.path, target.where.line).strip()
        found.append((text.split(" ")[0], target.kind, target.what))
    return sorted(found)


def test_both_sides_of_each_branch_with_its_own_line():
    assert listed(Nested()) == [
        ("assert", "assert", "fails"),
        ("elif", "branch", "is false"),
        ("elif", "branch", "is true"),
        ("if", "branch", "is false"),
        ("if", "branch", "is true"),
    ]


def test_each_combination_of_the_operands_of_and_but_they_need_not_be():
    found = [each for each in goals.targets(exported(Nested())).values() if each.what in goals.OPERANDS]
    assert [each.what for each in found] == list(goals.OPERANDS)
    assert all(each.optional for each in found)


def test_the_trips_of_a_loop_and_its_bound():
    assert listed(Halving()) == [
        ("while", "loop", what) for what in sorted((goals.NONE, goals.ONE, goals.MANY, goals.BOUND))
    ]
    assert {each.bound for each in goals.targets(exported(Halving())).values()} == {0, 20}


def test_what_no_input_changes_is_no_goal():
    assert listed(Fixed()) == []


def test_a_first_test_that_no_input_changes_leaves_no_run_of_0_trips():
    class AtLeastOnce(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            step = x.new_full((), 1.0)
            while step > 0.1:
                x = x / 2
                step = x.abs().max()
            return x

    assert {what for _, _, what in listed(AtLeastOnce())} == {goals.ONE, goals.MANY}
    assert inspect.getsourcefile(AtLeastOnce) == __file__


def test_bits_of_numbers_are_no_operands_of_and():
    class Bits(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            bits = x.to(torch.int64)
            return bits & bits.sum() ^ bits.amax()

    assert goals.targets(exported(Bits())) == {}
