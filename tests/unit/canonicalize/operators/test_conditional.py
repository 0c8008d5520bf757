"""One of two values, chosen by Python's values or by the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe import Dim
from aotpipe.canonicalize.operators import conditional
from aotpipe.errors import ExportFailed
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check
from tests.unit.canonicalize.trace.test_regions import exported


def test_plain_values_choose_as_python_does_and_call_one_side() -> None:
    called: list[str] = []
    assert conditional.choose([1], lambda: "then", lambda: called.append("other")) == "then"
    assert conditional.choose("", lambda: called.append("then"), lambda: "other") == "other"
    assert not called


def test_a_traced_test_chooses_in_the_graph() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 if x.sum() > 0 else x - 1) + (0 if x.max() > 5 else 1)

    check(model, (torch.tensor([1.0, 2.0]),), (torch.tensor([-1.0, -2.0]),), (torch.tensor([9.0, -20.0]),))


VECTORS = tuple(
    torch.tensor(v) for v in ([0.5, -1.0, 2.0], [-3.0, 1.0, 0.25], [0.0, 0.0, 0.0], [4.0, 4.0, 1.0])
)
COUNTED = tuple((x, torch.tensor(k)) for x, k in zip(VECTORS, (2, 0, 3, 1), strict=True))


def the_best_so_far(x, k):
    best = None
    i = 0
    while i < k:
        s = (x * i).sum()
        if best is None or s > best:
            best = s
        i += 1
    return x if best is None else x + best


def on_one_path(x, k):
    y = None
    if k > 1:
        y = x * 2
    return x if y is None else y + 1


def a_number_or_none(x, k):
    n = None
    if k > 1:
        n = 3
    if n is not None and n > 2:
        return x * n
    return x


def a_pair_or_none(x, k):
    state = None
    for i in range(2):
        if k > i:
            state = (x * i, i) if state is None else (state[0] + 1, state[1] + 2)
    if state is None:
        return x
    h, n = state
    return h + n


@pytest.mark.parametrize(
    "model",
    [slow(the_best_so_far), on_one_path, a_number_or_none, a_pair_or_none],
    ids=lambda model: model.__name__,
)
def test_none_against_a_value(model: Any):
    check(model, *COUNTED)


class Box:
    def __init__(self) -> None:
        self.count = 0
        self.parts: list[Any] = [0]

    def add(self, value):
        self.count += 1
        self.parts[0] = self.parts[0] + value


def a_dict(x, k):
    held = {"a": x, "n": 0}
    if k > 1:
        held["a"] = x * 2
        held["n"] += 1
    return held["a"] + held["n"]


def a_list_and_a_second_name(x, k):
    held = [x, x]
    same = held
    while k > 0:
        held[0] = held[0] * 2
        k = k - 1
    return same[0] + held[1]


def an_object(x, k):
    box = Box()
    while box.count < k:
        box.add(x)
    return box.parts[0] + x, box.count


def appended_on_both_paths(x, k):
    out = []
    for i in range(3):
        if k > i:
            out.append(x * 2)
        else:
            out.append(x)
    return torch.stack(out)


def a_closure(x, k):
    total = 0

    def add(value):
        nonlocal total
        total = total + value
        return total

    if k > 1:
        add(2)
        x = x + add(1)
    return x, total


@pytest.mark.parametrize(
    "model",
    [a_dict, a_list_and_a_second_name, an_object, appended_on_both_paths, a_closure],
    ids=lambda model: model.__name__,
)
def test_what_is_changed_in_place(model: Any):
    check(model, *COUNTED)


def returned_where_it_is_there(x, k):
    y = None
    if k > 1:
        y = x * 2
    if y is None:
        return x
    return y


def set_where_it_is_not_there(x, k):
    y = None
    if k > 1:
        y = x * 2
    if y is None:
        y = x
    return y


@pytest.mark.parametrize(
    "model", [returned_where_it_is_there, set_where_it_is_not_there], ids=lambda model: model.__name__
)
def test_after_a_test_for_none_a_value_is_there(model: Any):
    check(model, *COUNTED)


def returned_none(x, k):
    y = None
    if k > 1:
        y = x * 2
    return y


def test_a_result_that_may_be_none_is_refused():
    with pytest.raises(ExportFailed, match="what forward returns is None on one path"):
        check(returned_none, *COUNTED)


def a_sum_that_starts_at_zero(x, k):
    total = 0
    while k > 0:
        total = total + x
        k = k - 1
    return total * x


def test_a_number_that_becomes_a_tensor_is_filled_in():
    check(a_sum_that_starts_at_zero, *COUNTED)


def found(x):
    at = value = pair = None
    for i in range(3):
        if x[i] > 1:
            at, value, pair = i, x[i].item(), (i, 2 * i)
    return at, value, pair


@pytest.mark.parametrize(
    "use",
    [
        lambda x, at, value, pair: torch.tensor(value),
        lambda x, at, value, pair: torch.tensor([at, 1]),
        lambda x, at, value, pair: torch.tensor(pair),
        lambda x, at, value, pair: torch.full((2,), value),
        lambda x, at, value, pair: torch.tensor([1, 2, 3][at]),
        lambda x, at, value, pair: torch.tensor(round(value)),
    ],
)
def test_what_takes_no_none_raises_as_in_eager(use) -> None:
    """It took the zeros that stand for a value where there is none."""

    def used(x):
        return use(x, *found(x))

    check(used, *((torch.tensor(x),) for x in ([0.5, 2.0, 0.9], [0.1, 0.1, 0.1], [3.0, 0.9, 2.0])))


def test_an_index_that_may_be_none_is_a_number() -> None:
    """The row is not filled into the shape that `x[None]` has; where it is None, the call is refused."""

    def used(x):
        return x[found(x)[0]]

    check(used, *((torch.tensor(x),) for x in ([0.5, 2.0, 0.9], [3.0, 0.9, 2.0])))


class Cell(torch.nn.Module):
    """Keeps what it gave, which is None before its first call."""

    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, row):
        if self.last is None:
            self.last = torch.zeros_like(row)
        self.last = torch.tanh(row + self.last)
        return self.last


class Rows(torch.nn.Module):
    def __init__(self, step, *, registered=True):
        super().__init__()
        self.steps = torch.nn.ModuleList([step]) if registered else [step]

    def forward(self, x):
        out = torch.empty(x.shape[0], 3)
        for i in range(x.size(0)):
            row = x[i]
            for step in self.steps:
                row = step(row)
            out[i, :] = row
        return out


class Around(torch.nn.Module):
    """Reads what a module inside of it holds."""

    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, row):
        first = self.cell.last is None
        return self.cell(row) + (1 if first else 0)


@pytest.mark.parametrize(
    "model",
    [
        lambda: Rows(Cell()),
        lambda: Rows(torch.nn.Sequential(torch.nn.Tanh(), Cell())),
        lambda: Rows(Around()),
        lambda: Rows(Cell(), registered=False),
        lambda: Rows(torch.nn.Sequential(Cell(), Cell()), registered=False),
    ],
    ids=["cell", "sequential", "around", "in a list", "sequential in a list"],
)
def test_a_module_that_keeps_what_it_gave_is_called_in_a_loop(model) -> None:
    """torch calls its `forward`, which asks whether it is None: it has to be rewritten, too."""
    calls = [torch.randn(n, 3) for n in (5, 2, 4)]
    program = exported(model(), calls[0], dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}})
    eager, run = model(), program.entries[0].program.module()
    for x in calls:
        torch.testing.assert_close(run(x), eager(x))
