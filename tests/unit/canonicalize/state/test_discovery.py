"""What is kept, what is left out, and what is refused at its line."""

from __future__ import annotations

import inspect
import itertools
import random
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model import spec
from tests.sweep import slow

X = torch.tensor([1.0, 2.0])
CALLS = 0
TABLE: dict[int, torch.Tensor] = {}


def canonical(model: Any, args: tuple[Any, ...] = (X,)) -> Any:
    return canonicalize(spec.as_spec(model.eval() if isinstance(model, nn.Module) else model, args=args))


def _line_of(thing: Any, mark: str) -> int:
    lines, start = inspect.getsourcelines(thing)
    return start + next(index for index, line in enumerate(lines) if mark in line)


class Stateless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Logging(nn.Module):
    """A list that grows and that nothing depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(x)  # here
        return x * 2


class DynamicList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys = x if self.keys is None else torch.cat([self.keys, x])  # here
        return self.keys.mean()


class Global(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS
        CALLS += 1  # here
        return x * CALLS


class Memo(nn.Module):
    """A table outside of the model that the first call fills."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[0]
        if size not in TABLE:
            TABLE[size] = torch.arange(size)
        return x + TABLE[size]


class Once(nn.Module):
    """A class attribute that only the first call changes, and that changes the result."""

    seen = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Once.seen:
            return x + 1
        Once.seen = True  # here
        return x


def test_a_model_that_keeps_nothing_has_no_state() -> None:
    assert canonical(Stateless()).entries[0].state is None


def test_what_nothing_depends_on_is_left_out_with_its_line() -> None:
    found = canonical(Logging())
    [finding] = [finding for finding in found.findings if finding.code == "state-left-out"]
    assert finding.severity == "warning"
    assert finding.where.line == _line_of(Logging, "# here")
    assert not found.entries[0].state.roots


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DynamicList, r"`keys` grows in every call: its shape is \(2,\), then \(4,\)"),
        (Global, "forward changes the global `CALLS`"),
        (Once, r"forward changes the class attribute `Once.seen`"),
    ],
)
def test_what_no_program_can_keep_is_refused_at_its_line(model: Any, message: str) -> None:
    with pytest.raises(ExportFailed, match=message) as caught:
        canonical(model())
    assert caught.value.where is not None
    assert caught.value.where.line == _line_of(model, "# here")
    assert caught.value.hint
    assert (CALLS, Once.seen) == (0, False)


def test_a_variable_of_an_outer_function_is_refused_at_its_line() -> None:
    n = 0

    def model(x: torch.Tensor) -> torch.Tensor:
        nonlocal n
        n += 1  # here
        return x * n

    with pytest.raises(ExportFailed, match="forward changes the variable `n` of an outer function") as caught:
        canonical(model)
    assert caught.value.where is not None
    assert caught.value.where.line == _line_of(model, "# here")
    assert n == 0


def test_a_table_that_the_first_call_fills_is_let_be() -> None:
    assert canonical(Memo()).entries[0].state is None
    TABLE.clear()


LARGE = 0


def test_what_only_a_branch_changes_outside_is_refused() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global LARGE
            if x.sum() > 100:
                LARGE += 1
            return x * 2

    found = canonical(Branching())
    with pytest.raises(ExportFailed, match="forward changes the global `LARGE`") as caught:
        export(found)
    assert caught.value.where is not None
    assert LARGE == 0


def test_what_a_trace_adds_to_a_table_is_taken_out_again() -> None:
    found = canonical(Memo())
    TABLE.clear()
    export(found)
    assert TABLE == {}


class Counting(nn.Module):
    """Counts in a method that is not forward."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


def test_what_another_method_than_forward_counts_is_kept():
    model = Counting().eval()
    found = canonicalize(spec.as_spec(model.decode, args=(X,)))
    state = found.entries[0].state
    assert state is not None
    assert [root.path for root in state.roots] == ["count"]
    program = export(found).entries[0].program.module()
    assert [program(X)[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]


class Tensors(list):
    """A list of the model's own, with an attribute beside its items."""

    def __init__(self, items=()):
        super().__init__(items)
        self.extra = torch.ones(2)


class Table(dict):
    def __init__(self, items=()):
        super().__init__(enumerate(items))
        self.extra = torch.ones(2)


def assigns_an_item(held, x):
    held[0] = held[0] + x
    return held[0] * 1


