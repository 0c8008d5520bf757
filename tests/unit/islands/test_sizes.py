"""Sizes have one name along a chain."""

from __future__ import annotations

from operator import getitem

import torch

from aotpipe.islands.sizes import Names
from aotpipe.passes import hops
from tests.unit.islands.cuts import legal
from tests.unit.islands.models import Masked, N, Sorted


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
