"""The programs of torch.compile, each traced to a line and a value."""

from __future__ import annotations

from pathlib import Path

import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.model.spec import as_spec
from aotpipe.tools.recompiles.calls import given, leaves
from aotpipe.tools.recompiles.counting import count
from tests.unit.canonicalize.inputs.adapted_models import CASES
from tests.unit.tools.recompiles.models import Counting, Scaled, canonical, line_of


def test_a_counter_takes_a_program_each_call_and_a_decision_breaks_the_graph() -> None:
    module = Counting()
    model = canonical(module, torch.ones(3, 2))
    found = count(model, given(model, [torch.ones(3, 2)] * 4))
    assert found.so_far == (2, 4, 6, 8)
    causes = [(program.cause, program.where.line if program.where else 0) for program in found.programs[:3]]
    counted = line_of("the line of the counter")
    assert causes[1:] == [("break", line_of("the line of the decision")), ("recompile", counted)]
    assert found.programs[2].value == "self.count: 0 -> 1"
    assert all(
        program.where.path.endswith("recompiles/models.py") for program in found.programs if program.where
    )
    assert module.count == 0


def test_a_size_takes_a_second_program_and_a_number_a_third() -> None:
    module = Scaled()
    model = canonical(module, torch.ones(3, 2), 2)
    found = count(model, given(model, [(torch.ones(n, 2), k) for n, k in ((3, 2), (4, 2), (5, 2), (5, 3))]))
    assert found.so_far == (1, 2, 2, 3)
    _, size, number = found.programs
    assert (size.value, size.where.line) == ("x.shape[0]: 3 -> 4", line_of("the line of the size"))
    assert (number.value, number.where.line) == ("k: 2 -> 3", line_of("the line of the number"))
    assert count(model, given(model, [torch.ones(3, 2), torch.ones(4, 2)]), dynamic=True).count == 1


def test_a_function_is_named_by_its_own_line() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + x.shape[0]

    model = canonicalize(as_spec(function, args=(torch.ones(2),)))
    found = count(model, given(model, [torch.ones(2), torch.ones(3)]))
    assert found.programs[1].value == "x.shape[0]: 2 -> 3"
    assert found.programs[1].where.path.endswith(Path(__file__).name)


def test_the_limit_of_torch_compile_is_told() -> None:
    model = canonical(Counting(), torch.ones(3, 2))
    found = count(model, given(model, [torch.ones(3, 2)] * 10))
    assert found.count == 20
    assert "stops after 8" in found.notes[0]
    assert "from call 9" in found.notes[0]


def test_a_call_that_raises_is_refused() -> None:
    model = canonical(Scaled(), torch.ones(3, 2))
    found = count(model, given(model, [torch.ones(3, 2), None]))
    assert [each.call for each in found.refused] == [2]


def test_each_subset_of_keys_takes_torch_another_program_at_the_models_line() -> None:
    """And aotpipe's calls have one form: what is not there goes with a flag."""
    kind, options = CASES["keys"]
    model = canonicalize(as_spec(kind().eval(), **options))
    batch = options["args"][0]
    found = given(model, [(batch,), ({"x": batch["x"]},), ({"x": batch["x"], "a": batch["a"]},)])
    [entry] = model.entries
    flags = [[bool(leaves(entry, call)[f"batch.{key}.present"]) for key in "abc"] for call in found]
    assert flags == [[True] * 3, [False] * 3, [True, False, False]]
    way = count(model, found)
    assert way.so_far == (1, 2, 3)
    assert all(each.where and each.where.path.endswith("adapted_models.py") for each in way.programs)


def test_a_function_that_is_given_up_is_said_to_run_eagerly() -> None:
    class Exit(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for scale in (1.0, 2.0):
                x = x * scale
                if x.sum() > 5:
                    break
            return x

    model = canonical(Exit(), torch.ones(3))
    found = count(model, given(model, [torch.ones(3)] * 2))
    assert found.so_far == (0, 0)
    assert "runs eagerly" in found.notes[0]
