"""What StableHLO takes as it is."""

from __future__ import annotations

import torch

from aotpipe.passes import decompositions, legalize
from aotpipe.passes.decompositions import stablehlo
from tests.unit.passes.legal import exported, model


def test_nothing_decomposes_what_is_taken_as_it_is() -> None:
    assert not stablehlo.OPS & decompositions.table("stablehlo").keys()


def test_an_op_is_kept_for_xla_and_decomposed_for_iree() -> None:
    assert torch.ops.aten.erfinv.default in stablehlo.OPS
    assert torch.ops.aten.erfinv.default in decompositions.table("torch")


def test_the_legal_graph_holds_it() -> None:
    program = legalize(
        exported(model(lambda self, x: torch.erfinv(x)), [torch.zeros(3)]), dialect="stablehlo"
    )
    targets = {node.target for node in program.entries[0].graph.graph.nodes}
    assert torch.ops.aten.erfinv.default in targets
