"""Heaps, `bisect`, and the largest and smallest of what only a run knows, against eager."""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass, field

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow, sweep
from tests.unit.canonicalize.trace.agree import check

ROWS = (
    [0.3, -0.6, 0.9, 0.1, -0.2, 0.7],
    [-0.9, -0.8, -0.1, -0.7, -0.6, -0.9],
    [0.9, 0.9, 0.2, 0.2, 0.9, 0.2],
    [0.0] * 6,
    [2.6, -1.4, 1.2, 3.4, 0.6, -2.0],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
)
CASES = [(torch.tensor(row), torch.tensor(n)) for row, n in zip(ROWS, (2, 0, 6, 3, 1, 4), strict=True)]


def heap_of_all(x, n):
    heap = []
    for v in x.tolist():
        heapq.heappush(heap, v)
    out = []
    while heap:
        out.append(heapq.heappop(heap))
    return torch.tensor(out)


def heap_of_some(x, n):
    heap = []
    for i, v in enumerate(x.tolist()):
        if v > 0:
            heapq.heappush(heap, (v, i))
        if v < -0.5 and heap:
            heapq.heappop(heap)
    if not heap:
        return torch.zeros(1), 0
    return torch.tensor([v for v, _ in heap]), heap[0][1]


def heap_as_a_list(x, n):
    heap = x.round().int().tolist()
    heapq.heapify(heap)
    a = heapq.heappushpop(heap, n.item())
    b = heapq.heapreplace(heap, 1)
    heapq.heappush(heap, n.item())
    return torch.tensor(heap), a, b


def heap_made_of_some(x, n):
    """What a tensor decides to keep is made a heap at once; it lies in the list as Python has it."""
    kept = [(v, i) for i, v in enumerate(x.tolist()) if v > -0.7]
    heapq.heapify(kept)
    laid = torch.tensor([i for _, i in kept]) if kept else torch.zeros(1, dtype=torch.int64)
    if kept and n > 1:
        heapq.heappop(kept)
    return laid, len(kept)


def heap_that_grew(x, n):
    heap = []
    for i in range(6):
        if i < n:
            heapq.heappush(heap, x[i].round().item())
    if n > 0:
        heapq.heapreplace(heap, 0.5)
    a = heapq.heappushpop(heap, -0.5)
    b = heapq.heappushpop(heap, 3.0)
    return torch.tensor(heap), a, b


def popped_of_none(x, n):
    heap = []
    for i in range(3):
        if i < n:
            heapq.heappush(heap, x[i].item())
    return heapq.heappop(heap)


def largest_and_smallest(x, n):
    return torch.stack(heapq.nlargest(3, list(x))), torch.tensor(
        heapq.nsmallest(2, x.tolist(), key=lambda v: abs(v - n.item()))
    )


