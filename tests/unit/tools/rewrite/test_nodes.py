"""What a node is: its parts, who reads it, its name."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe.tools.rewrite import nodes
from aotpipe.tools.rewrite.nodes import Lines
from tests.unit.tools.rewrite.graph import graph, node

ATEN = torch.ops.aten
X = torch.ones(4)


def test_parts_have_the_names_of_the_schema():
    found = graph(lambda x: x.topk(2), X)
    parts = nodes.parts(node(found, ATEN.topk.default))
    assert {index: [nodes.short(each) for each in users] for index, users in parts.items()} == {
        0: ["values"],
        1: ["indices"],
    }


def test_what_nothing_reads_is_unused_unless_it_writes():
    def forward(x):
        x.sin()
        y = x.clone()
        y.add_(1)
        return y

    found = graph(forward, X)
    unused = nodes.unused(list(found.graph.nodes))
    assert node(found, ATEN.sin.default) in unused
    assert node(found, ATEN.add_.Tensor) not in unused


def test_the_reader_behind_what_changes_nothing():
    found = graph(lambda x: (x + 1).clone() * 2, X)
    add, clone = node(found, ATEN.add.Tensor), node(found, ATEN.clone.default)
    assert nodes.only_user(add) == (node(found, ATEN.mul.Tensor), clone)
    assert nodes.times(node(found, ATEN.mul.Tensor), clone) == 1


def test_a_0d_index_stays_an_op():
    def forward(x, i):
        return torch.ops.aten.index.Tensor(x, [i])

    found = graph(forward, X, torch.tensor(1))
    assert nodes.index_op(node(found, ATEN.index.Tensor), []) is not None
    found = graph(forward, X, torch.tensor([1]))
    assert nodes.index_op(node(found, ATEN.index.Tensor), []) is None


class Net(nn.Module):
    def forward(self, x):
        doubled = x * 2 + 1
        return doubled - x


def test_a_line_names_its_last_result():
    nodes = list(graph(Net(), torch.ones(2)).graph.nodes)
    lines = Lines(nodes)
    mul, add, sub = (node for node in nodes if node.op == "call_function")
    assert lines.target(mul) is None
    assert lines.target(add) == "doubled"
    assert lines.target(sub) is None
    assert lines.is_same(mul, add)
    assert not lines.is_same(add, sub)
    assert str(lines.where(add)).partition(":")[0].endswith("test_nodes.py")
