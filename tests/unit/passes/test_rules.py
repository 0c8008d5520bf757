"""What a backend asks of legalization is done, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.fx import Node

from aotpipe.backends import legalization
from aotpipe.errors import UnsupportedOps
from aotpipe.passes import legalize
from aotpipe.passes.rules import LegalizationRules
from tests.unit.passes.legal import exported, model

SINE = torch.ops.aten.sin.default


def refuse_sines(node: Node) -> str:
    return "is refused here" if node.target is SINE else ""


def test_passes_run_in_their_order() -> None:
    seen: list[str] = []
    rules = LegalizationRules(
        dialect="torch",
        decompositions=dict,
        refusal=lambda _: "",
        program_passes=(lambda graph: bool(seen.append("program")),),
        range_passes=(lambda graph, ranges: bool(seen.append("ranges")),),
        entry_passes=(lambda entry: seen.append("graph"),),
    )
    program = legalize(exported(model(lambda self, x: x + 1), [torch.ones(3)]), rules)
    assert seen == ["program", "ranges", "graph"]
    assert program.dialect == "torch"


def test_what_is_refused_is_folded_where_it_is_constant_and_named_where_it_is_not() -> None:
    rules = replace(legalization("stablehlo"), refusal=refuse_sines)
    constant = exported(model(lambda self, x: x + torch.sin(self.linear.weight)), [torch.ones(4, 4)])
    [entry] = legalize(constant, rules).entries
    assert SINE not in {node.target for node in entry.graph.graph.nodes}
    with pytest.raises(UnsupportedOps, match="sin") as caught:
        legalize(exported(model(lambda self, x: torch.sin(x)), [torch.ones(3)]), rules)
    assert "is refused here" in caught.value.reason
