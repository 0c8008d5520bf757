"""Needed nodes, used results, live carries."""

from __future__ import annotations

import operator

import torch
from torch import fx

from aotpipe.backends.iree.lower.liveness import live_carries, needed_nodes, used_results


def graph(function) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def test_what_no_wanted_output_depends_on_is_not_needed() -> None:
    traced = graph(lambda a, b: (a + 1, b * 2))
    targets = {node.target for node in needed_nodes(traced, [1])}
    assert operator.mul in targets
    assert operator.add not in targets


def test_an_op_without_results_is_always_needed() -> None:
    traced = graph(lambda a: (torch.ops.aten._assert_async.default(a), a + 1)[1])
    assert torch.ops.aten._assert_async.default in {node.target for node in needed_nodes(traced, [])}


def test_only_results_that_needed_nodes_take_are_used() -> None:
    traced = graph(lambda a: (torch.ops.aten.sort.default(a)[0] + 1, torch.ops.aten.sort.default(a)[1]))
    first = next(node for node in traced.graph.nodes if node.target is torch.ops.aten.sort.default)
    assert used_results(first, needed_nodes(traced, [0])) == {0}
    assert used_results(first, needed_nodes(traced, [1])) == set()


def test_a_carry_lives_through_what_reads_it() -> None:
    body = graph(lambda i, a, b, c: (i + 1, a + b, b * 2, c + 1))
    test = graph(lambda i, a, b, c: i < 3)
    assert live_carries(test, body, range(4), {1}) == {0, 1, 2}
    assert live_carries(test, body, range(4), {3}) == {0, 3}
    assert live_carries(test, body, range(4), set()) == {0}
    assert live_carries(None, body, range(4), {2}) == {2}
