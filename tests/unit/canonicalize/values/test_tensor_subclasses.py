"""Subclasses of tensors in a model: what their methods and attributes do is part of the program."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.core.dims import Dim
from aotpipe.errors import ExportFailed
from tests.unit.export.models import exported


class Vector(torch.Tensor):
    """A tensor whose sum is a product."""

    def __add__(self, other):
        return torch.mul(self, other)

    def bound(self, other):
        if (self.sum() > 0).any():
            return (self + other).as_subclass(type(self))
        return self - other


class Ranged(nn.Parameter):
    """A parameter with attributes of its own."""

    def __new__(cls, data, low, counts=None):
        made = super().__new__(cls, data, False)
        made.low = low
        made.counts = counts if counts is not None else []
        return made

    def __init__(self, data, low, counts=None):
        pass

    def scaled(self):
        return torch.sigmoid(self) + self.low


class Composed(nn.Module):
    def forward(self, x):
        vector = x.as_subclass(Vector)
        bound = vector.bound(x * 2)
        assert isinstance(bound, Vector)
        assert type(bound[0]) is Vector
        row = bound[0]
        return bound.sin(), (row + 3).as_subclass(torch.Tensor) + 1, torch.stack([bound, bound])


class Kept(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.weight = Ranged(torch.randn(4), 0.25)
        self.called = forward

    def forward(self, x):
        return self.called(self.weight, x)


def test_methods_and_operators_are_the_subclass_s():
    x = torch.randn(3, 4)
    program = exported(Composed(), x, shapes={"x": {0: Dim("n", min=1, max=9)}}).entries[0].program
    for size, sign in ((3, 1), (5, -1), (1, 1)):
        x = torch.rand(size, 4) * sign
        for found, expected in zip(program.module()(x), Composed()(x), strict=True):
            torch.testing.assert_close(found, expected.as_subclass(torch.Tensor))


def test_a_parameter_keeps_its_attributes():
    model = Kept(lambda weight, x: weight.scaled() * x if x.sum() > 0 else x - weight.low)
    program = exported(model, torch.ones(4)).entries[0].program
    for x in (torch.ones(4), -torch.ones(4)):
        torch.testing.assert_close(program.module()(x), model(x))
    assert isinstance(model.weight, Ranged)


def test_the_weights_stay_inputs_of_the_program():
    model = Kept(lambda weight, x: weight.scaled() * x)
    program = exported(model, torch.ones(4)).entries[0].program
    assert list(program.state_dict) == ["weight"]
    assert not program.constants


def _assigns(weight, x):
    weight.low = weight.low + 1
    return x * weight.low


def _assigns_at_times(weight, x):
    if x.sum() > 100:
        weight.low = weight.low + 1
    return x * weight.low


def _appends(weight, x):
    weight.counts.append(1)
    return x * len(weight.counts)


@pytest.mark.parametrize("call", [_assigns, _assigns_at_times, _appends])
def test_what_a_call_changes_in_an_attribute_is_refused(call):
    model = Kept(call)
    with pytest.raises(ExportFailed):
        exported(model, torch.ones(4))


def test_a_write_to_such_a_tensor_is_one_to_its_memory():
    class Writes(nn.Module):
        def forward(self, x):
            y = x * 1
            y.as_subclass(Vector).mul_(3)
            return y

    program = exported(Writes(), torch.ones(4)).entries[0].program
    torch.testing.assert_close(program.module()(torch.ones(4)), torch.full((4,), 3.0))


def test_a_subclass_made_in_new_is_traced():
    class Held(nn.Module):
        def forward(self, x):
            made = torch.Tensor._make_subclass(Vector, x)
            return (made + 2) * 1

    model = Held()
    program = exported(model, torch.ones(4)).entries[0].program
    torch.testing.assert_close(program.module()(torch.ones(4)), torch.full((4,), 2.0))


def _on_one_path(x):
    vector = x.as_subclass(Vector)
    if x.sum() > 0:
        vector = vector.as_subclass(torch.Tensor) * 1
    return vector + 3


def _in_a_list(x):
    found = []
    while x.sum() < 10:
        x = x + 1
        found.append(x.as_subclass(Vector))
        if len(found) > 20:
            break
    return found[-1] + 3


def _in_a_loop(x):
    vector = x.as_subclass(Vector)
    while vector.sum() < 100:
        vector = vector + 3
    return vector + 2


@pytest.mark.parametrize("call", [_on_one_path, _in_a_list, _in_a_loop])
def test_a_class_is_followed_or_refused(call):
    x = torch.full((3,), 1.5)
    try:
        program = exported(call, x).entries[0].program
    except ExportFailed:
        return
    for given in (x, x * 0.5):
        torch.testing.assert_close(program.module()(given), call(given).as_subclass(torch.Tensor))


def test_a_lazy_module_is_to_be_called_before():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()).eval()
    with pytest.raises(ExportFailed, match=r"`0\.weight` has no elements yet") as refused:
        exported(model, torch.randn(3, 5))
    assert "call the model once" in refused.value.hint
    model(torch.randn(3, 5))
    exported(model, torch.randn(3, 5))


def test_weights_on_the_meta_device_are_to_be_loaded_before():
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2, device="meta")).eval()
    with pytest.raises(
        ExportFailed, match=r"`1\.weight` has no elements: it is on the meta device"
    ) as refused:
        exported(model, torch.randn(3, 5))
    assert "load the weights before the build" in refused.value.hint
    model.load_state_dict(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2)).state_dict(), assign=True)
    exported(model, torch.randn(3, 5))


class Recorded(torch.Tensor):
    """A tensor that knows what it was made of; what is computed of it is a plain one."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        types = tuple(torch.Tensor if kind is Recorded else kind for kind in types)
        return torch.Tensor.__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_that_is_called_with_a_tensor_is_traced():
    """`Kind(x)` raised; and a `__torch_function__` that compares classes with its own was given others."""

    def model(x):
        made = Recorded(x + 1)
        made.parent = x
        assert type(made * 2) is torch.Tensor
        return made.sin() + made.parent, torch.zeros_like(made)

    x = torch.randn(3)
    (entry,) = exported(model, x).entries
    for got, want in zip(entry.program.module()(x), model(x), strict=True):
        assert type(want) is torch.Tensor
        torch.testing.assert_close(got, want)
    assert "__new__" not in vars(torch.Tensor)
