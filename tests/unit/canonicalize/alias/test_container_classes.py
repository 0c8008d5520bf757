"""Changes in place of what is inside of another container, and of classes of the user's own."""

from __future__ import annotations

from collections import OrderedDict, deque

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.alias import effects
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check


class Forbidding:
    """Lets nobody change it but by an item, as the outputs of transformers' models do."""

    def refuse(self, *_, **__):
        raise AssertionError("a method of the class was called")

    clear = update = extend = pop = copy = refuse


class Items(Forbidding, list):
    pass


class Table(Forbidding, dict):
    pass


class Ordered(Forbidding, OrderedDict):
    pass


class Queue(Forbidding, deque):
    pass


@pytest.mark.parametrize(
    "make", sweep([lambda: Queue([0]), lambda: Items([0]), lambda: Table({0: 0})], quick=1)
)
def test_a_change_of_a_class_of_the_users_own_is_refused_at_its_line(make):
    def changing(x):
        held = make()
        if x.sum() > 0:
            held[0] = 1
        return x * held[0]

    with pytest.raises(ExportFailed, match="changes held in place") as raised:
        export(canonicalize(as_spec(changing, args=(torch.ones(2),))))
    assert raised.value.where is not None
    assert raised.value.where.path.endswith("test_container_classes.py")


@pytest.mark.parametrize("value", [Items([0]), Table({0: 0}), Ordered([(0, 0), (1, 1)]), Queue([0])])
def test_a_change_is_taken_back_without_a_method_of_the_class(value):
    before = list(value), value[0]
    with pytest.raises(effects.Changed), effects.unchanged([("held", value)]):
        value[0] = 1
    assert (list(value), value[0]) == before


def test_the_order_of_keys_is_taken_back():
    value = Ordered([(0, 0), (1, 1)])
    with pytest.raises(effects.Changed), effects.unchanged([("held", value)]):
        value.move_to_end(0)
    assert list(value) == [0, 1]


class Counted(set):
    pass


def test_an_element_that_a_branch_adds_to_a_set_is_refused():
    def adding(x):
        held = Counted()
        if x.sum() > 0:
            held.add(1)
        return x * len(held)

    with pytest.raises(ExportFailed, match="changes held in place"):
        export(canonicalize(as_spec(adding, args=(torch.ones(2),))))


def test_a_list_in_a_tuple_is_one_more_variable():
    def changing(x):
        pair = ([1.0], x)
        items = pair[0]
        if x.sum() > 0:
            pair[0].append(2.0)
            items[0] = x.max()
        return x * items[0]

    check(changing, (torch.ones(2),), (-torch.ones(2),))


def nested(x):
    table = {"a": [1.0]}
    if x.sum() > 0:
        table["a"][0] = 3.0
    return x * table["a"][0]


def in_a_tuple(x):
    pair = ([1.0], {"a": 2.0})
    if x.sum() > 0:
        pair[0][0] = 3.0
        pair[1]["a"] = 4.0
    return x * pair[0][0] + pair[1]["a"]


def by_a_method(x):
    rows = [[1.0], [2.0]]
    if x.sum() > 0:
        rows[0].append(3.0)
        rows[1].clear()
    return x * sum(rows[0]) + len(rows[1])


class Box:
    def __init__(self):
        self.value = 1.0


def of_an_object(x):
    boxes = {"a": Box()}
    if x.sum() > 0:
        boxes["a"].value = 2.0
    return x * boxes["a"].value


def by_a_keyword(x):
    def fill(*, box):
        box.value = 2.0

    boxes = [Box()]
    if x.sum() > 0:
        fill(box=boxes[0])
    return x * boxes[0].value


@pytest.mark.parametrize("function", [nested, in_a_tuple, by_a_method, of_an_object, by_a_keyword])
def test_an_item_of_an_item_is_one_more_variable(function):
    check(function, (torch.ones(2),), (-torch.ones(2),))


def test_a_tensor_decides_the_length_of_a_deque():
    def growing(x):
        held = deque([x])
        if x.sum() > 0:
            held.append(x * 2)
        return x * len(held)

    check(growing, (torch.ones(2),), (-torch.ones(2),))


def test_a_deque_that_is_full_goes_on():
    def rotating(x):
        held = deque([x], maxlen=1)
        if x.sum() > 0:
            held.append(x * 2)
        return x + held[0] + len(held)

    check(rotating, (torch.ones(2),), (-torch.ones(2),))
