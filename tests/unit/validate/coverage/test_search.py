"""The search finds inputs that reach what random ones do not, and says what it did not find."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpipe.backends import legalization
from aotpipe.passes import legalize
from aotpipe.validate.coverage import goals
from aotpipe.validate.coverage.interpreter import Interpreter
from aotpipe.validate.coverage.search import Run, Search, Seen
from aotpipe.validate.inputs import runs_unlike
from aotpipe.validate.reference import example_inputs
from tests.unit.validate.coverage.models import Halving, Needle, Nested, Unreachable, X, exported


def searched(
    model: torch.nn.Module, x: torch.Tensor = X, most_work: int = 2_000_000
) -> tuple[Search, Sequence[Seen]]:
    made = exported(model, x)
    signatures = legalize(made, legalization("torch")).signatures
    accepted: list[Seen] = []

    def accept(seen: Seen) -> bool:
        accepted.append(seen)
        return True

    found = Search(Interpreter(made), goals.targets(made), signatures, 0, accept=accept, most_work=most_work)
    example = example_inputs(made.canonical.entries[0])
    runs: list[Run] = [tuple(run) for run in runs_unlike("forward", signatures["forward"], example, 0)]
    found.look(runs)
    return found, accepted


def missed(found: Search) -> set[str]:
    return {what for node, what in found.open} - set(goals.OPERANDS)


def test_a_branch_behind_state_and_the_failing_side_of_an_assert():
    found, accepted = searched(Nested())
    assert missed(found) == set()
    assert any(len(seen.run) > 1 for seen in accepted)
    assert any(seen.refused for seen in accepted)


def test_each_number_of_trips_up_to_the_bound():
    assert missed(searched(Halving())[0]) == set()


def test_each_combination_of_the_operands_of_or():
    class Either(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x[0] > 55 or x[1] < -55:
                return x + 1
            return x * 2

    found = searched(Either())[0]
    assert {what for _, what in found.by} > set(goals.OPERANDS)


def test_one_integer_among_many():
    assert missed(searched(Needle(), torch.arange(6))[0]) == set()


def test_what_no_input_reaches_is_left_open():
    assert missed(searched(Unreachable())[0]) == {goals.TRUE}


def test_the_same_seed_finds_the_same():
    first, second = (searched(Halving())[1] for _ in range(2))
    assert [each.run[0].inputs["x"].tolist() for each in first] == [
        each.run[0].inputs["x"].tolist() for each in second
    ]


def test_no_time_is_no_search():
    found, accepted = searched(Nested(), most_work=-1)
    assert not accepted
    assert missed(found) == {goals.TRUE, goals.FALSE, goals.FAILS}