def assigns_an_attribute(held, x):
    held.extra = held.extra + x
    return held.extra * 1


def only_reads(held, x):
    return held[0] + held.extra + x


class Holding(nn.Module):
    def __init__(self, held, step):
        super().__init__()
        self.held, self.step = held, step

    def forward(self, x):
        return self.step(self.held, x)


@pytest.mark.parametrize("kind", [Tensors, Table])
@pytest.mark.parametrize("step", [assigns_an_item, assigns_an_attribute])
def test_a_change_of_a_subclass_of_a_container_is_refused_and_taken_back(kind, step):
    held = kind([torch.zeros(2)])
    model = Holding(held, step)
    with pytest.raises(ExportFailed, match=f"calls change in `{kind.__name__}`") as raised:
        export(canonical(model))
    assert raised.value.code == "state-refused"
    assert torch.equal(held[0], torch.zeros(2))
    assert torch.equal(held.extra, torch.ones(2))


class Slotted(dict):
    __slots__ = ("n",)

    def __init__(self):
        super().__init__()
        self.n = 0


class Pair(tuple):  # noqa: SLOT001  # as people write it
    """A tuple with an attribute beside its items."""

    n = 0


def counts(held, x):
    held.n += 1  # here
    return x + held.n


def adds(held, x):
    held += 1  # here
    return x + float(held[0])


def draws(held, x):
    return x + next(held)  # here


def draws_at_random(held, x):
    return x + held.random()  # here


def generated():
    while True:
        yield from range(3)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (Slotted, counts),
        (lambda: Pair((1,)), counts),
        (lambda: np.zeros(2), adds),
        (lambda: np.array([0], dtype=object), adds),
        (itertools.count, draws),
        (generated, draws),
        (lambda: map(float, range(100)), draws),
        (lambda: random.Random(0), draws_at_random),
        (lambda: np.random.default_rng(0), draws_at_random),
    ],
)
def test_a_change_of_what_has_no_form_is_refused_at_its_line(make, step):
    with pytest.raises(ExportFailed, match="`held` keeps what calls change in") as raised:
        canonical(Holding(make(), step))
    assert raised.value.where.line == _line_of(step, "# here")
    # An iterator that no call draws from is no state.
    assert canonical(Holding(make(), lambda _, x: x * 2)).findings == ()


@pytest.mark.parametrize(("make", "step"), [slow((Slotted, counts)), (lambda: np.zeros(1), adds)])
def test_a_branch_changes_nothing_that_has_no_form(make, step):
    def branches(held, x):
        if x.sum() > 100:
            step(held, x)
        return x + 1

    with pytest.raises(ExportFailed, match="`held` keeps what calls change in"):
        export(canonical(Holding(make(), branches)))


def test_python_s_own_user_dict_is_an_object():
    def counts(held, x):
        held["n"] += 1
        return x * held["n"]

    program = export(canonical(Holding(UserDict(n=0), counts))).entries[0].program.module()
    assert [program(X)[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]


def test_a_subclass_of_a_container_that_no_call_changes_is_read():
    model = Holding(Tensors([torch.zeros(2)]), only_reads)
    program = export(canonical(model)).entries[0].program.module()
    torch.testing.assert_close(program(X), model(X))


class OfHistory(nn.Module):
    """What it computes of all past values is often what it computes of the last one."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.of = of
        self.history: list[Any] = []

    def forward(self, x: torch.Tensor) -> Any:
        self.history.append(x.item())
        return self.of(self.history)


@pytest.mark.parametrize("x", [torch.tensor(4), torch.tensor(4.0), torch.tensor(0), torch.tensor(False)])
def test_what_depends_on_the_order_of_calls_is_not_left_out(x: torch.Tensor) -> None:
    for of in (max, min, lambda values: sum(max(values) - v for v in values), any):
        with pytest.raises(ExportFailed, match="`history` grows in every call"):
            canonical(OfHistory(of), (x,))


class LoggedIds(nn.Module):
    """Takes no other ids than those of its table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 2)
        self.seen: list[torch.Tensor] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.seen.append(ids)
        return self.table(ids)


@pytest.mark.parametrize("ids", [[0, 2], [2, 2], [0, 0]])
def test_what_nothing_depends_on_is_left_out_where_not_all_integers_are_taken(ids: list[int]) -> None:
    found = canonical(LoggedIds(), (torch.tensor(ids),))
    assert "state-left-out" in [each.code for each in found.findings]


