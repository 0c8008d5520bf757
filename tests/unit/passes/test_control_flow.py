"""Control flow in normal form computes what eager computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aotpipe.core.dims import Dim
from aotpipe.passes import control_flow, hops
from aotpipe.passes.source_lines import source_line
from tests.unit.passes.legal import check, model, targets

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
ZERO = torch.tensor(0)


def _several_results(self, x):
    return torch.cond(
        x.sum() > 0, lambda x: (x + 1, self.linear(x)), lambda x: (x.clone(), x @ self.linear.weight), (x,)
    )


def _in_place(self, x):
    def positive(x):
        y = x.clone()
        y.add_(1)
        y[0] = 3
        return y

    return torch.cond(x.sum() > 0, positive, lambda x: x.sin(), (x,))


def _wide_predicate(self, x):
    return torch.cond((x.sum() > 0).reshape(1), lambda x: x + 1, lambda x: x - 1, (x,))


def _branch_in_a_loop(self, x):
    def body(i, x):
        return i + 1, torch.cond(x.sum() > 0, lambda x: x * 0.5, lambda x: x.sin() + self.linear.bias, (x,))

    return while_loop(lambda i, x: i < 3, body, (ZERO.clone(), x))


def _loop_in_a_branch(self, x):
    def looped(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (ZERO.clone(), x))[1]

    return torch.cond(x.sum() > 0, looped, lambda x: x.clone(), (x,))


def _loop_in_a_loop(self, x):
    def body(i, x):
        return i + 1, while_loop(lambda j, x: j < i, lambda j, x: (j + 1, x + j), (ZERO.clone(), x))[1]

    return while_loop(lambda i, x: i < 4, body, (ZERO.clone(), x))


def _number_carry(self, x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + 1), (0, x))


def _carry_nothing_reads(self, x):
    return while_loop(
        lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x + 1, y.clone()), (ZERO.clone(), x, x * 2)
    )


def _no_trip(self, x):
    return while_loop(lambda i, x: i > 3, lambda i, x: (i + 1, x + 1), (ZERO.clone(), x))


def _two_conditions(self, x):
    return while_loop(
        lambda i, x: (i < 9) & (x.sum() < 20) | (i < 2), lambda i, x: (i + 1, x + 1), (ZERO.clone(), x)
    )


def _mapped(self, x):
    return torch_map(lambda row, by: row * by + self.linear.bias, x, torch.full((4,), 2.0))


def _scanned(self, x):
    return scan(lambda total, row: (total + row, total * row), torch.zeros(4), x, dim=0)


def _associative(self, x):
    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


def _two_calls(self, x):
    y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
    return torch.cond(y.sum() > 5, lambda x: x * 2, lambda x: x / 2, (y,))


@pytest.mark.parametrize(
    "forwards",
    [
        [_several_results, _in_place, _wide_predicate, _two_calls, _branch_in_a_loop, _loop_in_a_branch],
        [_loop_in_a_loop, _number_carry, _carry_nothing_reads, _no_trip, _two_conditions],
        [_mapped, _scanned, _associative],
    ],
    ids=["branches", "loops", "rows"],
)
def test_numbers_are_eagers(forwards: list[Any]) -> None:
    program = check(model(lambda self, x: [forward(self, x) for forward in forwards]), [X], [-X])
    assert not targets(program) & {
        "aten.__and__.Tensor",
        "aten.detach_.default",
        "aten.lift_fresh_copy.default",
    }


@pytest.mark.parametrize(
    "forwards",
    [[_branch_in_a_loop, _mapped], pytest.param([_two_calls], marks=pytest.mark.slow)],
    ids=["bodies", "two_calls"],
)
def test_with_sizes_that_vary(forwards: list[Any]) -> None:
    def forward(self, x):
        return [each(self, x) for each in forwards]

    check(model(forward), [X], [-X[:2]], dynamic_shapes={"x": {0: Dim("rows", max=8)}})


def test_a_node_of_a_body_has_its_calls_line() -> None:
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    (entry,) = check(model(forward), [X]).entries
    (call,) = hops.calls(entry.graph)
    lines = {
        source_line(node)
        for body in call.subgraphs
        for node in body.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    }
    assert {line.line for line in lines if line} == {forward.__code__.co_firstlineno + 1}


def test_two_calls_of_one_body_get_a_body_each() -> None:
    (entry,) = check(model(_two_calls), [X]).entries
    graph = entry.graph
    first, second = hops.calls(graph)
    for position in first.layout.subgraphs:
        second.node.update_arg(position, first.node.args[position])
    graph.recompile()
    wanted = graph(X)
    control_flow.normalize(graph)
    bodies = [id(body) for call in hops.calls(graph) for body in call.subgraphs]
    assert len(set(bodies)) == 4
    torch.testing.assert_close(graph(X), wanted)
