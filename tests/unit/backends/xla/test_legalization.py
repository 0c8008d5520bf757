"""What StableHLO takes as it is stays in the legal program."""

from __future__ import annotations

import torch

from aotpipe.backends import legalization
from aotpipe.backends.xla import ops
from aotpipe.passes import legalize
from tests.unit.passes.legal import exported, model


def test_nothing_decomposes_what_is_lowered_as_it_is() -> None:
    assert not ops.table().keys() & legalization("stablehlo").decompositions().keys()


def test_the_legal_graph_holds_an_op_that_iree_needs_decomposed() -> None:
    assert torch.ops.aten.erfinv.default in legalization("torch").decompositions()
    program = legalize(
        exported(model(lambda self, x: torch.erfinv(x)), [torch.zeros(3)]), legalization("stablehlo")
    )
    targets = {node.target for node in program.entries[0].graph.graph.nodes}
    assert torch.ops.aten.erfinv.default in targets
