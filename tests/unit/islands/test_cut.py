"""A graph is cut at its islands, and sizes have one name along a chain."""

from __future__ import annotations

from operator import getitem

import pytest
import torch

from aotpipe.errors import UnsupportedOps
from aotpipe.islands.cut import Names
from aotpipe.islands.tracing import OP
from aotpipe.passes import hops
from aotpipe.runtime.islands.chain import Island, Segment
from tests.unit.islands import models
from tests.unit.islands.cuts import cut_of, legal
from tests.unit.islands.models import Masked, N, Sorted


def shape(found: object) -> list[str]:
    [chain] = found.parts.chains.values()
    return [step.name if isinstance(step, Island) else step.entry_point for step in chain.steps]


def test_segments_and_islands_alternate_and_state_is_a_value() -> None:
    found = cut_of(models.Sorted(), torch.ones(3, 4), dynamic_shapes={"x": {0: models.N}})
    assert shape(found) == ["forward_0", "tests.unit.islands.models:order", "forward_1"]
    chain = found.parts.chains["forward"]
    assert chain.state.keys() == {"total", "calls"}
    assert not found.legal.initial_state
    assert all(not entry.signature.state for entry in found.legal.entries)
    assert [entry.weights for entry in found.legal.entries] == [
        ("first.weight", "first.bias"),
        ("second.weight", "second.bias"),
    ]
    [island] = chain.islands
    assert str(island.outputs[0]) == f"{island.outputs[0].name}: float32[n, 2]"
    assert island.where is not None
    assert island.where.path.endswith("models.py")


def test_each_value_is_made_before_it_is_taken() -> None:
    found = cut_of(models.Chained(), torch.ones(4))
    [chain] = found.parts.chains.values()
    made = set(chain.inputs.values()) | {before for before, _ in chain.state.values()}
    for step in chain.steps:
        assert set(step.inputs) <= made
        made |= set(step.outputs if isinstance(step, Segment) else (spec.name for spec in step.outputs))
    assert set(chain.outputs.values()) <= made
    assert len(chain.islands) == 2
    assert not any(node.target is OP for each in found.legal.entries for node in each.graph.graph.nodes)


def test_an_op_without_a_lowering_is_an_island() -> None:
    found = cut_of(models.Factored(), torch.ones(3, 4))
    assert shape(found) == ["forward_0", "aten.linalg_ldl_factor_ex.default", "forward_1"]
    [island] = found.parts.islands
    assert island.kind == "op"
    assert "LAPACK" in island.reason


def test_an_island_within_a_branch_is_refused_at_its_line() -> None:
    with pytest.raises(UnsupportedOps, match=r"models.py:\d+: .*:positive is called within a branch"):
        cut_of(models.Branched(), torch.ones(3))


def test_a_model_that_is_an_island_is_refused() -> None:
    class Only(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return models.positive(x)

    with pytest.raises(UnsupportedOps, match="nothing but islands"):
        cut_of(Only(), torch.ones(3))


def test_a_model_without_islands_is_one_segment() -> None:
    found = cut_of(torch.nn.Linear(3, 3), torch.ones(2, 3))
    assert shape(found) == ["forward_0"]
    assert not found.parts.islands


def test_a_size_of_the_signature_keeps_its_name() -> None:
    [entry] = legal(Sorted(), torch.ones(3, 4), dynamic_shapes={"x": {0: N}}).entries
    names = Names(entry)
    x = hops.placeholders(entry.graph)[-1].meta["val"]
    spec = names.spec("x", x)
    assert str(spec) == "x: float32[n, 4]"
    assert [str(symbol) for symbol in names.signature([spec], [spec]).symbols] == ["n=1..8"]


def test_a_size_that_only_the_run_knows_gets_a_name() -> None:
    [entry] = legal(Masked(), torch.tensor([0.0, 1.0, 2.0]), dynamic_shapes={"x": {0: N}}).entries
    names = Names(entry)
    value = next(node for node in entry.graph.graph.nodes if node.target is getitem).meta["val"]
    spec = names.spec("y", value)
    [dim] = spec.dims
    assert isinstance(dim, str)
    assert [symbol.name for symbol in names.signature([spec], []).symbols] == [dim]
