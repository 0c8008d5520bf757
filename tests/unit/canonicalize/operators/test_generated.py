"""Generator expressions whose tests a tensor decides: what Python's functions and loops take of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check

VECTORS = tuple(
    (torch.tensor(v),) for v in ([0.0, 1.0, 2.0, 3.0], [2.0, 1.0, 0.0, 5.0], [-9.0, -1.0, -2.0, 1.0])
)


def the_sum(x):
    return sum(v.item() for v in x if v > 0)


def the_first(x):
    return next((i for i, v in enumerate(x) if v > 2), -1)


def the_first_that_must_be_there(x):
    try:
        return next(v for v in x if v > 2)
    except StopIteration:
        return x[0] * 0 - 1


def a_list_and_the_largest(x):
    return len(list(v for v in x if v > 1)), max(float(v) for v in x if v >= 0)  # noqa: C400


def a_loop(x):
    total, met = x[0] * 0, 0
    for v in (w * 2 for w in x if w > 0):
        total = total + v
        met += 1
        if met > 1:
            break
    return total, met


MODELS = {
    each.__name__: each
    for each in (the_sum, the_first, the_first_that_must_be_there, a_list_and_the_largest, a_loop)
}


@pytest.mark.parametrize("name", sweep(list(MODELS), quick=1, always=["the_sum", "the_first", "a_loop"]))
def test_elements_that_a_tensor_decides_on_are_those_of_eager(name: str) -> None:
    check(MODELS[name], *VECTORS)


def test_the_first_of_many_elements_takes_branches_one_after_another() -> None:
    x = torch.arange(40.0) / 20
    check(the_first, (x,), (x + 0.1,), (x - 9,), (x + 9,))


def goes_on(x: torch.Tensor) -> Any:
    elements = (v for v in x if v > 0)
    return next(elements, x[0]) + next(elements, x[0])


def test_what_comes_after_the_first_element_is_refused() -> None:
    with pytest.raises(ExportFailed, match="after a tensor decided which element was its first"):
        check(goes_on, *VECTORS)


def runs_of_equals(x):
    lengths = [len(list(group)) for _, group in itertools.groupby(x.tolist())]
    return max(lengths), len(lengths)


def runs_by_key(x):
    total = 0.0
    for (up, _), group in itertools.groupby(x.tolist(), key=lambda v: (v > 0, 1)):
        if up and sum(group) > 3:
            break
        total += 1
    return total, sum(1 for up, _ in itertools.groupby(x > 1) if up)


def _counted(x):
    n = 0
    for v in x:
        if v < 0:
            return n
        yield v * 2
        n += 1
    return n + 10


def what_a_generator_returns(x):
    def outer():
        n = yield from _counted(x)
        yield torch.tensor(float(n))

    total = x[0] * 0
    for v in outer():
        if v > 9.5:
            break
        total = total + v
    return total


def what_is_handed_on(x):
    def inner():
        return (yield from _counted(x))

    def outer():
        if (yield from inner()) > 5:
            yield x[0]

    def named():
        n = yield from inner()
        if n > 5:
            yield x[0]

    return len(list(named()))


@pytest.mark.parametrize("model", [runs_of_equals, runs_by_key, what_a_generator_returns, what_is_handed_on])
def test_generators_that_end_where_a_tensor_says_so(model: Any) -> None:
    check(model, *VECTORS, (torch.tensor([1.0, 1.0, 2.0, 2.0]),))


def broken_off(x):
    def steps():
        for i in range(4):
            if x.sum() > i:
                yield x * (i + 1)

    found, rest = steps(), x.sum() * 0
    for step in found:
        rest = rest + step.sum()
        if rest > 1:
            break
    for step in found:
        rest = rest - step.sum()
    return rest


def cut_off(x):
    def steps():
        for i in range(4):
            if x.sum() > i:
                yield x * (i + 1)

    found, rest = steps(), x.sum() * 0
    for step in itertools.islice(found, 2):
        rest = rest + step.sum()
    for step in found:
        rest = rest - step.sum()
    return rest


@pytest.mark.parametrize("function", [broken_off, cut_off])
def test_what_a_loop_leaves_of_a_generator_is_not_taken_for_nothing(function) -> None:
    with pytest.raises(ExportFailed, match="is gone on with after a loop that may have left it"):
        check(function, (torch.tensor([3.0, 4.0]),))


def _steps(x):
    v = x[0] * 0
    try:
        for row in x:
            if row > 0:
                v = v + row
            yield v
    finally:
        v = 100.0


def closed(x):
    found, total = _steps(x), 0.0
    for v in found:
        total = total + v
        if total > 3:
            break
    found.close()
    for _ in found:
        total = total + 1000
    unused = _steps(x)
    unused.close()
    return total, sum(unused), list(found)


def closed_in_a_finally(x):
    def first(found):
        try:
            for v in found:
                if v > 2:
                    return v
        finally:
            found.close()
        return -1.0

    found = _steps(x)
    return first(found), len(list(found))


@pytest.mark.parametrize("function", [closed, closed_in_a_finally])
def test_nothing_is_left_of_a_generator_that_is_closed(function) -> None:
    check(function, *VECTORS)


def closed_in_a_branch(x):
    found = []
    if x[0] > 1:
        steps = _steps(x)
        for v in steps:
            if v > 3:
                steps.close()
            found.append(v)
    return len(found)


def test_a_generator_is_closed_by_no_branch() -> None:
    with pytest.raises(ExportFailed, match="is closed inside of a branch or a loop"):
        check(closed_in_a_branch, *VECTORS)


class Ending(torch.nn.Module):
    """Counts how often its generator has ended."""

    def __init__(self, how) -> None:
        super().__init__()
        self.ended = 0
        self.how = how

    def steps(self, x):
        v = x[0] * 0
        try:
            for row in x:
                v = v + row
                yield v
        finally:
            self.ended += 1

    def forward(self, x):
        return self.how(self, x)


def left_under_a_name(model, x):
    steps = model.steps(x)
    for v in steps:
        if v > 1:
            break
    return model.ended, v


def left_in_a_list(model, x):
    held = [model.steps(x)]
    for v in held[0]:
        if v > 1:
            break
    return model.ended, v


def left_without_a_name(model, x):
    for v in model.steps(x):
        if v > 1:
            break
    return model.ended, v


def gone_through(model, x):
    steps = model.steps(x)
    total = 0.0
    for v in steps:
        if v > 1:
            continue
        total = total + v
    return model.ended, total


@pytest.mark.parametrize("how", [left_without_a_name, gone_through])
def test_a_generator_ends_with_the_loop_over_its_call(how) -> None:
    program = export(canonicalize(as_spec(Ending(how), args=VECTORS[0]))).entries[0].program.module()
    model = Ending(how)
    for case in (*VECTORS, *VECTORS):
        torch.testing.assert_close(
            [float(each) for each in program(*case)], [float(each) for each in model(*case)]
        )


@pytest.mark.parametrize("how", [left_under_a_name, left_in_a_list])
def test_a_generator_that_ends_later_than_its_loop_is_refused(how) -> None:
    with pytest.raises(ExportFailed, match="a generator that has a name is left at a `yield`") as raised:
        check(Ending(how), *VECTORS)
    assert "for v in steps(x)" in str(raised.value.hint)
