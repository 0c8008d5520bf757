"""Iterators that Python goes on with: from where a tensor left them, or not at all."""

from __future__ import annotations

import itertools

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

CASES = [
    (torch.tensor(each),) for each in ([1.0, -2.0, 3.0, 4.0], [-1.0, -2.0, -3.0, -4.0], [0.0, 2.0, 0.0, 4.0])
]


def left_by_a_loop(x):
    items = iter(x.tolist())
    total = 0.0
    for v in items:
        if v < 0:
            break
        total = total + v
    return torch.tensor(total), len(list(items))


def asked_in_a_branch(x):
    items = iter(x.tolist())
    total = 0.0
    for v in items:
        total = total + next(items, 0.5) if v > 0 else total * 2 + v
    return torch.tensor(total)


def caught_at_its_end(x):
    items = iter(x.tolist())
    total = 0.0
    for v in items:
        if v < 0:
            try:
                total = total + next(items)
            except StopIteration:
                total = total + 100.0
    return torch.tensor(total)


def taken_until_none(x):
    items = iter(x.tolist())
    total = 0.0
    while (v := next(items, None)) is not None:
        if v < 0:
            break
        total = total + v
    return torch.tensor(total), torch.tensor(sum(items, 0.0))


def by_two_loops(x):
    items = iter(x.tolist())
    total = 0.0
    for a in items:
        for b in items:
            if b > 2:
                break
            total = total + a * b
    return torch.tensor(total)


def by_chunks(x):
    items = iter([v for v in x.tolist() if v > 0])
    total = 0.0
    while chunk := list(itertools.islice(items, 2)):
        total = total * 0.5 + sum(chunk)
    return torch.tensor(total)


def of_one_that_filters(x):
    positive = filter(lambda v: v > 0, x.tolist())
    first = next(positive, 0.0)
    rest = sum(positive, 0.0)
    return torch.tensor([first, rest, sum(positive, 0.0)])


def of_a_generator_twice(x):
    kept = [v for v in x.tolist() if v > 0]
    doubled = (v * 2 for v in kept)
    return torch.tensor([sum(doubled, 0.0), sum(doubled, 0.0)])


def found_in_turn(x):
    items = iter(x.tolist())
    return all(each in items for each in (2.0, 4.0))


def in_a_function_inside(x):
    items = iter([1.0, 2.0, 4.0])
    if x.sum() > 0:
        x = (lambda: x + next(items))()
    return x + next(items)


@pytest.mark.parametrize(
    "model",
    [
        left_by_a_loop,
        asked_in_a_branch,
        caught_at_its_end,
        taken_until_none,
        slow(by_two_loops),
        by_chunks,
        of_one_that_filters,
        of_a_generator_twice,
        slow(found_in_turn),
        in_a_function_inside,
    ],
)
def test_an_iterator_is_gone_on_with_from_where_it_was_left(model):
    check(model, *CASES)


def enumerated_in_two_loops(x):
    items = enumerate(x.tolist())
    for _, v in items:
        if v < 0:
            break
    return len(list(items))


def behind_an_enumerate(x):
    items = iter(x.tolist())
    for _, v in enumerate(items):
        if v < 0:
            break
    return len(list(items))


def asked_whether_any(x):
    items = iter(x.tolist())
    found = any(v < 0 for v in items)
    return found, len(list(items))


def asked_for_the_first(x):
    items = iter(x.tolist())
    found = next((v for v in items if v < 0), 0.0)
    return found, len(list(items))


def behind_a_slice(x):
    items = iter([v for v in x.tolist() if v > 0])
    for v in itertools.islice(items, 2):
        if v > 1:
            break
    return len(list(items))


def of_a_part_of_a_slice(x):
    items = iter([v for v in x.tolist() if v > 0])
    part = itertools.islice(items, 2)
    return next(part, 0.0), len(list(items))


def zipped_in_two_loops(x):
    kept = [v for v in x.tolist() if v > 0]
    pairs = zip(kept, kept, strict=True)
    total = sum(a * b for a, b in pairs)
    return total, len(list(pairs))


@pytest.mark.parametrize(
    "model",
    [
        enumerated_in_two_loops,
        behind_an_enumerate,
        asked_whether_any,
        asked_for_the_first,
        behind_a_slice,
        of_a_part_of_a_slice,
        zipped_in_two_loops,
    ],
)
def test_one_whose_place_only_a_run_knows_is_not_gone_on_with(model):
    with pytest.raises(ExportFailed, match="an iterator is gone on with after a tensor decided"):
        export(canonicalize(as_spec(model, args=CASES[0])))


def changed_meanwhile(x):
    values = x.tolist()
    items = iter(values)
    if next(items) > 0:
        values.append(7.0)
    return sum(items)


def test_a_list_is_not_changed_under_an_iterator():
    with pytest.raises(ExportFailed, match="a list is changed while an iterator goes through it"):
        export(canonicalize(as_spec(changed_meanwhile, args=CASES[0])))