def test_what_nothing_depends_on_may_be_kept_in_a_subclass_of_a_list():
    def logs(held, x):
        held.append(1)
        return x * 2

    model = Holding(Tensors(), logs)
    found = canonical(model)
    assert "state-left-out" in [each.code for each in found.findings]
    torch.testing.assert_close(export(found).entries[0].program.module()(X), X * 2)


class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        self.mean = self.mean * 0.5 + x * 0.5
        return x - self.mean


class AverageOfBranches(Average):
    def forward(self, x):
        if x.sum() > 1:
            self.mean = self.mean * 0.5 + x * 0.5
        return x - self.mean


class Nested(nn.Module):
    """Submodules whose buffers are assigned; one is called by two names."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(Average(), AverageOfBranches())
        self.again = self.parts[0]

    def forward(self, x):
        y = self.again(self.parts(x))
        self.again.mean = self.again.mean + 1
        return y


def _of_a_closure(model):
    return lambda x: model(x)


def _of_a_default(model):
    def call(x, net=model):
        return net(x)

    return call


@pytest.mark.parametrize("kind", [Average, AverageOfBranches, Nested])
@pytest.mark.parametrize("called", [lambda model: model, _of_a_closure, _of_a_default])
def test_what_is_assigned_to_a_buffer_of_a_submodule_is_kept(kind, called):
    """torch.export keeps what is assigned to buffers of the outermost module alone."""
    model, eager = kind(), kind()
    program = export(canonical(called(model))).entries[0].program.module()
    assert all(type(each) is torch.Tensor and not each.any() for each in model.buffers())
    for scale in (1.0, 2.0, -3.0, 4.0):
        torch.testing.assert_close(program(X * scale), eager(X * scale))


_HELD = [Average().eval()]
_AVERAGE = Average().eval()


class Caller:
    """An object that is called, and is no module."""

    def __init__(self):
        self.held = {"average": Average().eval()}

    def __call__(self, x):
        return self.held["average"](x)

    def method(self, x):
        return self(x)


_CALLER = Caller()
_DEFAULT = (Average().eval(),)


def calls_one_of_a_list(x):
    return _HELD[0](x)


def _calls_it(x):
    return _AVERAGE(x)


def calls_by_another_function(x):
    return _calls_it(x)


def calls_an_object(x):
    return _CALLER(x)


def calls_a_default(x, held=_DEFAULT):
    return held[0](x)


def writes_in_place(x):
    _HELD[0].mean.add_(1)
    return x + _HELD[0].mean


@pytest.mark.parametrize(
    "function",
    [
        calls_one_of_a_list,
        calls_by_another_function,
        calls_an_object,
        calls_a_default,
        writes_in_place,
        Caller(),
        Caller().method,
    ],
)
def test_a_change_of_a_module_that_is_no_part_of_the_model_is_refused(function):
    with pytest.raises(ExportFailed, match="changes") as raised:
        export(canonical(function))
    assert raised.value.code == "global-changed"
    assert all(type(each) is torch.Tensor for each in (*_HELD[0].buffers(), *_AVERAGE.buffers()))


class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0


_COUNT = [Count()]
_COUNTS = [[[[[[Count()]]]]]]


def counts_outside(x):
    if not torch.compiler.is_compiling():
        _COUNT[0].n += 1  # here
    return x * 2 if _COUNT[0].n > 5 else x


def counts_far_below(x):
    if not torch.compiler.is_compiling():
        _COUNTS[0][0][0][0][0][0].n += 1  # here
    return x * 2 if _COUNTS[0][0][0][0][0][0].n > 5 else x


@pytest.mark.parametrize("function", [counts_outside, counts_far_below])
def test_what_a_trace_does_not_run_changes_no_other_module(function):
    with pytest.raises(ExportFailed, match="changes the global") as raised:
        export(canonical(function))
    assert raised.value.where.line == _line_of(function, "# here")


def test_a_module_that_is_no_part_of_the_model_and_no_call_changes_is_a_constant():
    held = [nn.Linear(2, 2).eval()]
    program = export(canonical(lambda x: held[0](x))).entries[0].program.module()
    torch.testing.assert_close(program(X), held[0](X))
