"""Sizes of symbols are read off the inputs."""

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.xla.values import Sizes, UnknownSize, relations
from aotpipe.passes import hops
from tests.programs import through


class Pair(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.repeat(2, 1) + y


def test_derived_dims_are_solved_for() -> None:
    batch = Dim("batch", min=1, max=9)
    program = through.legal(
        Pair(),
        (torch.ones(3, 2), torch.ones(6, 2)),
        dialect="stablehlo",
        dynamic_shapes={"x": {0: batch}, "y": {0: 2 * batch}},
    )
    (entry,) = program.entries
    nodes = hops.placeholders(entry.graph)
    sizes = Sizes(relations(nodes, [(4, 2), (8, 2)]))
    assert [sizes.out(node.meta["val"]).shape for node in nodes] == [(4, 2), (8, 2)]
    with pytest.raises(UnknownSize):
        Sizes(relations(nodes, [])).out(nodes[0].meta["val"])
