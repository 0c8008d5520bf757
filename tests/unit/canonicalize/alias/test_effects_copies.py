"""Lists, dicts and objects that a list which grows has copies of, and that are changed by another name."""

from __future__ import annotations

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(each),) for each in ([1, 2], [0, 0], [3, -2], [2, 1]))


def assigned_in_a_branch(x):
    runs, row = [], [0]
    if x[0] > 0:
        runs = [*runs, row]
    row.append(1)
    return sum(len(each) for each in runs), len(runs)


def appended_in_a_branch(x):
    runs, row = [], [0]
    if x[0] > 0:
        runs.append(row)
    row.append(1)
    return sum(len(each) for each in runs), len(runs)


def appended_twice(x):
    runs, row = [], [0]
    if x[0] > 0:
        runs.append(row)
    if x[1] > 0:
        runs.append(row)
    row.append(1)
    return sum(len(each) for each in runs), len(row)


def in_a_tuple(x):
    runs, row = [], [0]
    if x[0] > 0:
        runs.append((row, 1))
    row.append(1)
    return sum(len(each) for each, _ in runs), len(runs)


def flushed(x):
    """The list of rows gets the row that ends, and the next one begins."""
    runs, row, i = [], [0], 0
    while i < x[0]:
        row.append(i)
        if i % 2 == 0:
            runs.append(row)
            row = [7]
        i += 1
    return sum(sum(each) for each in runs), len(runs), len(row)


def flushed_row_by_row(x):
    runs, row = [], []
    for v in x.tolist():
        if row and v < row[-1]:
            runs.append(row)
            row = []
        row.append(v)
    runs.append(row)
    return len(runs), len(runs[0]), sum(max(each) for each in runs)


@pytest.mark.parametrize(
    "model",
    [assigned_in_a_branch, appended_in_a_branch, appended_twice, in_a_tuple, flushed, flushed_row_by_row],
    ids=lambda model: model.__name__,
)
def test_a_change_by_the_other_name_is_seen(model):
    """Some lost it, and some were refused: `object of type 'Same' has no len()`."""
    check(model, *CASES)


def put_into_a_dict_in_a_branch(x):
    table, row = {}, [0]
    if x[0] > 0:
        table[int(x[0])] = row
    row.append(1)
    return sum(len(each) for each in table.values()), len(table)


def put_into_a_dict_in_a_loop(x):
    table, row, i = {}, [0], 0
    while i < x[0]:
        row[0] += i + 1
        table[int(x[1]) * i] = row
        i += 1
    return sum(sum(each) for each in table.values()), len(table)


def appended_in_a_loop(x):
    runs, row, i = [], [0], 0
    while i < x[0]:
        row.append(i)
        runs = [*runs, row]
        i += 1
    return sum(len(each) for each in runs), len(runs)


def held_before_a_loop(x):
    row, i = [0], 0
    runs = [row]
    while i < x[0]:
        row.append(1)
        runs.append([5])
        i += 1
    return sum(len(each) for each in runs), len(row)


def grown(x):
    runs = []
    if x[0] > 0:
        runs.append([3])
    runs.append([2])
    return runs


def copied_list(x):
    runs = grown(x)
    other = list(runs)
    runs[0].append(3)
    return sum(len(each) for each in other)


def sorted_list(x):
    runs = grown(x)
    other = sorted(runs)
    other[0].append(3)
    return sum(len(each) for each in runs)


def longer_list(x):
    runs = grown(x)
    other = [*runs, [1]]
    runs[0].append(4)
    return sum(len(each) for each in other)


def extended_list(x):
    runs, other = grown(x), [[0]]
    other.extend(runs)
    runs[0].append(4)
    return sum(len(each) for each in other)


def copied_dict(x):
    table = {v: [v] for v in x.tolist()}
    other = dict(table)
    table[x[0].item()].append(3)
    return sum(len(each) for each in other.values())


def list_of_values(x):
    table = {v: [v] for v in x.tolist()}
    other = list(table.values())
    table[x[0].item()].append(3)
    return sum(len(each) for each in other)


class Counted:
    def __init__(self, n):
        self.n = n


def copied_list_of_objects(x):
    runs = []
    if x[0] > 0:
        runs.append(Counted(1))
    runs.append(Counted(2))
    other = list(runs)
    runs[0].n += 5
    return sum(each.n for each in other)


def element_with_another_name(x):
    runs, last = [], [2]
    if x[0] > 0:
        runs.append([3])
    runs.append(last)
    runs[0].append(1)
    last.append(4)
    return sum(len(each) for each in runs), len(last)


def set_with_another_name(x):
    runs, last = grown(x), [2]
    runs[0] = last
    last.append(4)
    return sum(len(each) for each in runs)


def inserted_with_another_name(x):
    runs, last = [], [2]
    if x[0] > 0:
        runs.append([3])
    runs.insert(int(x[1]), last)
    last.append(4)
    return sum(len(each) for each in runs)


def inserted_into_a_known_list(x):
    runs, last = [[3], [1]], [2]
    runs.insert(int(x[1]), last)
    last.append(4)
    return sum(len(each) for each in runs)


@pytest.mark.parametrize(
    "model",
    [
        inserted_into_a_known_list,
        put_into_a_dict_in_a_branch,
        put_into_a_dict_in_a_loop,
        appended_in_a_loop,
        held_before_a_loop,
        copied_list,
        sorted_list,
        longer_list,
        extended_list,
        copied_dict,
        list_of_values,
        copied_list_of_objects,
        element_with_another_name,
        set_with_another_name,
        inserted_with_another_name,
    ],
    ids=lambda model: model.__name__,
)
def test_a_change_that_a_copy_would_lose_is_refused(model):
    """It was lost, with no word: eager has one list under both names."""
    with pytest.raises(ExportFailed) as caught:
        check(model, *CASES)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_effects_copies.py")
    assert "copy" in (caught.value.hint or "")


def read_from_a_copy(x):
    runs = grown(x)
    longest = max(len(each) for each in sorted(runs))
    runs[0].append(longest)
    return sum(len(each) for each in runs), runs[0][-1]


def test_what_is_no_more_held_is_no_second_name():
    check(read_from_a_copy, *CASES)


def joined_by_two_branches(x):
    a = [0, 1]
    b = a
    if x[0] > 1:
        a = list(b)
    if x.sum() > 3:
        b = [5, a[1] + 1]
    b[1] = b[0] + 7
    return a[0] + a[1] * 2


def test_what_an_earlier_branch_joined_may_be_what_a_later_one_does():
    """The second branch knew no other name of the list that the first one had joined with a copy."""
    with pytest.raises(ExportFailed, match="whether another variable is the same one"):
        check(joined_by_two_branches, *CASES)


class Joined(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = [0, 1], [0, 1]

    def forward(self, x):
        self.a = [0, 1]
        self.b = self.a
        if x[0] > 1:
            self.a = list(self.b)
        if x.sum() > 3:
            self.b = [5, self.a[1] + 1]
        self.b[1] = self.b[0] + 7
        found = self.a[0] + self.a[1] * 2
        self.a, self.b = [0, 1], [0, 1]
        return found


def test_so_may_attributes():
    check(Joined(), *CASES)
