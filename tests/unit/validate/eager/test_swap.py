"""Swapped contents: own state, the user's put back, shared dicts and closures followed."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch

from aotpipe.validate.eager.swap import Contents


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.zeros(()))
        self.plain = torch.zeros(1)
        self.seen: list[Any] = [torch.zeros(1)]
        self.calls = 0

    def forward(self) -> tuple[float, float, float, int, int]:
        self.count += 1
        self.plain.add_(1)
        self.seen[0] += 1
        self.seen.append(self.calls)
        self.calls += 1
        self.last = self.calls
        return (self.count.item(), self.plain.item(), self.seen[0].item(), len(self.seen), self.calls)


def test_state_continues_while_the_users_is_untouched() -> None:
    model = _Model()
    contents = Contents([model], parameters=None, others=_same)
    for number in (1, 2):
        with contents:
            assert model() == (number, number, number, number + 1, number)
    assert (model.count, model.plain, model.seen, model.calls) == (0, 0, [torch.zeros(1)], 0)
    assert not hasattr(model, "last")


def test_reset_works_outside_and_inside() -> None:
    model = _Model()
    contents = Contents([model], parameters=None, others=_same)
    with contents:
        model()
    contents.reset()
    with contents:
        assert model()[0] == 1
        contents.reset()
        assert model()[0] == 1
        assert model()[0] == 2
    with contents:
        assert model()[0] == 3


def test_two_contents_do_not_meet() -> None:
    model = _Model()
    one, two = (Contents([model], parameters=None, others=_same) for _ in range(2))
    with one:
        model()
    with two:
        assert model()[0] == 1
    with one:
        assert model()[0] == 2


def test_the_users_contents_come_back_after_an_error() -> None:
    model = _Model()

    def fail() -> None:
        with Contents([model], parameters=None, others=_same):
            model()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert model.count == 0


def test_parameters_are_changed_once_and_tied_ones_stay_tied() -> None:
    model = _Model()
    model.tied = model.weight
    changes = []

    def double(tensor: torch.Tensor) -> torch.Tensor:
        changes.append(tensor)
        return tensor.double() * 2

    contents = Contents([model], parameters=double, others=_same)
    for _ in range(2):
        with contents:
            assert model.weight.tolist() == [2, 2]
            assert model.weight.dtype == torch.float64
            assert model.tied is model.weight
        contents.reset()
    assert len(changes) == 1
    assert model.weight.dtype == torch.float32


def test_tensors_in_containers_are_changed_too() -> None:
    model = _Model()
    model.table = {"a": (torch.ones(1),)}
    with Contents([model], parameters=None, others=torch.Tensor.double):
        assert model.table["a"][0].dtype == model.count.dtype == model.plain.dtype == torch.float64
    assert model.table["a"][0].dtype == torch.float32


def test_a_closure_over_the_model_and_a_view_of_its_dict_see_the_contents() -> None:
    model = _Model()
    view = torch.nn.Module()
    object.__setattr__(view, "__dict__", model.__dict__)
    contents = Contents([view, model], parameters=None, others=_same)
    call = model.forward
    with contents:
        call()
        assert view.count == 1
    assert model.count == 0


def test_the_weight_of_an_old_weight_norm_is_swapped() -> None:
    model = torch.nn.Module()
    model.source = torch.nn.Parameter(torch.ones(2))
    model.weight = model.source * 2
    with Contents([model], parameters=torch.Tensor.double, others=torch.Tensor.double):
        assert model.weight.dtype == torch.float64
    assert model.weight.dtype == torch.float32


def test_a_parameter_that_a_call_writes_is_the_users_again() -> None:
    model = _Model()
    contents = Contents([model], parameters=None, others=_same, written=[model.weight])
    with contents:
        model.weight.data.div_(2)
        assert model.weight.tolist() == [0.5, 0.5]
    contents.reset()
    with contents:
        assert model.weight.tolist() == [1, 1]
    assert model.weight.tolist() == [1, 1]


class _Statistics:
    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(1)
        self.rows: list[int] = []


def test_plain_objects_and_windows_are_initial_again() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.statistics = {"all": _Statistics()}
            self.window = deque([0, 0], maxlen=2)

        def forward(self) -> tuple[int, float, int, list[int]]:
            found = self.statistics["all"]
            found.count += 1
            found.mean += 1
            found.rows.append(1)
            self.window.append(found.count)
            return found.count, found.mean.item(), len(found.rows), list(self.window)

    model = Model()
    contents = Contents([model], parameters=None, others=_same)
    for _ in range(2):
        with contents:
            assert [model(), model(), model()] == [(1, 1, 1, [0, 1]), (2, 2, 2, [1, 2]), (3, 3, 3, [2, 3])]
        contents.reset()
    assert model.statistics["all"].count == 0
    assert not model.statistics["all"].mean.any()
    assert model.window == deque([0, 0])
