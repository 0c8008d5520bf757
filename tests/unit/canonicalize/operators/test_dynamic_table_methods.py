"""Dicts and sets with keys that only a run knows do in a program what Python's own do in eager."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow, sweep
from tests.unit.canonicalize.trace.agree import check

X = torch.tensor([1.0, 3.0, 3.0, 2.0])
CASES = tuple(
    (each,)
    for each in (
        X,
        -X,
        X * torch.tensor([1.0, -1.0, 1.0, 1.0]),
        X * torch.tensor([1.0, -1.0, -1.0, 1.0]),
        torch.full((4,), 5.0),
        torch.arange(4.0),
    )
)


def counted(x):
    counts = {}
    for v in x.tolist():
        k = int(v)
        counts[k] = counts.get(k, 0) + 1
    return max(counts, key=counts.get), len(counts), max(counts.values())


def distinct(x):
    ascending = sorted(set(x.tolist()))
    return len({int(v) for v in x}), len(ascending), ascending[0]


def until_seen(x):
    following = x.long().abs() % 4
    seen = set()
    at = 0
    while at not in seen and len(seen) < 9:
        seen.add(at)
        at = int(following[at])
    return len(seen), at


def summed_by_group(x):
    sums = defaultdict(float)
    for i, v in enumerate(x.long().tolist()):
        sums[v] += x[i] * 2
    return sum(sums.values()), len(sums)


def most_common(x):
    counts = Counter(int(v) for v in x)
    counts.update([1, int(x[0])])
    ((key, count),) = counts.most_common(1)
    return key, count, counts[77], len(counts), counts.total()


def on_a_grid(x):
    seen = {(0, 0)}
    at = (0, 0)
    for step in x.long().tolist():
        at = (at[0] + step % 3 - 1, at[1] + step % 2)
        if at in seen:
            break
        seen.add(at)
    return len(seen), *at


def remembered(x):
    cache, total = {}, 0
    for i in range(4):
        k = int(x[i])
        if k not in cache:
            cache[k] = x * k
        total = total + cache[k]
    return total, len(cache)


def in_order(x):
    table = {}
    for i in range(int(x[0].abs()) + 2):
        if i > 5:
            break
        table[i % 3] = i
    table.pop(1)
    number = 0
    for key in table:
        number = number * 10 + key
    for key, value in table.items():
        number = number * 10 + value - key
    return number, 1 in table, table.pop(99, 3)


def set_algebra(x):
    a = {int(v) for v in x[:2]}
    b = {int(v) for v in x[2:]}
    found = len(a | b), len(a & b), len(a - b), a == b, a <= b, a > b
    a |= {7}
    a -= b
    b.update([8, int(x[1])])
    b.discard(3)
    return *found, len(a), sum(b), bool(a & b), a.issubset(b)


def least_recently_used(x):
    cache, hits = OrderedDict(), 0
    for v in x.long().tolist():
        if v in cache:
            cache.move_to_end(v)
            hits += 1
        else:
            cache[v] = v * 2
            if len(cache) > 2:
                cache.popitem(last=False)
    return hits, sum(cache.values()), next(iter(cache))


def breadth_first(x):
    neighbours = (x.long()[:, None] + torch.arange(4)) % 4
    queue, distance = deque([0]), {0: 0}
    while queue and len(queue) < 8:
        node = queue.popleft()
        for j in range(2):
            other = int(neighbours[node, j])
            if other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    return len(distance), max(distance.values()), distance.get(3, -1)


def deleted(x):
    table = {int(v): i for i, v in enumerate(x)}
    k = int(x[0])
    del table[k]
    table[k] = 8
    return list(table)[-1], len(table), next(v for v in table.values())


def caught(x):
    table, n = {}, 0
    for v in x.tolist():
        try:
            n += table[int(v)]
        except KeyError:
            table[int(v)] = 7
    return n, len(table)


def raises_where_eager_does(x):
    return {int(v): i for i, v in enumerate(x)}[3]


def by_names(x):
    last = {}
    for v in x:
        last["large" if v > 2 else "small"] = v
    return len(last), "large" in last


class Holder:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.first: dict[int, Any] = {}


def held_by_an_object(x):
    holder, beside = Holder(), {"seen": set()}
    for i in range(4):
        if x[i] > 0:
            holder.seen.add(int(x[i]))
            holder.first.setdefault(int(x[i]), x[i])
        beside["seen"].add(i)
    return len(holder.seen), sum(holder.first.values()), len(beside["seen"])


def two_names(x):
    a = set()
    b = a
    for v in x.tolist():
        b.add(int(v))
    return len(a)


def of_a_branch(x):
    items, table = {1, 2}, {}
    if x[0] > 0:
        items = {int(x[0])}
        table[3] = x.sum()
    return len(items), 2 in items, len(table), bool(table)


def missing(x):
    table = defaultdict(int)
    for v in x.tolist():
        table[int(v)]
    return len(table), table[100], len(table), table.setdefault(int(x[0]), 5)


def read_in_a_branch(x):
    """It was wrong with no word: the element that is read for the first time was there on each path."""
    table, other, found = defaultdict(int), defaultdict(int), 0
    if x[1] > 0:
        found = table[3]
    for i in range(3):
        if x[i] > 2:
            found += other[int(x[0]) + i]
    listed = defaultdict(int)
    kept = [listed[i] for i in range(3) if x[i] > 0]
    return found, len(table), len(other), len(kept), len(listed)


def spread(x):
    ones = {int(v): int(v) // 9 + 1 for v in x}
    table = {**ones, 9: 2}
    return len(table), 9 in table, sum(table.values())


def of_as_many_as_a_run_finds(x):
    seen, sums = set(), {}
    for v in x[x > 1.5].tolist():
        seen.add(int(v))
        sums[int(v)] = sums.get(int(v), 0) + v
    return len(seen), sum(sums.values()), bool(seen), 2 in seen


RIGHT = [
    *(counted, distinct, until_seen, set_algebra, two_names, raises_where_eager_does, by_names, of_a_branch),
    *(summed_by_group, most_common, on_a_grid, remembered, in_order, least_recently_used, breadth_first),
    *(deleted, caught, held_by_an_object, missing, read_in_a_branch, spread, of_as_many_as_a_run_finds),
]


@pytest.mark.parametrize("model", sweep(RIGHT, quick=8))
def test_keys_that_a_tensor_decides_are_as_in_eager(model):
    """They were refused as a dict's key, and a `Counter` of them took each for another number."""
    check(model, *CASES)


