"""A variable that is another object of a frozen dataclass on each path, or in each iteration of a loop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.values import object_fields
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

X = torch.tensor([1.0, 3.0, 3.0, 2.0])
CASES = [(each,) for each in (X, -X, X * 0, X.flip(0))]


@dataclass(frozen=True)
class State:
    h: torch.Tensor
    n: Any = 0
    history: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outer:
    inner: State
    best: Any = None


@dataclass
class Thawed:
    n: Any


def replaced_in_a_loop(x):
    state = State(x)
    while state.n < 5 and state.h.sum() < 40:
        state = replace(state, h=state.h * 2, n=state.n + 1)
    return state.h, state.n


def replaced_in_branches(x):
    outer = Outer(State(x))
    before = outer
    if x[0] > 1:
        outer = replace(outer, inner=replace(outer.inner, n=int(x[1])), best=x.max())
    elif x[0] < 0:
        outer = Outer(State(h=-x, n=outer.inner.n + 1))
    best = 0.5 if outer.best is None else outer.best
    return outer.inner.h * outer.inner.n, best, before.inner.n, outer.inner.history == []


def matched(x):
    state = State(x, x[1]) if x[0] > 0 else State(x, x[2])
    match state:
        case State(h, n) if n > 2:
            return h + n
        case State(n=n):
            return x - n


def a_tensor_of_one_is_written(x):
    state = State(x * 1)
    kept = state.h
    if x[0] > 0:
        state = replace(state, n=2)
    state.h.add_(1)
    return kept, state.h, state.n


@pytest.mark.parametrize(
    "model", [replaced_in_a_loop, slow(replaced_in_branches), matched, a_tensor_of_one_is_written]
)
def test_it_is_a_structure_of_its_fields(model) -> None:
    check(model, *CASES)


def a_list_of_one_is_changed(x):
    state = State(x)
    kept = state.history
    if x[0] > 0:
        state = replace(state, n=3)
    state.history.append(5)
    return len(kept), len(state.history)


def one_that_is_not_frozen(x):
    thawed = Thawed(x[1]) if x[0] > 0 else Thawed(x[2])
    return x * thawed.n


class Plain:
    def __init__(self, n, log):
        self.n, self.log = n, log


def made_anew_in_a_loop(x):
    plain = Plain(x.sum(), [0, 0])
    while plain.n.abs() > 0.5 and plain.log[0] < 9:
        plain = Plain(plain.n / 2, [plain.log[0] + 1, 5])
        plain.log[1] += 1
    return plain.n, torch.tensor(plain.log)


def changed_and_made_anew_in_a_loop(x):
    thawed = Thawed({"a": x.sum(), "k": 0})
    while thawed.n["a"].abs() > 0.5 and thawed.n["k"] < 9:
        thawed.n["k"] += 1
        if x[0] > 1:
            thawed = Thawed({"a": thawed.n["a"] / 2, "k": thawed.n["k"]})
        thawed.n["a"] = thawed.n["a"] / 3
    return thawed.n["a"], torch.tensor(thawed.n["k"])


def which_of_two_is_changed(x):
    one, other = Thawed(1), Thawed(2)
    either = one if x[0] > 0 else other
    either.n += 10
    return torch.tensor([one.n, other.n, either.n])


def of_a_list(x):
    items = [Thawed(v * 2) for v in x]
    return items[int(x.argmax())].n, x


def a_second_name_before_a_loop(x):
    thawed = first = Thawed(0)
    while x.sum() > 0.1 and thawed.n < 5:
        x = x / 2
        thawed = Thawed(thawed.n + 1)
    thawed.n += 100
    return x, torch.tensor(first.n)


def one_of_a_list_is_changed(x):
    items = [Thawed(1), Thawed(2), Thawed(3), Thawed(4)]
    chosen = items[int(x.argmax())]
    chosen.n += 10
    return torch.tensor([each.n for each in items])


def test_objects_that_can_be_changed() -> None:
    for model in (made_anew_in_a_loop, changed_and_made_anew_in_a_loop, which_of_two_is_changed):
        check(model, *CASES)
    for model in (one_that_is_not_frozen, of_a_list, a_list_of_one_is_changed):
        check(model, *CASES)
    # After a trace torch's trees take them for leaves again.
    assert not {Thawed, Plain} & pytree.SUPPORTED_NODES.keys()


@pytest.mark.parametrize("model", [a_second_name_before_a_loop, one_of_a_list_is_changed])
def test_what_another_name_would_lose_is_refused(model) -> None:
    with pytest.raises(ExportFailed, match="is changed in place") as caught:
        export(canonicalize(as_spec(model, args=(X,))))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_object_fields.py")


def test_an_object_with_more_than_its_fields_is_none() -> None:
    plain, more = State(X), State(X)
    object.__setattr__(more, "cached", 1)
    assert object_fields.is_frozen(plain)
    assert not any(map(object_fields.is_frozen, (more, Thawed(1), State, X)))
    object_fields.register([{"a": (plain,)}])
    leaves, spec = pytree.tree_flatten(plain)
    made = pytree.tree_unflatten(leaves, spec)
    assert type(made) is State
    assert made.h is X
    assert (made.n, made.history) == (0, [])


@dataclass
class Equal:
    n: int = 0
    v: float = 1.0


class Node:
    def __init__(self, at):
        self.v, self.n = float(at), 0

    def add(self, by):
        self.n += 1
        self.v = self.v + by
        return self.n

    @property
    def seen(self):
        self.n += 10
        return self.v


AT = [(torch.tensor(each),) for each in ([1, 0, 2], [2, 2, 2], [0, 1, 0], [-1, 1, 7])]


def one_of_equal_ones(x):
    items = [Equal(), Equal(), Equal()]
    found = items[x[0].item()]
    found.n += 1
    return torch.tensor([each.n for each in items])


def one_of_equal_ones_in_a_branch(x):
    items = [Equal(), Equal(), Equal()]
    found = items[x[0].item()]
    if x[1] > 0:
        found.v = 3.0
    return torch.tensor([each.v for each in items])


def chosen_again_in_a_branch(x):
    items = [Equal(), Equal(), Equal()]
    found = items[x[0].item()]
    for j in range(3):
        if x[j] > 0:
            found = items[x[j].item()]
        found.n += 1
    return torch.tensor([each.n for each in items])


@pytest.mark.parametrize(
    "model", [one_of_equal_ones, one_of_equal_ones_in_a_branch, chosen_again_in_a_branch]
)
def test_a_change_of_one_among_equal_ones_is_not_lost(model) -> None:
    with pytest.raises(ExportFailed, match="is changed in place"):
        export(canonicalize(as_spec(model, args=AT[0])))


def by_a_method(x):
    nodes = [Node(at) for at in range(3)]
    total = sum(nodes[at].add(2.0) for at in x.tolist())
    return total, torch.tensor([each.v for each in nodes]), torch.tensor([each.n for each in nodes])


def by_its_attribute(x):
    nodes = [Node(at) for at in range(3)]
    for at in x.tolist():
        nodes[at].v = nodes[at].v * 2 + 1
        nodes[at].n += 3
    return torch.tensor([each.v for each in nodes]), torch.tensor([each.n for each in nodes])


def by_a_property(x):
    nodes = [Node(at) for at in range(3)]
    return nodes[x[0].item()].seen, torch.tensor([each.n for each in nodes])


@pytest.mark.parametrize("model", [by_a_method, by_its_attribute, by_a_property])
def test_an_element_without_a_name_is_changed_where_it_is(model) -> None:
    check(model, *AT)
