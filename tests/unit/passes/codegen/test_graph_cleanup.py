"""Branches as a person writes them: flags as logic, selections as `where`, nothing that nobody reads."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from aotpipe.passes.codegen.graph_cleanup import simplify
from tests.sweep import sweep
from tests.unit.passes.codegen.graph import graph, node

# torch's own, when it copies a graph.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ATEN = torch.ops.aten
X = torch.tensor([1.0, -2.0])


def yes() -> torch.Tensor:
    return torch.full((), True, dtype=torch.bool)


def no() -> torch.Tensor:
    return torch.full((), False, dtype=torch.bool)


def simplified(function: Any) -> Any:
    """A graph that was made plainer, after it was seen to compute the same."""
    found = graph(function, X)
    plain = copy.deepcopy(found)
    simplify(plain)
    plain.recompile()
    for x in (X, -X):
        torch.testing.assert_close(plain(x), found(x))
    return plain


FLAGS = {
    "set": (lambda flag: yes(), lambda flag: no(), []),
    "unset": (lambda flag: no(), lambda flag: yes(), [ATEN.bitwise_not.default]),
    "or": (lambda flag: yes(), lambda flag: flag.clone(), [ATEN.bitwise_or.Tensor]),
    "and": (lambda flag: flag.clone(), lambda flag: no(), [ATEN.bitwise_and.Tensor]),
    "and-not": (
        lambda flag: no(),
        lambda flag: flag.clone(),
        [ATEN.bitwise_not.default, ATEN.bitwise_and.Tensor],
    ),
    "or-not": (
        lambda flag: flag.clone(),
        lambda flag: yes(),
        [ATEN.bitwise_not.default, ATEN.bitwise_or.Tensor],
    ),
}


@pytest.mark.parametrize("name", sweep(FLAGS, quick=0, always=["unset", "and", "or-not"]))
def test_a_branch_that_sets_a_flag_is_logic(name: str):
    then, other, wanted = FLAGS[name]

    def run(x):
        return torch.cond(x.sum() > 0, then, other, (x[0] > 0,))

    ops = [each.target for each in simplified(run).graph.nodes if each.op == "call_function"]
    assert torch.ops.higher_order.cond not in ops
    assert [op for op in ops if "bitwise" in str(op)] == wanted


def test_a_branch_that_hands_on_is_a_selection():
    def run(x):
        return torch.cond(x.sum() > 0, lambda a, b: a.clone(), lambda a, b: b.clone(), (x, x + 1))

    assert node(simplified(run), ATEN.where.self)


def test_what_nobody_reads_is_neither_computed_nor_passed():
    def run(x):
        found = torch.cond(
            x.sum() > 0, lambda a, b, c: (a + 1, b.sin()), lambda a, b, c: (a - 1, b.cos()), (x, x * 2, x * 3)
        )
        return found[0]

    plain = simplified(run)
    call = node(plain, torch.ops.higher_order.cond)
    assert len(call.args[3]) == 1
    assert len(call.meta["val"]) == 1
    assert "sin" not in str(plain.true_graph_0.graph)


def test_a_branch_that_writes_a_copy_computes():
    def write(y):
        made = y.clone()
        made[0] = 7.0
        return made.clone()

    def run(x):
        return torch.cond(x.sum() > 0, write, torch.clone, (x,))

    assert node(simplified(run), torch.ops.higher_order.cond)


def test_what_nothing_reads_is_gone_unless_it_writes():
    def forward(x: torch.Tensor) -> torch.Tensor:
        x.sin()
        y = x.clone()
        y.add_(1)
        return y

    targets = [each.target for each in simplified(forward).graph.nodes]
    assert ATEN.sin.default not in targets
    assert ATEN.add_.Tensor in targets
