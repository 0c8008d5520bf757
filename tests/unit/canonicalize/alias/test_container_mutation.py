"""Lists and dicts that a branch or a loop gives, where eager has them under two names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.1, -0.2, 0.05]))


def chosen(x):
    table = {"a": x}
    kept = table
    if x.sum() > 0:
        table = {"a": table["a"] + 1}
    table["a"] = table["a"] * 2
    return table["a"], kept["a"]


def chosen_later(x):
    table = {"a": x}
    kept = table
    while table["a"].sum() > 1:
        table = {"a": table["a"] - 1}
    if x[0] > 0:
        table["a"] = table["a"] * 2
    return table["a"], kept["a"]


def made_twice(x):
    if x.sum() > 0:
        items = both = [x]
    else:
        items, both = [x], [x]
    items.append(x)
    return len(both), items[0]


def chosen_inside(x):
    items, kept = [x, x + 1], [x * 2, x]
    if x.sum() > 0:
        items = kept if x[0] < 2 else [x, x - 1]
    items.append(x)
    return len(kept), items[0]


def changed_under_a_new_name(x):
    """A branch changes `kept` by a name that it gives it; it kept tensors of the branch's own."""
    items, kept, rows = [x, x + 1, x], [x * 2, x], [[x], [x * 3]]
    if x.sum() > 0:
        items = kept
        items += [x * 5, x * 7]
        for row in rows:
            row.append(x * 9)
    return len(items), len(kept), sum(kept), sum(items), [len(row) for row in rows]


def test_a_change_by_a_name_that_a_branch_gives_is_seen():
    check(changed_under_a_new_name, *CASES)


def one_of_two_lists(x):
    low, high, table, other = [], [], {"n": 0}, {"n": 10}
    for v in x.tolist():
        (high if v > 0 else low).append(v)
        side = low if v < 1 else high
        side.append(v * 2)
    named = table if x[0] > 0 else other
    named["n"] += 1
    return len(low), len(high), sum(low, 0.0), table["n"], other["n"]


def one_of_two_in_a_loop(x):
    low, high, i = [0], [0], 0
    left = x.abs().sum()
    while left > 0 and i < 6:
        counts = high if left > 1 else low
        counts[0] += 1
        left = left - 0.7
        i += 1
    return low[0], high[0]


@pytest.mark.parametrize(
    "model", [chosen, chosen_inside, one_of_two_lists, one_of_two_in_a_loop], ids=lambda model: model.__name__
)
def test_a_change_of_one_of_several_is_seen_under_both_names(model):
    check(model, *CASES)


@pytest.mark.parametrize("model", [chosen_later, made_twice], ids=lambda model: model.__name__)
def test_a_change_under_a_second_name_is_refused(model):
    with pytest.raises(ExportFailed, match="whether another variable is the same one") as caught:
        check(model, CASES[0])
    assert caught.value.where is not None
    assert Path(caught.value.where.path).name == Path(__file__).name


def only_one(x):
    """Nothing else has the list that is changed, or nobody changes the one that has two names."""
    items = [x, x + 1]
    kept = items
    if x.sum() > 0:
        items.append(x * 2)
        items = items[1:]
    else:
        items[0] = x * 5
    best, other = {"v": x}, None
    for i in range(3):
        other = {"v": x * i}
        if other["v"].sum() > best["v"].sum():
            best = other
    table = {"a": x}
    if x[0] > 0:
        table = {"a": x + 1}
    table["a"] = table["a"] * 2
    return items[0], items[1], kept[0], len(kept), kept[-1], best["v"], table["a"]


def same_on_both_paths(x):
    items = [x]
    kept = items
    if x.sum() > 0:
        x, items = x + 1, kept
    else:
        items = kept
    items.append(x)
    return len(kept), kept[-1]


@pytest.mark.parametrize("model", [only_one, same_on_both_paths], ids=lambda model: model.__name__)
def test_one_name_is_enough(model):
    check(model, *CASES)
