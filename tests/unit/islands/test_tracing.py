"""The op that stands for an island: its sizes are those of the eager calls, which are made at other sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.canonicalize import canonicalize, example_call
from aotpipe.errors import ExportFailed
from aotpipe.islands import sites, tracing
from aotpipe.islands.marking import eager_island
from aotpipe.islands.sites import recording
from aotpipe.islands.tracing import discover
from aotpipe.model.spec import as_spec
from tests.unit.islands.models import Masked, N, Sorted


@pytest.mark.parametrize(
    ("seen", "of_ten"),
    [
        ([([(3, 4)], 3), ([(5, 4)], 5)], 10),
        ([([(3, 4)], 7), ([(5, 4)], 11)], 21),
        ([([(3, 4)], 2), ([(5, 4)], 2)], 2),
        ([([(3, 4)], 3)], 10),
        ([([(3, 4)], 2)], 2),
    ],
)
def test_a_size_follows_from_the_arguments(seen: Any, of_ten: int) -> None:
    found: list[Any] = []

    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append(tracing.size_of([x.shape], seen))
            return x

    torch.export.export(Sized(), (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    size = found[-1]
    if isinstance(size, torch.SymInt):
        size = size.node.expr.subs(dict.fromkeys(size.node.expr.free_symbols, 10))
    assert size == of_ten


def test_an_island_that_no_eager_call_reached_is_refused() -> None:
    @eager_island
    def never(x: torch.Tensor) -> torch.Tensor:
        return x

    class Rare(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return never(x) if torch.compiler.is_exporting() else x

    with recording(), pytest.raises(ExportFailed, match="no eager call of the model reached"):
        aotpipe.export(Rare(), (torch.ones(3),))


def test_the_op_runs_the_function_on_values() -> None:
    @eager_island
    def both(x: torch.Tensor, k: int, *, add: float) -> tuple[torch.Tensor, int]:
        return x * k + add, k

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, k = both(x, x.shape[0], add=0.5)
            return y + k

    model = Model()
    with recording():
        exported = aotpipe.export(model, (torch.ones(3),), dynamic_shapes={"x": {0: N}})
    program = exported.entries[0].program
    assert sum(node.target is tracing.OP for node in program.graph.nodes) == 1
    for size in (2, 5):
        assert torch.equal(program.module()(torch.ones(size)), model(torch.ones(size)))
    assert any(site.mark.name.endswith("both") for site in sites.SITES.values())


def test_each_end_of_a_dim_is_seen() -> None:
    model = Sorted().eval()
    with recording():
        canonical = canonicalize(as_spec(model, args=(torch.ones(3, 4),), dynamic_shapes={"x": {0: N}}))
        discover(canonical)
    [site] = sites.SITES.values()
    assert {given[0][0] for given, _ in site.records} >= {1, 3, 4, 7}
    assert {made[0][1] for _, made in site.records} == {2}
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
    assert len({made for _, made in site.records}) > 1
