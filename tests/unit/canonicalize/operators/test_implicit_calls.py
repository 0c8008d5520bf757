"""Properties and `__len__` of objects that hold what only rewritten code knows are rewritten, or refused."""

from __future__ import annotations

import collections
import sys
import types
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize.operators import implicit_calls
from aotpipe.canonicalize.rewrite import staging
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

X = torch.tensor([1.0, 3.0, 3.0, 2.0])
CASES = [(X,), (-X,), (X.flip(0),)]
# A class that no module of the model names.
ELSEWHERE = """
class Base:
    @property
    def known(self):
        return self.best is not None

class Holder(Base):
    def __init__(self):
        self.best = None
"""


class Held(nn.Module):
    """Its object is of a class that only the object leads to."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = [make()]

    def forward(self, x):
        holder = self.make[0]
        holder.best = None
        if x[0] > 1:
            holder.best = x.max()
        known = holder.known
        holder.best = None
        return x * known


def of_a_local_class(x):
    class Found:
        def __init__(self) -> None:
            self.best = None

        def __len__(self) -> int:
            return 0 if self.best is None else 1

    found = Found()
    if x[0] > 1:
        found.best = x.max()
    return x * len(found)


def elsewhere(tmp_path):
    path = tmp_path / "elsewhere.py"
    path.write_text(ELSEWHERE)
    module = types.ModuleType("elsewhere_of_implicit_calls")
    module.__file__ = str(path)
    exec(compile(ELSEWHERE, str(path), "exec"), vars(module))
    return module


def test_a_property_of_an_object_that_the_model_holds(tmp_path, monkeypatch):
    module = elsewhere(tmp_path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    check(Held(module.Holder), *CASES)


def test_a_length_of_a_class_that_each_call_makes_is_refused():
    with pytest.raises(ExportFailed, match="cannot be rewritten"):
        check(of_a_local_class, *CASES)


def counted(x):
    found = []
    for i in range(4):
        if x[i] > 1:
            found.append(x[i])  # noqa: PERF401  # what is tested
    return len(found)


def test_calls_are_watched_only_where_a_class_has_such_methods(monkeypatch):
    """A trace with a list that grows took two to three times as long."""
    asked = []
    monkeypatch.setattr(sys, "setprofile", asked.append)
    monkeypatch.setattr(implicit_calls, "_has_methods", lambda _: False)
    check(counted, *CASES)
    assert not asked


class Best:
    def __init__(self) -> None:
        self.found = None

    @property
    def known(self):
        return self.found is not None


def in_a_branch_and_a_loop(x):
    best = Best()
    if x[0] > 1:
        best.found = x.max()
    if x.sum() > 2 and best.known:
        x = x + 1
    step = torch.zeros((), dtype=torch.int64)
    while step < 3 and best.known:
        step = step + 1
    return x, step


def test_a_property_that_torchs_own_branch_and_loop_read():
    check(in_a_branch_and_a_loop, *CASES)


def test_torchs_own_calls_are_not_told_of(monkeypatch):
    """They were most of the calls, and a trace took twice the time."""
    places = collections.Counter()

    def told(frame, event, argument):
        places[frame.f_code.co_filename.rpartition("site-packages/")[2].partition("/")[0]] += 1
        return implicit_calls.on_call(frame, event, argument)

    monkeypatch.setattr(staging, "_OPERATORS", replace(staging._OPERATORS, on_call=told))
    check(in_a_branch_and_a_loop, *CASES)
    assert 0 < places["torch"] < 0.3 * places.total()


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        (type("Plain", (), {"forward": lambda self: 1, "__init__": lambda self: None}), False),
        (type("Sized", (), {"__len__": lambda self: 1}), True),
        (type("Known", (), {"known": property(lambda self: 1)}), True),
        (dict, False),
        (nn.Module, False),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_which_classes_have_such_methods(kind, has):
    assert implicit_calls._has_methods(kind) is has


class Positive:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return bool(self.value > 0)


class Bag:
    def __init__(self):
        self.items = []

    def __len__(self):
        return len(self.items)


def truths_of_objects(x):
    a, b, n = Positive(x[0]), Positive(x[1]), 0
    if a:
        n += 1
    if not b:
        n += 10
    n += 100 if a and b else 0
    n += 1000 if (a or b) else 0
    n += 10000 * bool(a)
    n += 100000 if any([a, b]) else 0
    assert b, "negative"
    return n


def lengths_of_objects(x):
    bag, total = Bag(), 0.0
    for v in x.tolist():
        if v > 0:
            bag.items.append(v)
    while bag:
        total += bag.items.pop()
        if total > 4:
            break
    return total if not bag else -total, len(bag)


@pytest.mark.parametrize("model", [truths_of_objects, lengths_of_objects])
def test_the_truth_of_an_object_is_what_its_class_says(model):
    check(model, *CASES, (torch.tensor([-1.0, 2.0, 1.0, -1.0]),))


class Ring:
    def __init__(self, size):
        self.data, self.head, self.full = [0.0] * size, 0, False

    def push(self, v):
        self.data[self.head] = v
        self.head = (self.head + 1) % len(self.data)
        if self.head == 0:
            self.full = True

    def __len__(self):
        return len(self.data) if self.full else self.head

    def __iter__(self):
        for at in range(len(self)):
            yield self.data[(self.head - len(self) + at) % len(self.data)]


def gone_through(x):
    ring, total = Ring(3), 0.0
    for v in x.tolist():
        if v > 0:
            ring.push(v)
    for v in ring:
        total += v
    return total, sum(ring), max(ring, default=0.0), sum(v * v for v in ring), [*list(ring), 0.0][0]


def test_python_goes_through_an_object_whose_iter_decides_on_a_tensor():
    """`sum(ring)` and `max(ring)` were refused: Python's own `iter` takes no such generator."""
    check(gone_through, *CASES)
