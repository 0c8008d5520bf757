"""What a region changes in place is found and taken back."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.values.trace import Trace, started
from tests.unit.canonicalize.trace.agree import check


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda v: v.append(3)),
        ([1, 2], lambda v: v.reverse()),
        ([[1], 2], lambda v: v[0].append(3)),
        ({"a": 1}, lambda v: v.update(a=2)),
        ({"a": 1}, lambda v: v.pop("a")),
        ({1, 2}, lambda v: v.add(3)),
        (deque([1]), lambda v: v.appendleft(0)),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        (defaultdict(int, a=1), lambda v: v.update(a=2)),
        (Counter(a=1), lambda v: v.update("a")),
    ],
)
def test_containers(value: Any, change: Callable[[Any], None]):
    before = repr(value)
    with pytest.raises(effects.Changed, match="held"), effects.unchanged([("held", value)]):
        change(value)
    assert repr(value) == before


def test_what_a_logger_remembers_is_not_looked_into():
    """A handler of `try` that logs was refused ("zip() argument 2 is longer"): torch asks loggers, too."""
    logger = logging.getLogger("aotpipe.tests.remembering")
    logger.manager.loggerDict.pop("aotpipe.tests.new", None)
    with effects.unchanged([("log", logger)]):
        logger.isEnabledFor(logging.DEBUG)
        logging.getLogger("aotpipe.tests.new")


def test_what_is_changed_is_found_again():
    def held() -> list[tuple[str, Any]]:
        return [("a", [1]), ("a", [2]), ("b", {"c": [3]})]

    def change(values: list[tuple[str, Any]]) -> None:
        with effects.unchanged(values):
            values[1][1].append(4)
            values[2][1]["d"] = 5

    with pytest.raises(effects.Changed) as raised:
        change(held())
    others = held()
    found = effects.again(others, raised.value.marks)
    assert found is not None
    assert [container for _, container in found.containers] == [others[1][1], others[2][1]]
    assert found.containers[0][1] is others[1][1]
    assert len(found.known) == 4
    assert effects.again(others[:2], raised.value.marks) is None


def test_what_is_read_alone_is_left():
    value = [1, {"a": [2]}]
    with effects.unchanged([("held", value), ("same", value), ("number", 3)]):
        assert value[1]["a"][0] == 2


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(1, 1)
        self.register_buffer("state", torch.zeros(1))
        self.notes: list[int] = []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda m: setattr(m, "late", 1), "Model.late"),
        (lambda m: setattr(m.inner, "late", 1), "inner.late"),
        (lambda m: setattr(m, "state", torch.ones(1)), "Model.state"),
        (lambda m: m.notes.append(1), "Model.notes"),
    ],
)
def test_attributes_of_watched_modules(change: Callable[[Model], None], named: str):
    model = Model()
    state = model.state
    with (
        started(Trace()),
        effects.watching(model),
        pytest.raises(effects.Changed, match=named),
        effects.unchanged([]),
    ):
        change(model)
    assert model.state is state
    assert not model.notes
    assert not hasattr(model, "late")
    with effects.unchanged([]):  # no longer watched
        change(model)


def test_the_bodys_own_error_comes_first_and_the_change_is_taken_back():
    value = [1]

    def change() -> None:
        with effects.unchanged([("held", value)]):
            value.append(2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert value == [1]


class Logged(torch.nn.Module):
    """A list on the model that every call makes anew."""

    def forward(self, x):
        self.seen = []
        for _ in range(3):
            if x.sum() > 1:
                x = x - 1
                self.seen.append(x.sum())
        return x, len(self.seen), sum(self.seen)


def test_a_list_that_a_call_makes_may_change():
    check(Logged().eval(), *((torch.tensor(each),) for each in ([1.0, 3.0], [0.0, 0.0], [2.0, 1.0])))


@pytest.mark.parametrize(
    "make", [lambda: defaultdict(int, a=1), lambda: Counter(a=1)], ids=["default", "counter"]
)
def test_a_table_that_a_branch_counts_in_is_one_more_variable(make):
    def counting(x):
        found = make()
        if x.sum() > 0:
            found["a"] += 1
        return x * found["a"] + found["b"]

    check(counting, (torch.ones(2),), (-torch.ones(2),))
