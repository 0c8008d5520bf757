"""The largest tensors of a legal program, and what is done at great cost."""

from __future__ import annotations

import torch
from torch.export import Dim

from aotpipe.backends.xla.estimate.largest_tensors import arguments_bytes, largest, remarks
from aotpipe.backends.xla.values import Sizes, relations
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops
from tests.programs import through


class Pairs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight
        return torch.cond(y.sum() > 0, self.pairs, self.none, (y,))

    def pairs(self, y: torch.Tensor) -> torch.Tensor:
        return (y @ y.t()).exp().sum(0)

    def none(self, y: torch.Tensor) -> torch.Tensor:
        return y.sum(1)


def entry(module: torch.nn.Module, *inputs: torch.Tensor, **options: object) -> LegalEntry:
    return through.legal(module, inputs, dialect="stablehlo", **options).entries[0]


def test_results_of_branches_count_and_views_do_not() -> None:
    found = entry(Pairs(), torch.ones(3, 4), dynamic_shapes={"x": {0: Dim("rows", max=1000)}})
    sizes = Sizes(relations(hops.placeholders(found.graph), [(100, 4)]))
    first, second, *_ = largest(found, sizes)
    assert {first.size_bytes, second.size_bytes} == {4 * 100 * 100}
    assert {first.name.partition(" of ")[0]} == {"float32[100, 100]"}
    assert first.where is not None
    assert first.where.path.endswith("test_largest_tensors.py")
    assert arguments_bytes(found, sizes) == 4 * (16 + 400)


def test_arguments_bear_their_names() -> None:
    found = entry(torch.nn.Linear(64, 2), torch.ones(1, 64))
    sizes = Sizes(relations(hops.placeholders(found.graph), [(1, 64)]))
    assert {(each.kind, each.name, each.size_bytes) for each in largest(found, sizes)[:2]} >= {
        ("weight", "weight", 4 * 128)
    }


def test_products_of_float64_are_remarked_with_their_line() -> None:
    assert remarks(entry(torch.nn.Linear(3, 2), torch.ones(1, 3))) == {}
    wide = remarks(entry(torch.nn.Linear(3, 2).double(), torch.ones(1, 3, dtype=torch.float64)))
    assert "emulated" in wide["tpu"]
