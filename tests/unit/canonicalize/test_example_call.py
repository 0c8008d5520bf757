"""The trial call leaves nothing behind."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

from aotpipe.canonicalize import example_call
from aotpipe.errors import SpecInvalid
from tests.unit.export.models import exported, run

COUNT = 2**18
"""Floats of a weight that is copied when it is written."""


def returned(*call: Any) -> Any:
    return example_call.observed(*call)[0]


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(2))
        self.plain = torch.zeros(2)
        self.calls = 0
        self.history: list[Any] = []
        self.table: dict[str, Any] = {}
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.replaced = self.replaced + 1
        self.plain += 1
        self.calls += 1
        self.history.append(x)
        self.table["x"] = x
        self.inner.seen = x
        self.late = x
        x += torch.rand(2)
        return self.inner(x)


def test_state_inputs_and_random_numbers_are_as_before() -> None:
    model, x = Stateful(), torch.ones(2)
    before = torch.random.get_rng_state()
    replaced = model.replaced
    result = returned(model, (x,), {}, "forward")
    assert result.shape == (2,)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(x, torch.ones(2))
    assert model.replaced is replaced
    assert (model.count, model.calls, model.history, model.table) == (0, 0, [], {})
    assert not model.plain.any()
    assert not hasattr(model, "late")
    assert not hasattr(model.inner, "seen")


def test_weights_are_copied_only_where_the_model_writes_them() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.written, self.by_numpy = (nn.Parameter(torch.ones(COUNT)) for _ in range(3))
            self.mapped = nn.Parameter(torch.from_numpy(np.ones(COUNT, np.float32)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.written.mul_(2)
            self.by_numpy.detach().numpy()[0] = 7
            self.mapped.add_(1)
            return x + self.read

    model = Writing()
    with example_call.unchanged(model):
        with torch.no_grad():
            model(torch.ones(COUNT))
        assert torch._C._is_cow_tensor(model.read)
        assert not torch._C._is_cow_tensor(model.written)
    assert all(torch.equal(each, torch.ones(COUNT)) for each in model.parameters())


def test_weights_that_changed_places_are_put_back() -> None:
    class Swapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Parameter(torch.ones(COUNT)), nn.Parameter(torch.zeros(COUNT))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.one.data, self.two.data = self.two.data, self.one.data
            return x * self.one + self.two

    model = Swapping()
    returned(model, (torch.ones(COUNT),), {}, "forward")
    assert model.one.all()
    assert not model.two.any()


def test_a_model_that_raises_is_left_as_it_was_and_its_line_is_shown() -> None:
    class Broken(Stateful):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            return x @ torch.ones(5, 5)

    model = Broken()
    with pytest.raises(SpecInvalid, match="raised RuntimeError on its example inputs") as caught:
        returned(model, (torch.ones(2),), {}, "Broken.forward")
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_example_call.py")
    assert model.calls == 0


@pytest.mark.parametrize("write", ["in place", "through data"])
def test_a_parameter_that_the_model_writes_is_as_before(write: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.float8 = nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                (self.weight if write == "in place" else self.weight.data).add_(1)
            return x * self.weight

    model = Model()
    assert returned(model, (torch.ones(3),), {}, "forward").tolist() == [2, 2, 2]
    assert model.weight.tolist() == [1, 1, 1]


def test_a_weight_that_cannot_be_written_is_left_alone() -> None:
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    assert returned(model, (torch.ones(2),), {}, "forward").shape == (2,)


def test_a_scan_of_several_results_runs() -> None:
    class Scanned(nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return scan(lambda c, r: (c + r, (c * 2, r.sum())), x[0], x)

    carry, (doubled, _) = returned(Scanned(), (torch.ones(3, 2),), {}, "forward")
    assert (carry.tolist(), doubled.shape) == ([4, 4], (3, 2))


def test_results_are_the_same_where_both_are_nan() -> None:
    result = {"y": torch.tensor([1.0, torch.nan]), "n": 2}
    assert example_call.is_same(result, {"y": torch.tensor([1.0, torch.nan]), "n": 2})
    for other in (torch.tensor([torch.nan, 1.0]), torch.tensor([1.0, 2.0]), torch.zeros(3)):
        assert not example_call.is_same(result, {"y": other, "n": 2})
    assert not example_call.is_same(result, {**result, "n": 3})


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    @functools.cache  # noqa: B019  # what is tested
    def times(self, factor: int) -> int:
        self.calls += 1
        return 2 * factor

    @staticmethod
    @functools.cache
    def ones(size: int) -> torch.Tensor:
        return torch.ones(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.times(3) + self.ones(3) * self.calls


def test_what_a_call_remembers_is_forgotten_where_the_call_changed_something_else() -> None:
    model = Remembers()
    example_call.observed(model, (torch.ones(3),), {}, "forward")
    assert model.calls == 0
    assert Remembers.times.cache_info().currsize == 0
    program = exported(model, torch.ones(3))
    wanted = Remembers()
    for _ in range(3):
        call = torch.randn(3)
        assert torch.equal(run(program, call), wanted(call))
    assert type(model.ones(3)) is torch.Tensor


def test_what_a_call_that_changes_nothing_remembers_stays() -> None:
    made = []

    @functools.cache
    def table(size: int) -> torch.Tensor:
        made.append(size)
        return torch.arange(size)

    class Reads(nn.Module):
        read = staticmethod(table)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.read(3)

    exported(Reads(), torch.ones(3))
    assert made == [3]


class Proxy:
    """Stands for an object that is there during a request only, as some frameworks keep in their files."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


REQUEST = Proxy()


def test_what_a_file_holds_is_asked_for_nothing() -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    assert torch.equal(returned(Doubles(), (torch.ones(2),), {}, "forward"), torch.full((2,), 2.0))
