"""An entry point over the flat form: names, Dims, constants, results and state of all combinations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe import Dim
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.inputs import flat_module
from aotpipe.errors import SpecInvalid
from aotpipe.model import spec
from tests.unit.canonicalize.inputs.adapted_models import CASES, X

BATCH = Dim("batch", max=8)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masked = 0

    def forward(self, x, mask=None, k=2):
        if mask is None:
            return {"y": x * k}
        self.masked += 1
        return {"y": x + mask * self.masked, "n": mask.sum()}


def test_the_entry_is_of_the_flat_form():
    given = spec.as_spec(
        Masked().eval(),
        args=(X, X > 0),
        examples=[(X,)],
        dynamic_shapes={"x": {0: BATCH}, "mask": {0: BATCH}},
        value_ranges={"x": (-9, 9)},
    )
    canonical = canonicalize(given)
    [entry] = canonical.entries
    assert entry.input_names == ("x", "mask", "mask.present")
    assert entry.output_names == ("y", "n", "n.present")
    assert entry.dims == {"x": {0: BATCH}, "mask": {0: BATCH}}
    # What only some combinations change is state.
    assert entry.state is not None
    assert [root.path for root in entry.state.roots] == ["masked"]


def test_constants_and_examples_that_are_alike():
    [entry] = canonicalize(spec.as_spec(Masked().eval(), args=(X,), kwargs={"k": 3}, optional=("x",))).entries
    assert entry.constants == {"k": 3}
    [plain] = canonicalize(spec.as_spec(Masked().eval(), args=(X,), examples=[(X + 1,)])).entries
    assert plain.adapter is None


def test_what_eager_refuses_is_noted_and_an_example_that_it_refuses_is_an_error():
    kind, options = CASES["demanding"]
    canonical = canonicalize(spec.as_spec(kind().eval(), **options))
    assert "call-refused" in {finding.code for finding in canonical.findings}
    with pytest.raises(SpecInvalid, match="raised KeyError"):
        canonicalize(spec.as_spec(kind().eval(), args=({"b": X, "x": X},), examples=[({"x": X},)]))


def test_every_combination_is_a_case():
    [entry] = canonicalize(spec.as_spec(Masked().eval(), args=(X, X > 0), examples=[(X,)])).entries
    assert entry.adapter is not None
    flags = [bool(case["mask.present"]) for case in flat_module.cases(entry.adapter.structure)]
    assert flags == [True, False]
    assert all(torch.equal(case["x"], X) for case in flat_module.cases(entry.adapter.structure))