class Histogram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(range(4), 0)

    def forward(self, x):
        k = int(x.argmax())
        self.counts[k] += 1
        self.counts[k] = self.counts[k] + 1
        return x * self.counts[k]


def test_a_dict_of_the_models_own_keeps_its_keys():
    check(Histogram(), *CASES[:3])


def returned(x):
    return {int(v): 1 for v in x}


def gone_through(x):
    return sum(2 * k for k in {int(v) for v in x})


def mode_of_a_set(x):
    items = [int(v) for v in x]
    return max(set(items), key=items.count)


def changed_under_one_name(x):
    a, b = {1}, set()
    chosen = a if x[0] > 0 else b
    chosen.add(5)
    return len(a) * 10 + len(b)


def written_beside_the_dict(x):
    table, y = {}, x * 1
    table[int(x[0])] = y
    y += 1
    return table[int(x[0])]


def written_in_the_dict(x):
    table, y = {}, x * 1
    table[int(x[0])] = y
    table[int(x[0])] += 1
    return y


def compared(x):
    return {int(v): 1 for v in x} == {1: 1}


def mixed(x):
    table = {int(v): 1 for v in x}
    table["name"] = 2
    return len(table)


@pytest.mark.parametrize(
    ("model", "said"),
    sweep(
        [
            (gone_through, r"sorted\(items\)"),
            (mode_of_a_set, r"sorted\(items\)"),
            (written_beside_the_dict, "second name"),
            (written_in_the_dict, "second name"),
            (returned, r"torch.tensor\(list"),
            (compared, "`==` of a dict or a set"),
            (mixed, "keys that a tensor decides, and"),
        ],
        quick=4,
    ),
)
def test_what_no_graph_can_do_with_such_keys_is_refused(model, said):
    with pytest.raises(ExportFailed, match=said) as caught:
        export(canonicalize(as_spec(model, args=(X,))))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_dynamic_table_methods.py")


