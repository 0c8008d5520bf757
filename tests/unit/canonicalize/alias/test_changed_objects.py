"""Objects that a branch or a loop changes: with slots and setters, and held by something else, too."""

from __future__ import annotations

import functools
import io
import weakref
from array import array
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(each),) for each in ([1.0, -2.0], [-1.0, -2.0], [1.0, 2.0], [-1.0, 2.0]))


class Counter:
    def __init__(self):
        self.n = 0

    def bump(self, by=1):
        self.n += by
        return self

    def get(self):
        return self.n


@dataclass(slots=True)
class Track:
    position: torch.Tensor
    age: int = 0

    def step(self, by):
        self.position = self.position + by
        self.age += 1


class Doubled:
    def __init__(self):
        self.held, self.sets = 0, 0

    @property
    def n(self):
        return self.held

    @n.setter
    def n(self, value):
        self.held = value * 2
        self.sets += 1


class Added:
    def __init__(self):
        object.__setattr__(self, "table", {})

    def __setattr__(self, name, value):
        self.table[name] = self.table.get(name, 0) + value


class WithSetter(nn.Module):
    def __init__(self):
        super().__init__()
        self.held, self.sets = 0, 0

    @property
    def n(self):
        return self.held

    @n.setter
    def n(self, value):
        self.held = value * 2 + 1
        self.sets += 1

    def forward(self, x):
        if x[0] > 0:
            self.n = self.n + 1
        elif x[1] > 0:
            self.n += 3
        return torch.tensor([self.n, self.sets])


def one_of_two_in_a_block(x):
    p, q = Counter(), Counter()
    for v in x:
        chosen = p if v > 0 else q
        chosen.n += 1
    return p.n, q.n


def one_of_two_by_a_method(x):
    p, q = Counter(), Counter()
    for v in x.tolist():
        (p if v > 0 else q).bump(2)
    return p.n, q.n


def deep_in_lists(x):
    nested, q = [[[[[[Counter()]]]]]], Counter()
    if len(x) > 1:
        chosen = nested[0][0][0][0][0][0] if x[0] > 0 else q
        chosen.n += 1
    return nested[0][0][0][0][0][0].n, q.n


def held_by_a_partial(x):
    p, q = Counter(), Counter()
    ask = functools.partial(Counter.get, p)
    if len(x) > 1:
        chosen = p if x[0] > 0 else q
        chosen.n += 1
        p = None
    return ask(), q.n


def held_by_a_closure(x):
    def make():
        p = Counter()
        return p, lambda: p.n

    (p, ask), q = make(), Counter()
    if len(x) > 1:
        chosen = p if x[0] > 0 else q
        chosen.n += 1
        p = None
    return ask(), q.n


def held_by_a_weak_reference(x):
    p = Counter()
    seen = weakref.ref(p)
    if x[0] > 0:
        seen().n = 5
    return p.n


def slots_in_a_branch(x):
    track = Track(x)
    if x[0] > 0:
        track.step(1.0)
    for v in x:
        if v > 0:
            track.age += 10
    return track.position, track.age


def slots_in_a_loop(x):
    track, other = Track(x), Track(x)
    while track.position.sum() < 10 and track.age < 5:
        track.step(x.abs())
        other = Track(other.position + 2, other.age + 1)
    return track.position, track.age, other.position, other.age


def slots_of_an_element(x):
    tracks = [Track(x), Track(x * 2)]
    for i in (x > 0).long().tolist():
        tracks[i].step(1.0)
    return [track.position for track in tracks], [track.age for track in tracks]


def a_setter(x):
    made = Doubled()
    if x[0] > 0:
        made.n = 5
    y = x.sum()
    while y > 0:
        made.n = made.n + 1
        y = y - 1
    return made.n, made.sets


def a_class_that_sets(x):
    made = Added()
    made.a = 1
    if x[0] > 0:
        made.a = 5
    return made.table["a"]


def attributes_of_a_function(x):
    def count(v):
        count.calls += 1
        return v

    count.calls = 0
    if x[0] > 0:
        x = count(x)
    return count.calls, x


@pytest.mark.parametrize(
    "model",
    [
        one_of_two_in_a_block,
        one_of_two_by_a_method,
        deep_in_lists,
        held_by_a_partial,
        held_by_a_closure,
        held_by_a_weak_reference,
        slots_in_a_branch,
        slots_in_a_loop,
        slots_of_an_element,
        a_setter,
        a_class_that_sets,
        attributes_of_a_function,
        WithSetter(),
    ],
)
def test_a_change_is_seen_under_every_name(model):
    check(model, *CASES)


class Total:
    n = 0

    @classmethod
    def bump(cls):
        cls.n += 1


def changing(make: Callable[[], Any], change: Callable[[Any], Any]) -> Callable[[torch.Tensor], Any]:
    def model(x):
        held = make()
        if x[0] > 0:
            change(held)
        return x * 2

    return model


@pytest.mark.parametrize(
    ("make", "change", "kind"),
    [
        (lambda: np.zeros(2), lambda held: np.copyto(held, 1.0), "ndarray"),
        (lambda: bytearray(2), lambda held: held.extend(b"a"), "bytearray"),
        (lambda: array("d"), lambda held: held.append(1.0), "array"),
        (io.StringIO, lambda held: held.write("a"), "StringIO"),
        (lambda: ContextVar("a", default=1), lambda held: held.set(2), "ContextVar"),
        (lambda: Total, lambda held: held.bump(), "a class"),
    ],
)
def test_a_write_to_what_no_graph_holds_is_refused(make, change, kind):
    with pytest.raises(ExportFailed, match=rf"writes to `\w+` \({kind}\) in place"):
        check(changing(make, change), *CASES)
    Total.n = 0
