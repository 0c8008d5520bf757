"""Containers in a list or a dict of which a tensor chooses one, against eager: no change of one is lost."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check

CALLS = tuple(
    (torch.tensor(values),)
    for values in ([1.0, -0.5, 0.25, 2.0], [-1.0, -0.5, -0.25, -2.0], [-1.0, 3.5, 0.25, 2.0])
)


def appended(x):
    groups = [[] for _ in range(3)]
    for value in x:
        groups[int(value.abs()) % 3].append(value)
    return [torch.tensor(0.0) + sum(group) for group in groups]


def appended_by_another_name(x):
    first = []
    groups = [first, []]
    for value in x:
        groups[int(value > 0)].extend([value, value])
    return torch.tensor(len(first))


def appended_in_a_dict(x):
    groups = {0: [], 1: []}
    for value in x:
        groups[int(value > 0)].append(value)
    return [torch.tensor(len(group)) for group in groups.values()]


def assigned(x):
    table = [[x[0], x[1]], [x[2], x[3]]]
    table[int(x[0] > 0)][0] = x[1] * 3
    return table


def assigned_where_a_branch_is(x):
    table = [[x[0], x[1]], [x[2], x[3]]]
    if x[1] > 0:
        table[int(x[0] > 0)][1] = x[1] * 3
    return table


def counted_in_a_table(x):
    table = [[0] * 3 for _ in range(3)]
    for k in range(2):
        table[int(x[k].abs()) % 3][int(x[k + 1].abs()) % 3] += 1
    return torch.tensor(table)


def counted_in_dicts(x):
    counts = [{"n": x[0]}, {"n": x[1]}]
    for value in x:
        counts[int(value > 0)]["n"] = value
    return [count["n"] for count in counts]


def in_tuples(x):
    groups = (([], 1), ([], 2))
    for value in x:
        groups[int(value > 0)][0].append(value)
    return [torch.tensor(len(group)) for group, _ in groups]


def popped(x):
    groups = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    value = groups[int(x[0] > 0)].pop()
    del groups[int(x[1] > 0)][0]
    return torch.tensor(0.0) + value, [torch.tensor(len(group)) for group in groups]


def rows_of_a_growing_list(x):
    rows = []
    for value in x:
        if value > 0:
            rows.append([value])
        elif rows:
            rows[-1][0] = value
    total = torch.tensor(0.0)
    for row in rows:
        total = total + row[0]
    return total


def updated(x):
    first = {"n": x[0]}
    groups = [first, {"n": x[1]}]
    groups[int(x[2] > 0)] |= {"n": x[3]}
    return first["n"], groups[1]["n"]


def extended(x):
    first = [x[0]]
    groups = {0: first, 1: [x[1]]}
    groups[int(x[2] > 0)] += [x[3], x[3]]
    return torch.tensor(len(first)), torch.tensor(len(groups[1]))


def read_by_a_name(x):
    table = [[x[0], x[1]], [x[2], x[3]]]
    row = table[int(x[0] > 0)]
    return row[0] + row[1], len(row)


@pytest.mark.parametrize(
    "function",
    sweep(
        [
            appended,
            appended_by_another_name,
            appended_in_a_dict,
            assigned,
            assigned_where_a_branch_is,
            counted_in_a_table,
            counted_in_dicts,
            in_tuples,
            popped,
            rows_of_a_growing_list,
            updated,
            extended,
            read_by_a_name,
        ],
        quick=9,
    ),
)
def test_the_chosen_one_is_changed(function) -> None:
    check(function, *CALLS)


def changed_by_a_name(x):
    groups = [[x[0]], [x[1]]]
    chosen = groups[int(x[0] > 0)]
    chosen.append(x[2])
    return torch.tensor(len(groups[0]))


def changed_behind_a_name(x):
    table = [[x[0], x[1]], [x[2], x[3]]]
    row = table[int(x[0] > 0)]
    table[0][0] = x[1]
    return row[0]


def changed_in_branches(x):
    rows = [[0, 1], [1, 2], [2, 3]]
    row = rows[int(x[0].abs())]
    row[0] += 1
    if x[2] > 0:
        row[1] = row[0]
    return torch.tensor([n for row in rows for n in row])


def changed_in_a_loop_on_a_tensor(x):
    rows, n = [[0, 1], [1, 2]], 0
    while n < 5 and x[n % 4] < 3:
        row = rows[n % 2]
        row[0] += n
        if x[0] > 0:
            row[1] += row[0]
        n += 1
    return torch.tensor([n for row in rows for n in row])


def changed_before_it_raises(x):
    table = {0: {"n": 0}, 1: {"n": 5}}
    row = table[int(x[0] > 0)]
    row["n"] += 1
    try:
        if x[1] > 0:
            raise ValueError("positive")  # noqa: TRY301
        row["n"] *= 3
    except ValueError:
        row["n"] -= 10
    return torch.tensor([table[0]["n"], table[1]["n"]])


NAMED = (
    *(changed_by_a_name, changed_behind_a_name, changed_in_branches),
    *(changed_in_a_loop_on_a_tensor, changed_before_it_raises),
)


@pytest.mark.parametrize("function", NAMED)
def test_the_chosen_one_is_changed_under_its_name(function) -> None:
    check(function, *CALLS)


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = [[0, 0], [1, 1]]

    def forward(self, x):
        row = self.rows[int(x[0])]
        row[0] += 1
        if x[1] > 0:
            row[1] = row[0]
        return tuple(map(tuple, self.rows))


def test_what_a_model_keeps_is_changed_under_a_name() -> None:
    """A call that raises comes between; `-1` counts from the last row."""
    calls = [(0, -1), (1, 1), (1, -1), (5, 1), (-1, -1), (0, 1), (1, -1)]
    model = Rows()
    tensors = [torch.tensor(each, dtype=torch.float32) for each in calls]
    program = export(canonicalize(as_spec(Rows(), args=(tensors[0],)))).entries[0].program.module()
    for call in tensors:
        try:
            wanted = tree_leaves(model(call))
        except IndexError:
            with pytest.raises(RuntimeError, match="IndexError"):
                program(call)
            continue
        assert [int(each) for each in tree_leaves(program(call))] == wanted


def changed_where_get_finds_it(x):
    groups = {0: [], 1: []}
    groups.get(int(x[0] > 0)).append(x[1])
    return torch.tensor(len(groups[0]))


def changed_after_another_took_its_place(x):
    first = [x[0]]
    groups = [first, [x[1]]]
    groups[int(x[2] > 0)] = [x[3]]
    first[0] = x[1]
    return groups[0][0]


def changed_after_it_took_a_place(x):
    groups, new = [[x[0]], [x[1]]], [x[3]]
    groups[int(x[2] > 0)] = new
    new[0] = x[1]
    return groups[0][0]


def rows_above(x):
    rows = []
    for value in x:
        if value > 0:
            rows.append([value, value])  # noqa: PERF401
    return rows


def changed_in_the_list_after_it_got_a_name(x):
    rows = rows_above(x)
    row = rows[0]
    rows[0][0] = row[0] + 5
    return row[0]


def changed_in_the_list_while_a_loop_has_it(x):
    rows = rows_above(x)
    total = x[0] * 0
    for row in rows:
        rows[0][0] = rows[0][0] + 5
        total = total + row[0]
    return total


def changed_by_the_name_of_the_greatest(x):
    rows = rows_above(x)
    best = max(rows, key=lambda row: row[0])
    best[0] = best[0] + 10
    return sum(row[0] for row in rows)


def changed_in_the_list_of_the_greatest(x):
    rows = rows_above(x)
    best = max(rows, key=lambda row: row[0])
    rows[0][0] = rows[0][0] + 10
    return best[0]


def changed_after_it_is_put_into_a_dict(x):
    table, row = {}, [0, 0]
    table[int(x[0])] = row
    row[0] = 5
    return table[int(x[0])][0]


def changed_in_a_dict_under_two_keys(x):
    table, row = {}, [0, 0]
    table[int(x[0])] = row
    table[int(x[1])] = row
    row = None
    table[int(x[0])][0] = 5
    return table[int(x[1])][0]


def changed_in_a_dict_that_another_key_has_too(x):
    table = {int(value): [0, 0] for value in x}
    table[int(x[0])] = table[int(x[1])]
    table[int(x[0])][0] = 50
    return table[int(x[1])][0]


def changed_in_a_dict_after_get(x):
    table = {}
    for value in x:
        table[int(value)] = [0, 0]
    row = table.get(int(x[1]))
    table[int(x[0])][1] += 1
    return row[1]


def changed_in_a_dict_that_holds_what_a_list_holds(x):
    table, log = {}, []
    for value in x:
        row = [value, 0]
        table[int(value)] = row
        log.append(row)
    for value in x:
        table[int(value)][1] += 1
    return sum(count for _, count in log)


def changed_in_a_loop(x):
    rows = []
    for value in x:
        if value > 0:
            rows.append([value, value])  # noqa: PERF401
    for row in rows:
        row[0] = row[0] + 1
    return rows[0][0]


@pytest.mark.parametrize(
    "function",
    [
        changed_where_get_finds_it,
        changed_after_another_took_its_place,
        changed_after_it_took_a_place,
        changed_in_a_loop,
        changed_in_the_list_after_it_got_a_name,
        changed_in_the_list_while_a_loop_has_it,
        changed_by_the_name_of_the_greatest,
        changed_in_the_list_of_the_greatest,
        changed_after_it_is_put_into_a_dict,
        changed_in_a_dict_under_two_keys,
        changed_in_a_dict_that_another_key_has_too,
        changed_in_a_dict_after_get,
        changed_in_a_dict_that_holds_what_a_list_holds,
    ],
)
def test_a_second_name_is_refused(function) -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    with pytest.raises(ExportFailed, match="is changed in place") as raised:
        export(canonicalize(as_spec(Model(), args=CALLS[0])))
    assert raised.value.where is not None


def got(x):
    table = {0: 1.0, 3: 2.0, "k": 4.0}
    absent = table.get(int(x[1] * 2))
    return (
        torch.tensor(0.0) + table.get(int(x[0] > 0), -1.0),
        torch.tensor(-2.0) if absent is None else torch.tensor(absent),
    )


def compared(x):
    number, flag, zero = int(x[0]), bool(x[0] > 0), 0
    found = (type(number) is int, type(flag) is bool, flag is True, number is not zero)
    return [torch.tensor(each) for each in found]


@pytest.mark.parametrize("function", [got, compared])
def test_a_number_is_one_of_pythons(function) -> None:
    check(function, *CALLS)


class Counting(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.scale + self.calls


class ByName(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.ModuleList([Counting(1.0), Counting(2.0)])
        self.offsets = torch.nn.ParameterList([torch.zeros(4), torch.ones(4)])

    def forward(self, x):
        expert = self.experts[int(x[0] > 0)]
        expert.calls += 1
        found = expert(x) + expert.forward(x) * expert.scale
        if expert is self.experts[0] and isinstance(expert, Counting) and expert is not None:
            found = found * 3
        return found + self.offsets[int(x[1] > 0)], expert.calls, [each.calls for each in self.experts]


def test_a_chosen_module_has_its_attributes_and_its_state() -> None:
    exported = export(canonicalize(as_spec(ByName().eval(), args=CALLS[0])))
    module, model = exported.entries[0].program.module(), ByName().eval()
    for call in (*CALLS, *CALLS):
        for mine, other in zip(*map(tree_leaves, (model(*call), module(*call))), strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), other, check_dtype=False)


def changed_after_another_was_taken(x):
    rows = [[value, value] for value in x if value > -1]
    last = rows.pop()
    rows[0][0] = rows[0][0] + 10
    return last[0] + rows[0][0]


def changed_after_a_loop(x):
    rows = [[value, value] for value in x if value > -1]
    total = sum(row[0] for row in rows)
    rows[0][0] = rows[0][0] + 10
    return total + rows[0][0]


def changed_where_a_dict_has_it(x):
    table = {}
    for place, value in enumerate(x.to(torch.int64).tolist()):
        if value in table:
            table[value][0] += 1
            table[value][1] = place
        else:
            table[value] = [1, None]
    counts = sum(count for count, _ in table.values())
    return len(table), counts, sum(0 if last is None else last for _, last in table.values())


@pytest.mark.parametrize(
    "function", [changed_after_another_was_taken, changed_after_a_loop, changed_where_a_dict_has_it]
)
def test_an_element_that_has_no_other_name_is_changed_where_it_is(function) -> None:
    check(function, *(call for call in CALLS if call[0][0] > 0 or call[0][1] > 0))
