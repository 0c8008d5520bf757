"""The search finds inputs that reach what random ones do not, and says what it did not find."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Exported
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize
from aotpipe.validate.coverage import goals
from aotpipe.validate.coverage.interpreter import Interpreter
from aotpipe.validate.coverage.search import Run, Search, Seen
from aotpipe.validate.inputs import Call, plan, runs_unlike
from aotpipe.validate.reference import example_inputs
from tests.programs import branching
from tests.unit.validate.coverage.models import Halving, Needle, Nested, Unreachable, X, exported, summed


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


def test_a_corner_that_no_gradient_leads_to(tmp_path: Path):
    """Its largest element must fall, while its sum does not rise."""
    module = branching.load(branching.source(1), tmp_path / "program.py")
    made = export(canonicalize(as_spec(module.Model().eval(), args=branching.inputs()[0])))
    signatures = legalize(made, legalization("torch")).signatures
    example = example_inputs(made.canonical.entries[0])
    found = Search(Interpreter(made), goals.targets(made), signatures, 0, accept=lambda _: True)
    for planned in plan(signatures, {"forward": example}, seeds=8).calls:
        found.observe((planned,))
    found.look(tuple(run) for run in runs_unlike("forward", signatures["forward"], example, 0))
    assert missed(found) == set()


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


def observing(made: Exported, signatures: Mapping[str, Signature]) -> Search:
    return Search(Interpreter(made), goals.targets(made), signatures, 0, accept=lambda _: True)


def call(case: str, entry_point: str = "forward", x: Array | None = None, *, reset: bool = True) -> Call:
    inputs = {"x": X.numpy() if x is None else x}
    return Call(entry_point=entry_point, case=case, reset=reset, inputs=inputs)


def test_a_goal_is_of_the_first_call_that_reached_it():
    found = observing(summed(), {})
    found.observe((call("r/0", "add"), call("r/1", "ask", reset=False), call("r/2", "add", reset=False)))
    assert {(what, first.case) for (_, what), first in found.by.items()} == {(goals.TRUE, "r/1")}


def test_the_first_run_of_an_entry_point_is_looked_at_whatever_it_takes():
    made = summed()
    found = Search(
        Interpreter(made), goals.targets(made), {}, 0, accept=lambda _: True, products=lambda _: 1e12
    )
    for run in ((call("a", "add"),), (call("b", "ask"),), (call("c", "ask"),)):
        found.observe(run)
    assert {(what, first.case) for (_, what), first in found.by.items()} == {(goals.FALSE, "b")}
    assert (found.unseen, found.notes) == (1, [])


def test_a_fault_of_the_interpreter_is_said(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise ValueError("out of order")

    monkeypatch.setattr(Interpreter, "_cond", broken)
    found = observing(exported(Unreachable()), {})
    found.observe((call("seed 3"),))
    [note] = found.notes
    assert note.startswith("forward, seed 3: eager answers, and in the program `cond")
    assert note.endswith("raises ValueError: out of order")


def test_an_assert_that_does_not_hold_where_eager_answers_is_said():
    found = observing(exported(Nested()), {})
    found.observe((call("seed 3", x=np.full(6, -2000, np.float32)),))
    assert re.search(r"seed 3: eager answers, .* does not hold", found.notes[0])


def test_a_run_that_compares_nan_is_one_to_go_on_from():
    found = observing(exported(Unreachable()), {})
    found.observe((call("nan", x=np.full(6, np.nan, np.float32)),))
    found.observe((call("one"),))
    [key] = found.open
    assert [seen.run[0].case for seen in found._nearest(key)] == ["one", "nan"]
    assert found._nearest(key)[1].costs[key] == math.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_floats_of_every_kind_are_wiggled(dtype: type):
    array = np.array([0.3, 0.7, 300.5, 2.0]).astype(dtype)
    found = observing(exported(Unreachable()), {})
    moved = [found._wiggled(array) for _ in range(300)]
    assert all(each.dtype == array.dtype and each[3] == array[3] for each in moved)
    assert any((each != array).any() for each in moved)


def test_infinities_are_changed_without_a_warning():
    made = exported(Unreachable())
    found = observing(made, legalize(made, legalization("torch")).signatures)
    run: Run = (call("infinite", x=np.full(6, math.inf, np.float32)),)
    key = next(iter(found.targets))
    changed = [found._mutated(run, key)[0].inputs["x"] for _ in range(100)]
    assert any(not np.array_equal(each, run[0].inputs["x"]) for each in changed)
