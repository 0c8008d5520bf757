"""Specs, and what becomes one."""

from __future__ import annotations

import functools

import pytest
import torch

from aotpipe.errors import NoExampleInputs, SpecInvalid
from aotpipe.model.spec import AUTO, Dim, EntryPoint, Spec, as_spec


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        return x


X = torch.ones(2)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_module_becomes_a_spec_of_one_entry_point() -> None:
    net = Net()
    spec = as_spec(net, args=(X,), dynamic_shapes={"x": {0: AUTO}}, value_ranges={"x": (0, 1)}, seed=7)
    assert (spec.name, spec.seed, spec.build()) == ("Net", 7, net)
    assert list(spec.entry_points) == ["forward"]
    assert spec.entry_points["forward"].value_ranges == {"x": (0, 1)}


def test_a_method_names_its_entry_point() -> None:
    spec = as_spec(Net().decode, args=(X,))
    assert spec.entry_points["decode"].method == "decode"
    assert isinstance(spec.build(), Net)


@pytest.mark.parametrize(
    ("function", "name"),
    [(double, "double"), (lambda x: x, "model"), (functools.partial(double), "double"), (torch.relu, "relu")],
)
def test_functions_become_specs(function: object, name: str) -> None:
    assert as_spec(function, args=(X,)).name == name


def test_a_spec_stays_itself_but_for_its_name() -> None:
    spec = as_spec(Net(), args=(X,))
    assert as_spec(spec) is spec
    assert as_spec(spec, name="other").name == "other"
    with pytest.raises(SpecInvalid, match="brings its own inputs"):
        as_spec(spec, args=(X,))


def test_a_model_without_inputs_needs_no_example() -> None:
    assert as_spec(lambda: X).entry_points["forward"].args == ()


@pytest.mark.parametrize("model", [Net(), double])
def test_missing_example_inputs_are_named(model: object) -> None:
    with pytest.raises(NoExampleInputs, match="needs x"):
        as_spec(model)


@pytest.mark.parametrize("model", [Net, 3, "model"])
def test_what_is_no_model_is_refused(model: object) -> None:
    with pytest.raises(SpecInvalid):
        as_spec(model, args=(X,))


@pytest.mark.parametrize(
    "make",
    [
        lambda: EntryPoint(args=[X]),  # type: ignore[arg-type]
        lambda: EntryPoint(value_ranges={"x": (2, 1)}),
        lambda: Spec(name="a/b", build=Net, entry_points={"forward": EntryPoint()}),
        lambda: Spec(name="a", build=Net, entry_points={}),
        lambda: Spec(name="a", build=Net, entry_points={"not a name": EntryPoint()}),
        lambda: as_spec(Net(), args=(X,), entry_points={"forward": EntryPoint(args=(X,))}),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(make: object) -> None:
    with pytest.raises(SpecInvalid):
        make()  # type: ignore[operator]


def test_dims_are_part_of_the_module() -> None:
    assert Dim("batch").name == "batch"


def test_value_ranges_of_a_spec_are_extended():
    spec = Spec(
        name="scaled",
        build=lambda: torch.nn.ReLU(),
        entry_points={"forward": EntryPoint(args=(torch.ones(2),), value_ranges={"x": (0, 1), "y": (0, 1)})},
    )
    [entry] = as_spec(spec, value_ranges={"x": (-2, 2)}).entry_points.values()
    assert entry.value_ranges == {"x": (-2, 2), "y": (0, 1)}
    with pytest.raises(SpecInvalid, match="is empty"):
        as_spec(spec, value_ranges={"x": (2, -2)})
