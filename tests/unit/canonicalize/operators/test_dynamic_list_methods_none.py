"""None beside values in lists and dicts of which a tensor chooses an element, against eager."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.canonicalize.trace.agree import check

T = torch.tensor
PAIRS = tuple((T(i), T(j)) for i in range(3) for j in range(3))
ROWS = ((T([1, -1, 2]),), (T([-1, -1, -1]),), (T([1, 2, 3]),), (T([2, 2, 2]),), (T([0, 1, 0]),))


def numbers_compared(i, j):
    place = [None] * 3
    place[i] = j.item()
    hits = sum(1 for each in place if each == 1)
    return hits, place[0] == 1, place[1] != 1, place[2] == place[1], place[2] != place[1], place[0] == None  # noqa: E711


def found_in(i, j):
    place = [None] * 3
    place[i] = j.item()
    asked = None in place, j.item() in place, 7 in place
    return *asked, place.index(None), place.count(None), place.index(j.item())


def truths(i, j):
    place = [None] * 3
    place[i] = j.item()
    first = place[0] or 10
    second = place[2] or -1
    return first, 1 if place[1] else 0, second, any(place), all(place), (place[1] and place[1] + 5) or 3


def none_written_back(i, j):
    i, j = i.item(), j.item()
    place = [None] * 3
    place[i] = i + 5
    place[j] = None
    return sum(each is None for each in place), -1 if place[i] is None else place[i]


def changed_after_the_test(i, j):
    i, j = i.item(), j.item()
    place = [None] * 3
    place[i] = 4
    if place[j] is not None:
        place[j] = None
        return -1 if place[j] is None else place[j]
    return 0


def read_where_it_is_none(i, j):
    i, j = i.item(), j.item()
    place = [None] * 3
    place[i] = 4
    if place[j] is not None:
        return place[j]
    return place[j] + 1


def moved_index(i, j):
    place = [None, None, 3]
    place[i] = 4
    k = j.clone()
    if place[k] is not None:
        k.add_(1).fmod_(3)
        return place[k] + 1
    return 0


def unpacked(i, j):
    place = [None] * 3
    place[i] = (4, i)
    first, second = place[j]
    return first + second


def caught(i, j):
    place = [None] * 3
    place[i] = 4
    try:
        return place[j] + 1
    except TypeError:
        return -1


def rows_of_rows(i, j):
    rows = [[None] * 3 for _ in range(3)]
    rows[i][j] = i + j * 10
    found = 0
    for row in rows:
        for value in row:
            if value is not None:
                found = found + 1 + value
    return found, -1 if rows[1][0] is None else rows[1][0]


def changed_by_another_name(i, j):
    rows = [None] * 3
    rows[i] = [1, 2]
    row = rows[j]
    if row is not None:
        row[0] = 7
    return sum(row[0] for row in rows if row is not None)


def texts(i, j):
    states = [None] * 3
    states[i] = "busy"
    states[j] = "idle"
    return states[0] == "busy", states[1] == "idle", states[0] is None, sum(x == "idle" for x in states)


def ints_and_floats(i, j):
    place = [None] * 3
    place[i] = 1
    place[j] = 2.5
    return sum(0 if each is None else each for each in place)


def none_in_tuples(i, j):
    place = [(0, None)] * 3
    place[i] = (1, i.item())
    first, second = place[j]
    return first, -1 if second is None else second, place[0] == (0, None), place[j] == (1, 1)


def two_names(i, j):
    place = [None] * 3
    other = place
    place[i] = 3
    empty = sum(each is None for each in other)
    copied = list(place)
    copied[j] = 9
    return empty, sum(each or 0 for each in place), sum(each or 0 for each in copied)


def swapped(i, j):
    place = [None, 1, 2]
    place[i], place[j] = place[j], place[i]
    return [-1 if each is None else each for each in place]


def passed_on(i, j):
    def doubled(value, otherwise=3):
        return otherwise if value is None else value * 2

    place = [None] * 3
    place[i] = 8
    return doubled(place[j]), doubled(place[0]), doubled(value=place[1])


def matched(i, j):
    place = [None] * 3
    place[i] = (8, j)
    match place[j]:
        case None:
            return -1
        case (first, second) if second > 0:
            return first + second
        case (first, _):
            return first


def ordered_without_none(i, j):
    place = [None] * 3
    place[i] = j.item()
    place[2] = 4
    there = sorted(each for each in place if each is not None)
    by_key = sorted(place, key=lambda each: -1 if each is None else each)
    first = next((at for at, each in enumerate(place) if each is None), -1)
    return there[0], len(there), first, [-1 if each is None else each for each in by_key]


@pytest.mark.parametrize(
    "function",
    [
        numbers_compared,
        found_in,
        truths,
        none_written_back,
        changed_after_the_test,
        read_where_it_is_none,
        unpacked,
        caught,
        rows_of_rows,
        texts,
        ints_and_floats,
        none_in_tuples,
        two_names,
        swapped,
        passed_on,
        matched,
        ordered_without_none,
    ],
)
def test_none_stands_beside_values(function) -> None:
    check(function, *PAIRS)


def test_an_index_that_is_written_in_place_is_another_one() -> None:
    # The example has to run in eager.
    check(moved_index, *sorted(PAIRS, key=lambda pair: pair[1].item() != 1))


def grown(x):
    out, at = [], 0
    while at < 3 and x[at] < 3:
        out.append(x[at].item() if x[at] > 0 else None)
        at += 1
    there = [each for each in out if each is not None]
    return len(out), sum(there), max(there, default=-1), out.count(None), None in out, any(out)


def last_ones_popped(x):
    out = []
    for value in x:
        out.append(value if value > 0 else None)  # noqa: PERF401
    while out and out[-1] is None:
        out.pop()
    return sum(0 if each is None else each for each in out), len(out)


def values_of_a_dict(x):
    table = {}
    for value in x.tolist():
        table[value] = None if value in table else value * 2
    first, missing = table.get(2), table.get(9)
    empty = sum(1 for value in table.values() if value is None)
    return len(table), empty, -1 if first is None else first, missing is None, table.get(1, 50) or 0


def got_before_it_is_read(x):
    table, found = {}, 0
    for value in x.tolist():
        if table.get(value) is not None:
            found += table[value]
            table[value] = None
        elif value in table:
            found += 100
        else:
            table[value] = value + 1
    return found, table.pop(2, None) is None, len(table)


def in_a_deque(x):
    held = deque(maxlen=2)
    for value in x:
        if value > 0:
            held.append(None)
        else:
            held.append(value.item())
    while len(held) > 1 and held[0] is None:
        held.popleft()
    return len(held), -1 if held[0] is None else held[0]


def none_inside_of_what_may_be_none(x):
    table = {}
    for at, value in enumerate(x.tolist()):
        table[value] = (at, None) if value not in table else (table[value][0], at)
    entry = table.get(2)
    if entry is None:
        return -5, 0
    first, last = entry
    return first, -1 if last is None else last


def carried_links(x):
    link, at = [None] * 4, 0
    while at < 3 and x[at] >= 0:
        link[x[at]] = at
        at += 1
    node, count = link[0], 0
    while node is not None and count < 5:
        node = link[node]
        count += 1
    return count


def changed_where_it_is(x):
    best = None
    for value in x.tolist():
        if value > 0:
            best = [value, 1]
        if best is not None:
            best[0] += 1
            best[1] = best[1] * 2
        if best is not None and 3 in best:
            break
    return (0, 0) if best is None else (best[0], best[1])


@pytest.mark.parametrize(
    "function",
    [
        grown,
        last_ones_popped,
        values_of_a_dict,
        got_before_it_is_read,
        in_a_deque,
        none_inside_of_what_may_be_none,
        carried_links,
        changed_where_it_is,
    ],
)
def test_none_stands_beside_what_grows(function) -> None:
    check(function, *ROWS)


def summed(i, j):
    place = [None, 1, 2]
    place[i] = 3
    place[2] = j.item()
    return sum(place)


def stacked(i, j):
    place = [None, T([1.0]), T([2.0])]
    place[i] = T([3.0])
    place[j] = T([4.0])
    return torch.stack(place)


def joined(i, j):
    held = [T([1.0])] if i > 0 else [None]
    if j > 0:
        held.append(T([2.0]))
    return torch.cat(held)


@pytest.mark.parametrize("function", [summed, stacked])
def test_what_eager_takes_no_none_for_raises(function) -> None:
    check(function, *PAIRS)


def test_what_eager_takes_no_none_for_raises_of_a_list_that_grows() -> None:
    check(joined, *sorted(PAIRS, key=lambda pair: pair[0].item() == 0))


def ordered(x):
    out = [None if value > 5 else value.item() for value in x if value < 9]
    return max(out)


def written_through_another_name(i, j):
    place = [None] * 3
    row = T([1.0, 2.0])
    place[i] = row
    chosen = place[j]
    if chosen is not None:
        chosen.add_(10)
    return row * 1


def as_a_key(x):
    table = {None: 0}
    for value in x.tolist():
        table[value] = 1
    return len(table)


@pytest.mark.parametrize(
    ("function", "case", "said"),
    [
        (ordered, ROWS[0], "some elements may be None"),
        (changed_by_another_name, PAIRS[0], "is changed in place"),
        (written_through_another_name, PAIRS[0], "may have a second name"),
        (as_a_key, ROWS[0], "None among them"),
    ],
)
def test_what_has_no_form_is_refused_at_its_line(function, case, said) -> None:
    with pytest.raises(ExportFailed, match=said) as caught:
        check(function, case)
    assert caught.value.where is not None


class Kept(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.slots = [None] * 3
        self.table = {}
        self.calls = 0

    def forward(self, i, v):
        self.calls += 1
        old = self.slots[i]
        was = self.table.get(i.item())
        if old is not None:
            last, count = old
            if v < -1:
                raise ValueError("negative")
            self.slots[i] = (v, count + 1) if v > 0 else None
        else:
            last, count = v * 0, self.calls
            self.slots[i] = (v, 0)
        self.table[i.item()] = v.item() if v > 0 else None
        empty = sum(each is None for each in self.table.values())
        return last, count, -1.0 if was is None else was, empty, len(self.table)


def test_none_is_kept_from_call_to_call() -> None:
    steps = ((0, 1.0), (1, 2.0), (0, 3.0), (2, -1.0), (1, -1.0), (0, 4.0), (2, 1.0), (0, -1.0), (0, 2.0))
    eager = Kept()
    spec = as_spec(Kept(), args=(T(0), T(1.0)))
    program = export(canonicalize(spec)).entries[0].program.module()
    for i, v in steps:
        want = eager(T(i), T(v))
        got = program(T(i), T(v))
        assert [float(each) for each in want] == [float(each) for each in got], (i, v)


@dataclass(frozen=True)
class Span:
    start: int
    end: int | None = None


def closed_spans(x):
    spans = [None] * 4
    for at, value in enumerate(x.tolist()):
        span = spans[value]
        if span is None:
            spans[value] = Span(at)
        elif span.end is None:
            spans[value] = Span(span.start, at)
    return sum(span.end - span.start for span in spans if span is not None and span.end is not None)


def test_objects_hold_none() -> None:
    check(closed_spans, *(row for row in ROWS if row[0].min() >= -1))