def numbered(x):
    made = []

    def fresh():
        made.append(1)
        return len(made)

    numbers = defaultdict(fresh)
    for v in x.tolist():
        numbers[int(v)]
    return torch.tensor(len(made)), torch.tensor(len(numbers)), torch.tensor(sum(numbers.values()))


def only_one(x):
    def none_left():
        raise KeyError("none left")

    rest = defaultdict(none_left)
    rest[int(x[0])] = 5
    return torch.tensor(rest[int(x[1])])


def drawn(x):
    numbers = iter([1, 2, 3, 4])
    found = defaultdict(lambda: next(numbers))
    for v in x.tolist():
        found[int(v)]
    return torch.tensor(sum(found.values()))


def test_a_factory_is_called_where_the_key_is_not_there():
    check(numbered, *CASES)
    # The example has to find its key.
    check(only_one, (torch.full((4,), 5.0),), (X,), (-X,))


def test_a_factory_may_take_from_an_iterator():
    check(drawn, *CASES)


def counts_of(x):
    counts = Counter()
    for v in x.tolist():
        counts[int(v)] += 1
    return counts


def count_into(counts, x):
    for v in x.tolist():
        counts[int(v)] = counts.get(int(v), 0) + 1


def add_to(seen, x):
    for v in x.tolist():
        seen.add(int(v))


def given_by_a_function(x):
    counts = counts_of(x)
    return torch.tensor(len(counts)), x * counts.get(3, 0), torch.tensor(3 in counts)


def filled_by_functions(x):
    table, seen, counts = {}, set(), Counter()
    count_into(table, x)
    count_into(counts, x)
    add_to(seen, x)
    return torch.tensor([len(table), len(seen), len(counts), counts[3], table.get(3, 0)])


def added(x):
    counts, more = counts_of(x), {}
    more[int(x[0])] = 10
    counts.update(more)
    counts.update({3: 5})
    counts.update([3, 3])
    del counts[77], counts[int(x[1])]
    return torch.tensor([counts[int(x[0])], counts[3], counts.total(), Counter(more)[int(x[0])]])


def augmented_by_a_factory(x):
    made = [0]

    def fresh():
        made[0] += 1
        return 0

    sums = defaultdict(fresh)
    for v in x.tolist():
        sums[int(v)] += 2
    return torch.tensor(made[0]), torch.tensor(sum(sums.values()))


@pytest.mark.parametrize(
    "model",
    [slow(given_by_a_function), filled_by_functions, added, augmented_by_a_factory],
    ids=lambda each: each.__name__,
)
def test_tables_that_functions_give_and_fill(model):
    check(model, *CASES)


@pytest.mark.parametrize(
    "other",
    [slow(lambda a, b: a | b), slow(lambda a, b: a + b), slow(lambda a, b: a - b), lambda a, b: a & b],
)
def test_what_counters_do_with_counts_is_refused(other):
    def model(x):
        return torch.tensor(other(counts_of(x), counts_of(x + 1))[3])

    with pytest.raises(ExportFailed):
        export(canonicalize(as_spec(model, args=(X,))))


def test_a_set_that_a_tensor_chooses_is_changed_where_it_is() -> None:
    check(changed_under_one_name, *CASES)


def first_of_each(x):
    ids = [int(v) for v in x.tolist()]
    order, flags = list(dict.fromkeys(ids)), dict.fromkeys(ids, 2)
    some = dict.fromkeys(v for v in ids if v > 1)
    return len(order), order[0], order[-1], sum(flags.values()), len(some)


def test_a_dict_is_made_of_keys_that_a_tensor_decides():
    """`dict.fromkeys` was refused."""
    cases = ([1.0, 2.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0], [0.0, 3.0, 0.0, 3.0])
    check(first_of_each, *((torch.tensor(each),) for each in cases))
