"""Functions and methods as modules; train mode."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import modules
from aotpipe.errors import SpecInvalid, TrainMode

LINEAR = nn.Linear(2, 2)
X = torch.randn(3, 2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def decode(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
        self.count += 1
        return self(x) * (2 if twice else 1)


def global_linear(x: torch.Tensor) -> torch.Tensor:
    return LINEAR(x)


@pytest.mark.parametrize(
    ("make", "weights"),
    [
        (lambda: global_linear, {"LINEAR.weight", "LINEAR.bias"}),
        (lambda: (lambda net: lambda x: net(x))(LINEAR), {"net.weight", "net.bias"}),
        (lambda: functools.partial(lambda f, x: f(x), LINEAR), {"arg0.weight", "arg0.bias"}),
        (lambda: functools.partial(lambda x, f: f(x), f=LINEAR), {"f.weight", "f.bias"}),
        (lambda: torch.nn.functional.relu, set()),
    ],
)
def test_a_function_brings_the_modules_it_reaches(make: Any, weights: set[str]) -> None:
    function = make()
    module = modules.as_module(function)
    assert {name for name, _ in module.named_parameters()} == weights
    assert torch.equal(module(X), function(X))
    assert not module.training


def test_a_wrapped_function_keeps_its_parameters() -> None:
    def f(self: Any, x: Any, *rest: Any, k: int = 3, **more: Any) -> Any:
        return self + x

    assert inspect.signature(modules.as_module(f).forward) == inspect.signature(f)
    assert torch.equal(modules.as_module(f)(X, X), X + X)


def test_forward_is_the_model_itself() -> None:
    net = Net()
    assert modules.entry_module(net, "forward") is net


def test_a_method_shares_weights_and_state_under_their_names() -> None:
    net = Net()
    entry = modules.entry_module(net, "decode")
    assert dict(entry.named_parameters()).keys() == dict(net.named_parameters()).keys()
    assert entry.get_parameter("linear.weight") is net.linear.weight
    assert torch.equal(entry(X, twice=True), net.linear(X) * 2)
    assert net.count == 1


def test_a_method_may_call_forward_of_its_own_model() -> None:
    net = Net()
    net.forward = functools.partial(Net.forward, net)  # type: ignore[method-assign]
    entry = modules.entry_module(net, "decode")
    assert list(inspect.signature(entry.forward).parameters) == ["x", "twice"]
    assert torch.equal(entry(X), net.linear(X))


def test_foreign_arguments_are_bound() -> None:
    def f(a: Any, dtype: Any, b: Any, *, mode: Any) -> Any:
        assert mode is max
        return (a + b).to(dtype)

    entry = modules.entry_module(modules.as_module(f), "forward", {1: torch.float64, "mode": max})
    assert list(inspect.signature(entry.forward).parameters) == ["a", "b"]
    assert entry(X, X).dtype is torch.float64


def test_keywords_of_a_call_become_parameters() -> None:
    def f(x: Any, **more: Any) -> Any:
        return x + more["k"]

    model = modules.as_module(f)
    entry = modules.entry_module(model, "forward", {}, ["x", "k"])
    assert list(inspect.signature(entry.forward).parameters) == ["x", "k"]
    assert torch.equal(entry(X, k=X), X + X)
    assert modules.entry_module(model, "forward", {}, ["x"]) is model


def test_a_missing_method_is_refused() -> None:
    with pytest.raises(SpecInvalid, match="has no method 'generate'"):
        modules.entry_module(Net(), "generate")


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.training else x


@pytest.mark.parametrize(
    "module",
    [nn.Dropout(0.1), nn.BatchNorm1d(2), nn.LSTM(2, 2, 2, dropout=0.1), nn.Sequential(Noisy()), nn.RReLU()],
)
def test_what_acts_in_train_mode_is_named(module: nn.Module) -> None:
    with pytest.raises(TrainMode) as caught:
        modules.check_eval_mode(module.train())
    assert ".eval()" in caught.value.hint
    assert modules.check_eval_mode(module.eval()) == []


@pytest.mark.parametrize(
    "module", [nn.Linear(2, 2), nn.Dropout(0.0), nn.LSTM(2, 2), nn.InstanceNorm1d(2), Net()]
)
def test_train_mode_without_effect_is_a_note(module: nn.Module) -> None:
    [finding] = modules.check_eval_mode(module.train())
    assert (finding.code, finding.severity) == ("train-mode", "note")


def test_the_users_class_is_shown_for_train_mode() -> None:
    with pytest.raises(TrainMode) as caught:
        modules.check_eval_mode(Noisy())
    assert caught.value.where is not None
    assert "the model (Noisy)" in caught.value.reason
