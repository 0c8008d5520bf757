"""Elements of lists that grow, in buffers of one kind."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.values import element_kinds, host_scalars
from aotpipe.canonicalize.values.abstract_values import Incompatible
from aotpipe.canonicalize.values.dynamic_list import DynamicList
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check


def rows(*starts: float) -> list[torch.Tensor]:
    return [torch.tensor([start, start + 0.5]) for start in starts]


def made(items: list[object], capacity: int) -> DynamicList:
    abstract = element_kinds.abstract_list([items, [*items, items[0]]], capacity)
    assert abstract is not None
    assert abstract.fitted is not None
    (found,) = abstract.fitted(items)
    return found


def held(found: DynamicList) -> list[list[float]]:
    return found.buffers[0][: int(found.count)].tolist()


def test_elements_are_filled_in_from_the_front() -> None:
    with started(Trace()):
        found = made(rows(1, 2), capacity=4)
        assert held(found) == [[1, 1.5], [2, 2.5]]
        assert found.buffers[0].shape == (4, 2)


def test_what_is_appended_comes_behind_the_last() -> None:
    with started(Trace()):
        first = made(rows(1, 2), capacity=4)
        assert held(made([first, *rows(7)], capacity=4)) == [[1, 1.5], [2, 2.5], [7, 7.5]]
        assert held(made([*rows(9), first, *rows(7)], capacity=8)) == [[9, 9.5], [1, 1.5], [2, 2.5], [7, 7.5]]
        assert held(made([first, first], capacity=8)) == [[1, 1.5], [2, 2.5], [1, 1.5], [2, 2.5]]


def test_room_for_one_more_than_there_can_be_is_taken_back() -> None:
    with started(Trace()):
        assert held(made([made(rows(1, 2), capacity=5)], capacity=4)) == [[1, 1.5], [2, 2.5]]


def appended_in_a_branch_of_a_loop(x, going):
    seen = []
    i = 0
    while (going == 1) and i < 4:
        i += 1
        if x.sum() > 3:
            x = x * 0.5
            seen.append(x)
            if x.max() < 1:
                break
        x = x + 1
    return x, len(seen), sum(seen, x)


def test_a_list_that_grows_in_a_branch_of_a_loop() -> None:
    vectors = ([1.0, 2.0], [-1.0, -2.0], [5.0, 9.0], [40.0, 9.0])
    check(
        appended_in_a_branch_of_a_loop, *((torch.tensor(v), torch.tensor(k)) for v in vectors for k in (1, 0))
    )


def test_an_element_of_several_leaves_has_a_buffer_each() -> None:
    with started(Trace()):
        found = made([(torch.ones(2), 3, "kept"), (torch.zeros(2), 4, "kept")], capacity=2)
        assert [each.shape for each in found.buffers] == [(2, 2), (2,)]
        tensor, number, text = found.element(lambda buffer: buffer[1])
        assert (tensor.tolist(), int(number), text) == ([0, 0], 4, "kept")
        assert host_scalars.is_host_scalar(number)


def test_dtypes_are_promoted() -> None:
    with started(Trace()):
        assert made([torch.tensor(1), torch.tensor(0.5)], capacity=2).buffers[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([torch.ones(2), torch.ones(3)], "shapes"),
        ([torch.ones(2), (torch.ones(2), 1)], "different structures"),
        (["a", 1], "an element that is 'a' on one path and 1 on another"),
    ],
)
def test_elements_that_differ_have_no_form(items: list[object], said: str) -> None:
    with pytest.raises(Incompatible, match=said):
        element_kinds.abstract_list([items, items[:1]], None)


def test_lists_of_one_length_keep_their_form() -> None:
    assert element_kinds.abstract_list([rows(1, 2), rows(3, 4)], None) is None
    assert element_kinds.abstract_list([rows(1), torch.ones(2)], None) is None


@pytest.mark.parametrize(
    ("elements", "hint"),
    [
        ([(1,), (1, 2)], "put pairs into one list"),
        ([(1, (2,)), (1, (2, 3))], "put pairs into one list"),
        ([(1, 2), [1, 2]], "give its elements one form"),
        ([{"a": 1}, {"b": 1}], "give its elements one form"),
    ],
)
def test_elements_of_other_lengths_are_refused_with_what_to_do(elements, hint):
    with pytest.raises(element_kinds.OtherStructures) as caught:
        element_kinds.abstract_of_segments([elements], 4)
    assert hint in caught.value.hint


def test_lists_of_other_lengths_are_rows_of_buffers() -> None:
    """They were refused: `holds elements of different structures`."""
    with started(Trace()):
        first = made([(1, [2.0]), (3, [])], capacity=3)
        assert [tuple(each.shape) for each in first.buffers] == [(3,), (3, 1), (3,)]
        found = made([first, (5, [6.0, 7.0, 8.0])], capacity=4)
        keys, values, counts = found.buffers
        assert (keys.tolist(), counts.tolist()) == ([1, 3, 5, 0], [1, 0, 3, 0])
        assert values.tolist() == [[2, 0, 0], [0, 0, 0], [6, 7, 8], [0, 0, 0]]
        deeper = made([[[[1], [2, 3]]], [[]], [[[4]], [[5], [6], [7]]]], capacity=3)
        assert deeper.buffers[0].shape == (3, 2, 3, 2)
        (last,) = deeper.element(lambda buffer: buffer[2])
        assert int(last.count) == 2
        assert last.buffers[0].tolist() == [[[4, 0], [0, 0], [0, 0]], [[5, 0], [6, 0], [7, 0]]]


def grouped(x):
    groups = defaultdict(list)
    for i, k in enumerate(x.tolist()):
        groups[k].append(i)
    return len(groups), max(len(each) for each in groups.values()), sum(groups[1])


def by_setdefault(x):
    groups = {}
    for i, k in enumerate(x.tolist()):
        groups.setdefault(k, []).append((i, k * 0.5))
    best = 0
    for k, held in groups.items():
        for i, half in held:
            best = max(best, k + i * half)
    return best, len(groups)


def stacked(x):
    groups = defaultdict(list)
    for k, row in zip(x, torch.outer(x, torch.arange(3)), strict=True):
        groups[int(k)].append(row)
    return torch.stack(groups[1]), len(groups[7]), len(groups)


def in_a_loop(x):
    groups = {}
    i = 0
    while i < len(x) and x[i] != 3:
        if x[i].item() not in groups:
            groups[x[i].item()] = []
        groups[x[i].item()].append(i)
        i += 1
    return len(groups), next(sum(held) for held in groups.values())


def taken_out(x):
    groups = defaultdict(list)
    got = 0
    for i, k in enumerate(x.tolist()):
        groups[k].append(i)
        if len(groups[k]) > 1:
            got = got * 10 + groups[k].pop(0)
    del groups[x[0].item()]
    return got, len(groups), sum(len(held) for held in groups.values())


def missing(x):
    groups = {}
    for i, k in enumerate(x.tolist()):
        groups.setdefault(k, []).append(i)
    groups[1][1] += 10
    return groups[1][-1]


CASES = tuple(
    (torch.tensor(each),) for each in ([1, 2, 1, 3, 2], [1, 1, 1, 1, 1], [5, 4, 3, 2, 1], [3, 3, 1, 2, 1])
)


@pytest.mark.parametrize(
    "model", sweep([grouped, by_setdefault, stacked, in_a_loop, taken_out, missing], quick=4)
)
def test_lists_by_a_key_that_a_tensor_decides_grow(model):
    check(model, *CASES)


def by_a_second_name(x):
    groups = defaultdict(list)
    for i, k in enumerate(x.tolist()):
        row = groups[k]
        row.append(i)
    return len(groups[1])


def of_other_forms(x):
    groups = defaultdict(list)
    for k in x.tolist():
        groups[k].append(x if k > 2 else x[:2])
    return len(groups)


@pytest.mark.parametrize("model", [by_a_second_name, of_other_forms])
def test_a_list_that_would_lose_an_element_is_refused(model):
    with pytest.raises(ExportFailed) as caught:
        export(canonicalize(as_spec(model, args=CASES[0])))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_element_kinds.py")


def until(x, step):
    groups = defaultdict(list)
    while x < 1000:
        groups[int(x) % 2].append(x)
        x = x + step
    return len(groups[0]), groups[0][-1] if groups[0] else x * 0 - 1


def test_no_element_beyond_the_assumed_room_is_lost():
    example = (torch.tensor(990.0), torch.tensor(1.0))
    program = export(canonicalize(as_spec(until, args=example))).entries[0].program.module()
    fits = (torch.tensor(488.0), torch.tensor(2.0))  # 256 in one list
    assert [float(each) for each in program(*fits)] == [float(each) for each in until(*fits)] == [256, 998]
    for start in (486.0, 100.0):
        with pytest.raises(Exception, match="has room for 256 elements"):
            program(torch.tensor(start), torch.tensor(2.0))
