"""What torch says of a guard, read: line, value, reason."""

from __future__ import annotations

from typing import Any

import pytest

from aotpipe.tools.recompiles.guards import explain, first_use


class Thing:
    count = 3
    name = "a"


def function(x: Any, thing: Any) -> Any:
    y = x + 1
    z = thing.count
    return y, z


CODE = function.__code__
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
