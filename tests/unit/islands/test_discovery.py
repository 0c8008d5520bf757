"""Islands are called at other sizes, and the model is left as it was."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize import canonicalize, example_call
from aotpipe.islands import sites
from aotpipe.islands.discovery import discover
from aotpipe.islands.sites import recording
from aotpipe.model.spec import as_spec
from tests.unit.islands.models import Masked, N, Sorted


def test_each_end_of_a_dim_is_seen() -> None:
    model = Sorted().eval()
    with recording():
        canonical = canonicalize(as_spec(model, args=(torch.ones(3, 4),), dynamic_shapes={"x": {0: N}}))
        discover(canonical)
    [site] = sites.SITES.values()
    assert {record.inputs[0][0] for record in site.records} >= {1, 3, 4, 7}
    assert {record.outputs[0][1] for record in site.records} == {2}
    assert model.calls == 0
    assert not model.total


def test_a_model_without_islands_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording():
        canonical = canonicalize(as_spec(torch.nn.ReLU(), args=(torch.ones(3),)))
        monkeypatch.setattr(example_call, "again", None)
        discover(canonical)


def test_a_size_that_goes_with_values_is_seen_to_vary() -> None:
    with recording():
        canonical = canonicalize(as_spec(Masked(), args=(torch.tensor([0.0, 1.0, 2.0]),)))
        discover(canonical)
    [site] = sites.SITES.values()
    assert len({record.outputs for record in site.records}) > 1
