"""The one form of all calls, run in eager: what a flag says is not there is left out."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import modules
from aotpipe.canonicalize.inputs import flat_module
from aotpipe.canonicalize.inputs.structure import unite
from aotpipe.errors import SpecInvalid
from tests.unit.canonicalize.inputs.adapted_models import Batch, GivesNone, OfDataclass, X


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x, k=1, mask=None):
        assert type(self.scale) is float
        assert type(k) is int
        return x * self.scale * k if mask is None else mask


def adapted(model: nn.Module, *examples: tuple, **options: tuple) -> tuple[flat_module.Adapter, nn.Module]:
    structure = unite(model.forward, model, [(args, {}) for args in examples], **options)
    made = flat_module.Adapter(structure)
    return made, modules.view_of(model, made.forward())


def test_what_a_flag_says_is_not_there_is_left_out():
    model = Scaled()
    made, module = adapted(model, (X, 3, X), (X, 3), tensorize=("k", "self.scale"))
    inputs = made.structure.example()
    assert torch.equal(module(inputs), X)
    inputs |= {"mask.present": torch.tensor(False), "k": torch.tensor(5), "self.scale": torch.tensor(0.5)}
    assert torch.equal(module(inputs), X * 2.5)
    assert model.scale == 2.0
    assert inspect.unwrap(module.forward).__qualname__ == "Scaled.forward"


def test_results_have_one_form_too():
    made, module = adapted(GivesNone(), (X, X), (X,))
    results = [
        module({**made.structure.example(), "aux.present": torch.tensor(there)}) for there in (True, False)
    ]
    made.outputs = flat_module.Outputs.of(results)
    assert made.outputs.names == ("y", "aux", "more.0", "more.1")
    assert [part.flag for part in made.presences()] == ["aux.present", "more.1.present"]
    got = module({**made.structure.example(), "aux.present": torch.tensor(False)})
    assert list(got) == list(made.outputs.all_names)
    assert got["aux"] is None
    assert not got["aux.present"]


def test_the_functions_that_decide_are_the_method_and_those_of_its_arguments():
    made, _ = adapted(OfDataclass(), (Batch(X, X > 0),), (Batch(X),))
    names = {function.__qualname__ for function in made.functions()}
    assert {"OfDataclass.forward", "Batch.has_mask", "Batch.weighted"} <= names


def test_a_model_with_hooks_of_its_own_is_refused():
    model = GivesNone()
    flat_module.require_unhooked(model)
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(SpecInvalid, match="has forward hooks"):
        flat_module.require_unhooked(model)
