"""Functions of Python's that call another in C, where that one decides on tensors."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import deque
from typing import Any

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

CASES = [
    (torch.tensor(each),) for each in ([3.0, 1.0, 2.0, 4.0], [-1.0, -2.0, 3.0, -4.0], [-4.0, 0.0, -1.0, 0.5])
]


def filtered(x):
    kept = list(filter(lambda v: v > 1.5, x.tolist()))
    return len(kept), sum(kept), len(list(filter(None, x.tolist())))


def taken(x):
    return len(list(itertools.takewhile(lambda v: v < 2.5, x.tolist())))


def _doubled(v):
    return v * 2 if v > 1 else v


def dropped(x):
    rest = list(itertools.dropwhile(lambda v: v < 2.5, x.tolist()))
    return len(rest), sum(rest), len(list(itertools.filterfalse(lambda v: v > 0, x.tolist())))


def chained(x):
    head = itertools.takewhile(lambda v: v > 0, x)
    total = 0.0
    for v in itertools.chain(head, x.tolist()[:1]):
        total = total * 0.5 + v
    return total, sum(itertools.starmap(_larger, zip(x.tolist(), x.tolist()[1:], strict=False)))


def _larger(one, other):
    return max(other, one)


def mapped(x):
    return sum(map(_doubled, x.tolist())), max(map(abs, x.tolist()))


def accumulated(x):
    best = list(itertools.accumulate(x.tolist(), max))
    return best[-1], best[1], list(itertools.accumulate(x.tolist()))[2]


def reduced(x):
    return functools.reduce(max, x.tolist()), functools.reduce(lambda a, b: max(b, a), x, x[0] * 2)


def extremes(x):
    first = max((v.item() for v in x if v > 0), default=0.0)
    second = min([i for i, v in enumerate(x) if v > 2], default=-1)
    third = max((i for i, v in enumerate(x.tolist()) if v > 0), key=lambda i: -x[i], default=7)
    return first, second, third


def by_key(x):
    done, order = [False] * 4, []
    for _ in range(3):
        u = min((i for i in range(4) if not done[i]), key=lambda i: x[i].item())
        done[u] = True
        order.append(u)
    return torch.tensor(order)


def picked(x):
    return operator.getitem([1.0, 2.0, 3.0, 4.0], int(x.argmax()))


def of_kept(x):
    kept = list(filter(lambda v: v > 0, x))
    roots = list(map(lambda v: v.sqrt(), kept))  # noqa: C417  # as people write it
    total = x[0] * 0
    for root in map(torch.exp, kept):
        total = total + root
    return total + sum(roots), len(roots), sum([*map(torch.neg, kept)], x[0] * 0)


@pytest.mark.parametrize(
    "model",
    [
        of_kept,
        filtered,
        taken,
        dropped,
        chained,
        mapped,
        accumulated,
        reduced,
        extremes,
        slow(by_key),
        picked,
    ],
)
def test_they_give_what_eager_gives(model: Any) -> None:
    check(model, *CASES)


def _positive(x):
    for v in x:
        if v > 0:
            yield v


def _endless(x):
    while True:
        x = x / 2
        if x.sum() < 0.5:
            return
        yield x.sum()


def sliced(x):
    first = list(itertools.islice(_positive(x), 1))
    few = [v for v in x.tolist() if v > -3.5]
    return len(first), sum(v * 2 for v in itertools.islice(_endless(x), 3)), sum(itertools.islice(few, 1, 3))


def apart(x):
    first, *rest = [v for v in x.tolist() if v > -3.5]
    *most, last = rest
    return first, last, len(rest), sum(most)


def totals(x):
    kept = [v for v in x.tolist() if v > 0]
    sums = list(itertools.accumulate(kept))
    halves = itertools.accumulate(kept, lambda a, b: a * 0.5 + b, initial=0.5)
    return len(sums), sum(sums), sum(halves), functools.reduce(lambda a, b: a * 0.5 + b, kept, 1.5)


def reduced_to_one(x):
    return functools.reduce(lambda a, b: a * 0.5 + b, [v for v in x.tolist() if v > 0])


def of_two(x):
    kept, large = [v for v in x.tolist() if v > 0], [v * 2 for v in x.tolist() if v > 1]
    first = list(map(lambda a, b: a, kept, large))  # as people write it
    products = itertools.starmap(lambda a, b: a * b, zip(kept, large, strict=False))
    both = sum(itertools.chain.from_iterable([kept, large]))
    return len(first), sum(first), sum(products), both, sum(b - a for a, b in itertools.pairwise(kept))


def longest(x):
    kept, rest = [v for v in x.tolist() if v > 0], [v for v in x.tolist() if v < 0]
    total = 0.0
    for a, b in itertools.zip_longest(kept, rest):
        if a is None:
            total = total - 1
            continue
        total = total * 0.5 if b is None else total + a * b
    pairs = itertools.zip_longest(kept, [1.0], fillvalue=0.5)
    return (
        total,
        sum(a * b for a, b in pairs),
        min(zip(kept, kept, strict=True), key=lambda p: -p[0], default=(0.0, 0.0))[0],
    )


@pytest.mark.parametrize("model", [totals, of_two, slow(longest), reduced_to_one])
def test_items_of_which_a_tensor_decides_how_many_there_are(model: Any) -> None:
    check(model, *CASES, (torch.tensor([-4.0, -5.0, -6.0, -7.0]),))


@pytest.mark.parametrize("model", [sliced, apart])
def test_parts_of_what_a_tensor_makes_as_long(model: Any) -> None:
    check(model, *CASES, (torch.tensor([-4.0, -5.0, -6.0, -7.0]),))


@pytest.mark.parametrize("function", [itertools.groupby, itertools.takewhile])
def test_a_list_of_which_a_run_knows_the_length_is_no_list_of_one(function: Any) -> None:
    def model(x):
        kept = [v for v in x.tolist() if v > 0]
        return len(list(function(kept) if function is itertools.groupby else function(bool, kept)))

    with pytest.raises(ExportFailed, match=f"`{function.__name__}` is called with a list whose length"):
        check(model, *CASES)


def of_varying_length(x):
    n = int((x > 0).sum())
    given = x[:n]
    found = [0.0]
    found.extend(reversed(given))
    found += [v + 1 for v in given]
    found += given
    found.extend(v * 2 for v in given if v > 1)
    same = found
    found += reversed(found)
    total = 0.0
    for at, v in enumerate(itertools.chain(given, [7.0], x[n:])):
        total = total + v * at
    return len(same), sum(v * 1.0 for v in same), sum(given), sum(reversed(same)), total


def queue_of_varying_length(x):
    queue = deque([x[0]], maxlen=3)
    queue.extend(x[: int((x > 0).sum())])
    queue += reversed(x[: int((x > 1).sum())])
    return len(queue), sum(queue), queue[-1]


class Window:
    def __init__(self, size):
        self.data, self.count = [0.0] * size, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        return (self.data[i % len(self.data)] for i in range(self.count))

    def push(self, value):
        self.data[self.count % len(self.data)] = value
        self.count += 1


def object_that_gives_a_generator(x):
    window = Window(3)
    for v in x.tolist():
        if v > 0:
            window.push(v)
    large = [v for v in window if v > 1]
    return sum(window), sum(v * v for v in window), len(window), len(large), max(window, default=-1.0)


@pytest.mark.slow
def test_what_goes_through_all_takes_items_of_which_a_tensor_decides_how_many_there_are():
    check(of_varying_length, *CASES)
    check(queue_of_varying_length, *CASES)


def test_a_generator_expression_that_a_method_returns_is_rewritten():
    check(object_that_gives_a_generator, *CASES)


def test_adding_to_a_list_is_pythons():
    check(_added, *CASES)


def _added(x):
    items = [x[0]]
    same = items
    items += (x[1],)
    items += x[2:]
    return len(same), same[-1]
