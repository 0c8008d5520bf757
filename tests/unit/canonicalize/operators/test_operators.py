"""On Python values every operator is Python's own."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.operators import operators as ops
from aotpipe.canonicalize.rewrite import staging
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check


def test_a_function_is_the_one_that_the_user_has():
    assert ops.call(range, 3) == range(3)
    assert ops.call(lambda *bounds, last=0: [*bounds, last], 3, last=4) == [3, 4]


def test_in_place_operators_keep_what_they_write():
    x = torch.zeros(2)
    assert ops.augmented("Add", x, 1) is x
    items = [1]
    assert ops.augmented("Add", items, [2]) is items
    assert ops.augmented("FloorDiv", 7, 2) == 3


@pytest.mark.parametrize(
    "name", ["Add", "Sub", "Mult", "Div", "FloorDiv", "Mod", "Pow", "LShift", "RShift", "BitOr"]
)
def test_augmented_is_the_operator_of_that_name(name: str):
    plain = {"Mult": "mul", "Div": "truediv", "BitOr": "or_"}.get(name, name.lower())
    assert ops.augmented(name, 7, 2) == getattr(operator, plain)(7, 2)


def test_asserts():
    ops.require(1, "x")
    with pytest.raises(AssertionError, match=r"^$"):
        ops.require(0, "x")
    with pytest.raises(AssertionError, match="why"):
        ops.require(0, "x", lambda: "why")


CASES = tuple(torch.tensor([[1.0, 2.0], [-3.0, 1.0], [0.5, 4.0]]) * scale for scale in (1.0, -1.0, 0.1, 9.0))


def doubled_rows(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for row in x:
        if row.sum() > 0:
            yield row * 2
        else:
            yield row


def halves(x: torch.Tensor) -> Iterator[Any]:
    count = 0
    while x.abs().sum() > 1:
        x = x / 2
        count += 1
        yield x, count


def both(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from doubled_rows(x)
    if x.sum() > 0:
        yield x[0]


def forever(x: torch.Tensor) -> Iterator[torch.Tensor]:
    while True:
        yield x
        x = x * 1.5 + 1


def in_a_loop(x):
    total = torch.zeros(2)
    for row in doubled_rows(x):
        total = total + row
    return total


def with_state_of_its_own(x):
    found = torch.zeros(())
    last = 0
    for half, number in halves(x):
        found = found + half.sum() * number
        last = number
    return found, last


def with_a_break(x):
    found, iterations = x.sum(), 0
    for each in forever(x):
        iterations += 1
        if each.sum() > 50:
            found = each.sum()
            break
    else:
        found = found - 1
    return found, iterations


def from_another(x):
    return torch.stack([row + 1 for row in doubled_rows(x)]), sum(row.sum() for row in doubled_rows(x[:2]))


def some_more(x):
    total = torch.zeros(2)
    for row in both(x):
        total = total + row
    return total


def as_a_list(x):
    rows = list(doubled_rows(x))
    best = max(row.sum() for row in doubled_rows(x))
    return torch.stack(rows), len(rows), rows[-1], best


def in_one_another(x):
    total = torch.zeros(2)
    for row in doubled_rows(x):
        for other in doubled_rows(x[1:]):
            if other.sum() > row.sum():
                total = total + other
                break
    return total


def once_only(x):
    rows = doubled_rows(x)
    first = sum(row.sum() for row in rows)
    return first, sum(row.sum() for row in rows)


def rising(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for number in range(2):
        if x.sum() > number + 3:
            return
        x = x + 1
        yield x


def with_a_return_in_a_branch(x):
    if x.max() > 1:
        for each in rising(x):
            if (each > 0).all() == (x.sum() < 1):
                return each, 1
            return x, 2
    return x * 2, 0


@pytest.mark.parametrize(
    "model",
    sweep(
        [
            in_a_loop,
            with_state_of_its_own,
            with_a_break,
            from_another,
            some_more,
            as_a_list,
            in_one_another,
            once_only,
            with_a_return_in_a_branch,
        ],
        quick=0,
        always=[
            in_a_loop,
            with_state_of_its_own,
            with_a_break,
            some_more,
            as_a_list,
            with_a_return_in_a_branch,
        ],
    ),
    ids=lambda model: model.__name__,
)
def test_generators_as_in_eager(model: Any) -> None:
    check(model, *((case,) for case in CASES))


@pytest.mark.parametrize("function", [doubled_rows, halves, both, forever])
@pytest.mark.parametrize("case", CASES)
def test_outside_of_a_trace_it_is_the_generator_that_it_was(function: Any, case: torch.Tensor) -> None:
    code = staging.rewritten(function)
    assert code is not None
    wanted = list(itertools.islice(function(case), 5))
    with staging.swapped({function: code}):
        made = function(case)
        got = list(itertools.islice(made, 5))
        assert inspect.isgenerator(made)
    torch.testing.assert_close(got, wanted)


def test_the_next_value_alone_is_refused() -> None:
    def first(x):
        return next(doubled_rows(x))

    with pytest.raises(ExportFailed) as caught:
        export(canonicalize(as_spec(first, args=CASES[:1])))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_operators.py")


def test_a_generator_that_cannot_be_rewritten_is_refused_at_the_loop() -> None:
    def numbered(x):
        while True:
            sent = yield x
            x = x + (1 if sent is None else sent)

    def until(x):
        for each in numbered(x):
            if each.sum() > 50:
                break
        return each

    with pytest.raises(ExportFailed, match="asks for the truth of a tensor") as caught:
        export(canonicalize(as_spec(until, args=CASES[:1])))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_operators.py")
