"""Bodies that return their input, a view of it, or one tensor twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.passes import alias_copies, hops
from tests.unit.passes.legal import check, exported, model

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def _without_dynamo(body: Any, other: Any) -> torch.nn.Module:
    """A model whose branches torch.cond would refuse in eager mode, written for export's own tracing."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, body, other, (x,))

    return model(forward)


def _graph(results: Any) -> torch.fx.GraphModule:
    """A body graph over one operand."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    fake = torch._subclasses.FakeTensorMode()
    x.meta["val"] = fake.from_tensor(X)
    values = results(graph, x)
    for node in graph.nodes:
        if node.op == "call_function":
            args = torch.fx.map_arg(node.args, lambda used: used.meta["val"])
            with fake:
                node.meta["val"] = node.target(*args)
    graph.output(tuple(values))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


aten = torch.ops.aten


@pytest.mark.parametrize(
    ("results", "shared"),
    [
        (lambda graph, x: [x], [0]),
        (lambda graph, x: [graph.call_function(aten.view.default, (x, [12]))], [0]),
        (lambda graph, x: [graph.call_function(aten.reshape.default, (x, [12]))], [0]),
        (lambda graph, x: [graph.call_function(aten.sin.default, (x,))], []),
        (lambda graph, x: [(y := graph.call_function(aten.sin.default, (x,))), y], [1]),
        (
            lambda graph, x: [
                (y := graph.call_function(aten.sin.default, (x,))),
                graph.call_function(aten.t.default, (graph.call_function(aten.detach.default, (y,)),)),
            ],
            [1],
        ),
        (lambda graph, x: [graph.call_function(aten.add_.Tensor, (x, 1))], [0]),
    ],
    ids=["input", "view", "maybe-view", "fresh", "twice", "view-of-another", "written"],
)
def test_which_results_share_memory(results: Any, shared: list[int]) -> None:
    body = _graph(results)
    assert list(alias_copies.shared_results(body)) == shared
    alias_copies.clone_shared(body)
    assert list(alias_copies.shared_results(body)) == []
    memory = [value.untyped_storage().data_ptr() for value in (X, *body(X))]
    assert len(set(memory)) == len(memory)


def test_a_program_without_sharing_is_given_back() -> None:
    (entry,) = exported(_without_dynamo(lambda x: x + 1, lambda x: x.sin()), [X]).entries
    assert alias_copies.separate(entry.program) is entry.program


def test_legal_bodies_share_nothing() -> None:
    program = check(_without_dynamo(lambda x: x.clone(), lambda x: x.contiguous().view(3, 4) * 1), [X], [-X])
    for body in list(hops.walk(program.entries[0].graph))[1:]:
        assert not list(alias_copies.shared_results(body))


def test_a_body_may_take_views_of_one_tensor() -> None:
    """As a branch that attends over the query, key and value of one projection does."""

    def forward(self, x):
        q, k, v = torch.cat([x, x * 2, x + 1], -1).chunk(3, -1)
        return torch.cond(x.sum() > 0, lambda q, k, v: q * k + v, lambda q, k, v: q - k * v, (q, k, v))

    check(model(forward), (X,), (-X,))
    for call in hops.calls(
        alias_copies.separate(exported(model(forward), (X,)).entries[0].program).graph_module
    ):
        assert len({alias_copies.owner(node) for node in call.all_operands}) == 3


def test_a_body_may_take_both_columns_of_what_where_finds() -> None:
    def forward(self, x):
        rows, columns = torch.where(x > 0)
        weights = x * 2
        return torch.cond(
            x.sum() > 0,
            lambda rows, columns, weights: weights[rows, columns].sum(),
            lambda rows, columns, weights: (rows + columns).sum() * 1.0,
            (rows, columns, weights),
        )

    check(model(forward), (X,), (-X,))