def kept_sorted(x, n):
    held = []
    med = []
    for v in x.tolist():
        bisect.insort(held, v)
        med.append(held[len(held) // 2])
    return torch.tensor(held), torch.tensor(med)


def best_of_tuples(x, n):
    a = max([(x[i].round().item(), i) for i in range(6)])
    b = min([(x[i].round().item(), -i) for i in range(6)])
    c = max(((x[i], x[i] * 2, i) for i in range(4)), key=lambda t: t[0])
    return a, b, c


def best_of_names(x, n):
    rows = {"a": (x[0], 1), "b": (x[1], 2), "c": (x[2], 3)}
    k = max(rows, key=lambda name: rows[name][0])
    return rows[k], k == "b"


def longest_of_lists(x, n):
    low, high = [], []
    for v in x[:4].tolist():
        if v > 0:
            high.append(v)
        else:
            low.append(v)
    longest, shortest = max((low, high), key=len), min(low, high, key=len)
    return len(longest), sum(longest, 0.0), len(shortest), max(x.unbind(), key=lambda v: -v, default=x[0])


def best_removed_by_its_place(x, n):
    pool, kept = [(v, i) for i, v in enumerate(x[:4].tolist())], []
    while pool:
        best = max(range(len(pool)), key=lambda at: pool[at][0])
        value, place = pool.pop(best)
        if value < 0:
            break
        kept.append(place)
    return len(kept), kept[0] if kept else -1, len(pool)


@pytest.mark.parametrize(
    "model",
    sweep(
        [
            best_removed_by_its_place,
            longest_of_lists,
            heap_of_all,
            heap_of_some,
            heap_as_a_list,
            heap_made_of_some,
            heap_that_grew,
            popped_of_none,
            largest_and_smallest,
            kept_sorted,
            best_of_tuples,
            best_of_names,
        ],
        quick=2,
        always=[longest_of_lists, best_removed_by_its_place],
    ),
    ids=lambda model: model.__name__,
)
def test_python_orders_as_in_eager(model):
    check(model, *CASES)


def sorted_names(x, n):
    names = ["b" if x[i] > 0 else "a" for i in range(3)]
    first, second, _ = sorted(names)
    _, middle, last = sorted(names, reverse=True)
    return first == "a", second == "a", middle == "b", last == "b"


def test_texts_that_a_tensor_chooses_are_sorted_by_their_letters():
    """They were sorted by the order in which the model names them, and were numbers afterwards."""
    check(sorted_names, *CASES)


def searched_in_a_part(x, n):
    rows = [1.0, 2.0, 2.0, 4.0, 5.0]
    held = [x[0] * 0 + each for each in rows]
    pairs = [(1, x[0]), (3, x[1]), (5, x[2])]
    bisect.insort(pairs, (n.item(), x[3]), key=lambda pair: pair[0])
    bisect.insort_left(rows, n.item(), 1, 4)
    return (
        bisect.bisect(held, n.item(), 1, 3),
        bisect.bisect_left(held, n.item(), lo=2),
        bisect.bisect_left(range(5), n.item() + 0.5, key=lambda at: held[at]),
        bisect.bisect(held, 2.5, n.item() - 1, 4),
        [pair[1] for pair in pairs],
        rows,
    )


def pushed_beside_what_ties(x, n):
    heap = [(1, x), (3, x * 3), (3, x * 5)]
    popped = heapq.heappushpop(heap, (n.item(), x * 2))
    return popped[1], heap[0][1]


@pytest.mark.parametrize(
    ("model", "cases"), [slow((searched_in_a_part, CASES)), (pushed_beside_what_ties, CASES[1:] + CASES[:1])]
)
def test_what_python_does_not_look_at_does_not_count(model, cases):
    """`lo`, `hi` and `key` were left out; a heap that keeps its elements compared those below its first."""
    check(model, *cases)


def mixed(x, n):
    heap = [1, 2.5]
    heapq.heappush(heap, n.item())
    return max(n.item(), 0.5), heapq.heappop(heap)


def of_other_shapes(x, n):
    return [x, x.sum()][n.item() % 2]


def test_elements_that_have_no_dtype_or_shape_in_common():
    canonical = canonicalize(as_spec(mixed, args=CASES[0]))
    findings = export(canonical).findings
    assert [each.message.split(" has ")[0] for each in findings if each.code == "dtype-promoted"] == [
        "an element of a list",
        "what `min` or `max` gives",
    ]
    with pytest.raises(ExportFailed, match=r"has the shapes \(\) and \(6\)"):
        export(canonicalize(as_spec(of_other_shapes, args=CASES[0])))


@dataclass(order=True)
class Entry:
    name: int = field(compare=False)
    priority: float = 0.0


@dataclass(order=True, frozen=True)
class FixedEntry:
    name: int = field(compare=False)
    priority: float = 0.0


class Reversed:
    def __init__(self, name, cost):
        self.name, self.cost = name, cost

    def __lt__(self, other):
        return self.cost > other.cost


def heap_by_fields(x, n, kind=Entry):
    heap = []
    for at, v in enumerate(x.tolist()):
        if v > 0:
            heapq.heappush(heap, kind(-at, v))
    return heapq.heappop(heap).name, len(heap)


def heap_by_frozen_fields(x, n):
    return heap_by_fields(x, n, FixedEntry)


def sorted_by_fields(x, n):
    found = [FixedEntry(-at, v) for at, v in enumerate(x.tolist())]
    some = [each for each in found if each.priority > 0]
    names = [each.name for each in sorted(Entry(-at, v) for at, v in enumerate(x.tolist()))]
    return [each.name for each in sorted(found)], names, max(some).name, min(some, default=found[0]).priority


@pytest.mark.parametrize("model", [heap_by_fields, slow(heap_by_frozen_fields), sorted_by_fields])
def test_objects_of_a_dataclass_are_ordered_by_the_fields_that_it_compares(model):
    """A heap of such objects was one by all that they hold, in the order of the names."""
    check(model, *CASES)


def heap_by_own_order(x, n):
    return heap_by_fields(x, n, Reversed)


def sorted_by_own_order(x, n):
    some = [Reversed(at, v) for at, v in enumerate(x.tolist()) if v > 0]
    return [each.name for each in sorted(some)][0]  # noqa: RUF015  # as people write it


@pytest.mark.parametrize("model", [heap_by_own_order, sorted_by_own_order])
def test_an_order_that_is_code_of_the_models_is_refused_where_a_list_grows(model):
    """The objects were ordered by what they hold, with no word."""
    with pytest.raises(ExportFailed, match="a list of objects of Reversed is ordered"):
        export(canonicalize(as_spec(model, args=CASES[0])))


def best_of_pairs(x, n):
    pairs = [(int(v > 0.5), at) for at, v in enumerate(x.tolist()) if v > 0.15]
    return min(pairs, default=(9, 9)), max(pairs, default=(9, 9)), max(pairs, key=lambda each: (each[0], 1))


def test_the_extremes_of_tuples_of_which_a_tensor_decides_how_many_there_are():
    check(best_of_pairs, *CASES)


def ordered_beside_objects(x, n):
    heap = []
    for at, v in enumerate(x.tolist()):
        if v > 0:
            heapq.heappush(heap, (v, Reversed(at, v)))
    return heapq.heappop(heap)[1].name


def test_objects_without_a_known_order_may_stand_behind_what_differs():
    check(ordered_beside_objects, CASES[0], CASES[5], CASES[1])
