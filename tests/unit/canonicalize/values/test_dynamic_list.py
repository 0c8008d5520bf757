"""The buffers of lists that grow, by themselves."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.rewrite import staging
from aotpipe.canonicalize.values import dynamic_list, host_scalars
from aotpipe.canonicalize.values.abstract_values import Incompatible
from aotpipe.canonicalize.values.dynamic_list import DynamicList, Kind
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check


def rows(*starts: float) -> list[torch.Tensor]:
    return [torch.tensor([start, start + 0.5]) for start in starts]


def made(items: list[object], capacity: int) -> DynamicList:
    abstract = dynamic_list.abstract_list([items, [*items, items[0]]], capacity)
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
        dynamic_list.abstract_list([items, items[:1]], None)


def test_lists_of_one_length_keep_their_form() -> None:
    assert dynamic_list.abstract_list([rows(1, 2), rows(3, 4)], None) is None
    assert dynamic_list.abstract_list([rows(1), torch.ones(2)], None) is None


def test_kinds_are_equal_by_what_they_hold() -> None:
    with started(Trace()):
        one, other = made(rows(1), capacity=4), made(rows(2), capacity=4)
        assert one.kind == other.kind
        assert pytree.tree_structure([one]) == pytree.tree_structure([other])
        assert one.kind != made(rows(1), capacity=5).kind
        assert isinstance(one.kind, Kind)


def test_it_is_no_element() -> None:
    with staging.staging(torch.nn.Identity()):
        found = made(rows(1), capacity=2)
        for use in (lambda: found + 1, lambda: list(found), lambda: found == 1, lambda: torch.exp(found)):
            with pytest.raises(ExportFailed):
                use()


def test_a_list_of_texts_that_a_tensor_chooses_gets_longer() -> None:
    def model(x):
        values = dict(zip(("low", "mid", "high"), x.tolist(), strict=True))
        active = {name for name, value in values.items() if value > 0}
        names = [name for name, value in values.items() if value > 1]
        return len(active), "mid" in active, names.count("high"), "low" in names, names.count("other")

    check(model, *((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [-1.0, 4.0, -1.0], [0.0, 0.0, 2.0])))


@pytest.mark.parametrize(
    ("elements", "hint"),
    [
        ([[1], [1, 2]], "put pairs into one list"),
        ([(1, [2]), (1, [2, 3])], "put pairs into one list"),
        ([(1, 2), [1, 2]], "give its elements one form"),
        ([{"a": 1}, {"b": 1}], "give its elements one form"),
    ],
)
def test_elements_of_other_lengths_are_refused_with_what_to_do(elements, hint):
    with pytest.raises(dynamic_list.OtherStructures) as caught:
        dynamic_list.abstract_of_segments([elements], 4)
    assert hint in caught.value.hint
