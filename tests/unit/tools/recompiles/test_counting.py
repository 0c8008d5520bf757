"""The programs of torch.compile, each traced to a line and a value; torch is as before afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import config, convert_frame, utils

from aotpipe.canonicalize import canonicalize
from aotpipe.model.spec import as_spec
from aotpipe.tools.recompiles.calls import given, leaves
from aotpipe.tools.recompiles.counting import count, counting, explain, first_use
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


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_each_program_is_told_once_with_its_function_and_guard() -> None:
    with counting() as counter:
        compiled = torch.compile(double, backend=counter.backend)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
        [first] = counter.taken(1)
        compiled(torch.ones(2))
        assert counter.taken(2) == []
        compiled(torch.ones(2, dtype=torch.float64))
        [second] = counter.taken(3)
    assert (first.number, first.function, first.ops, first.cause) == (1, "double", 2, "first")
    assert (second.number, second.call, second.cause) == (2, 3, "recompile")
    assert second.value == "x.dtype: Float -> Double"
    assert counter.calls == {(__file__, double.__code__.co_firstlineno): [1, 3]}


def test_torch_is_as_before() -> None:
    before = convert_frame.get_and_maybe_log_recompilation_reasons, config.recompile_limit
    with counting():
        assert config.recompile_limit > before[1]
    assert before == (convert_frame.get_and_maybe_log_recompilation_reasons, config.recompile_limit)
    assert utils._compilation_metrics.maxlen == utils.DEFAULT_COMPILATION_METRICS_LIMIT


class Thing:
    count = 3
    name = "a"


def used(x: Any, thing: Any) -> Any:
    y = x + 1
    z = thing.count
    return y, z


CODE = used.__code__
FIRST = CODE.co_firstlineno


def value_of(expression: str) -> Any:
    return eval(expression, {"__builtins__": {"len": len}}, {"thing": Thing(), "x": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("text", "value", "line", "reason"),
    [
        (
            "0/1: tensor 'x' size mismatch at index 0. expected 3, actual 4",
            "x.shape[0]: 3 -> 4",
            1,
            "tensor 'x' size mismatch at index 0. expected 3, actual 4",
        ),
        (
            "0/1: tensor 'x' dtype mismatch. expected Float, actual Half",
            "x.dtype: Float -> Half",
            1,
            "tensor 'x' dtype mismatch. expected Float, actual Half",
        ),
        (
            "0/0: thing.count == 2  # z = thing.count",
            "thing.count: 2 -> 3",
            2,
            "`thing.count == 2` does not hold",
        ),
        ("1/0: len(x) == 3", "len(x): 3 -> 4", 1, "`len(x) == 3` does not hold"),
        ("1/0: 6 <= x.size()[0]", "", 1, "`6 <= x.shape[0]` does not hold"),
        ("1/0: not ___dict_contains('mask', x)", "", 0, "`not ___dict_contains('mask', x)` does not hold"),
        ("1/0: Duplicate tensors found", "", 0, "Duplicate tensors found"),
        ("", "", 0, "`` does not hold"),
    ],
)
def test_a_text_is_read(text: str, value: str, line: int, reason: str) -> None:
    found = explain(text, CODE, value_of)
    assert found.value == value
    assert found.reason == reason
    assert found.where is not None
    assert found.where.line == FIRST + line


def test_the_line_of_torch_s_own_stack_comes_first() -> None:
    text = f'0/0: thing.count == 2\nUser stack trace:\n  File "{__file__}", line 7, in f\n    pass'
    found = explain(text, CODE, value_of)
    assert found.where is not None
    assert found.where.line == 7


def test_a_value_that_cannot_be_had_is_left_out() -> None:
    assert explain("0/0: missing.count == 2", CODE, value_of).value == ""


def test_what_follows_a_graph_break_is_looked_for_from_there() -> None:
    resumed = CODE.replace(co_firstlineno=FIRST + 2)
    found = first_use(resumed, "y")
    assert found is not None
    assert found.line == FIRST + 3
    assert first_use(None, "x") is None
