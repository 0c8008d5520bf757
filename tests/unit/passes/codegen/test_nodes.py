"""What a node is: its op, its parts, who reads it, its name; what changes nothing, and what is written."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe.model import source
from aotpipe.passes.codegen import nodes, op_syntax
from aotpipe.passes.codegen.nodes import Lines, is_own_copy, writes
from tests.unit.passes.codegen.graph import graph, node, program

ATEN = torch.ops.aten
X = torch.ones(4)


def test_parts_have_the_names_of_the_schema():
    found = graph(lambda x: x.topk(2), X)
    parts = nodes.parts(node(found, ATEN.topk.default))
    assert {index: [nodes.short(each) for each in users] for index, users in parts.items()} == {
        0: ["values"],
        1: ["indices"],
    }


def test_how_often_a_node_is_read():
    found = graph(lambda x: (x + 1).cos() * 2, X)
    assert nodes.times(node(found, ATEN.mul.Tensor), node(found, ATEN.cos.default)) == 1


def test_a_0d_index_stays_an_op():
    def forward(x, i):
        return torch.ops.aten.index.Tensor(x, [i])

    found = graph(forward, X, torch.tensor(1))
    assert nodes.has_index_without_dims(node(found, ATEN.index.Tensor))
    found = graph(forward, X, torch.tensor([1]))
    assert not nodes.has_index_without_dims(node(found, ATEN.index.Tensor))


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
    assert str(source.from_stack_trace(add.meta["stack_trace"])).partition(":")[0].endswith("test_nodes.py")


def test_what_is_there_for_more_than_its_result():
    made = torch.fx.Graph()
    ops = (ATEN.add_.Tensor, ATEN._assert_scalar.default, ATEN.rand.default, ATEN.add.Tensor)
    assert [nodes.is_effect(made.call_function(op)) for op in ops] == [True, True, True, False]


ROWS = torch.ones(2, 3)


def test_a_copy_of_what_nobody_else_holds():
    found = graph(lambda x: (x + 1).clone(), ROWS)
    assert nodes.replacement(node(found, ATEN.clone.default)) is node(found, ATEN.add.Tensor)


def test_a_copy_of_an_input_or_of_what_is_read_again():
    assert nodes.replacement(node(graph(lambda x: x.clone(), ROWS), ATEN.clone.default)) is None

    def twice(x):
        y = x + 1
        return y.clone(), y

    assert nodes.replacement(node(graph(twice, ROWS), ATEN.clone.default)) is None


def test_a_copy_of_a_view():
    assert nodes.replacement(node(graph(lambda x: x[0].clone(), ROWS), ATEN.clone.default)) is None


def test_a_reshape_to_the_same_shape():
    found = graph(lambda x: (x.reshape(2, 3), x.reshape(3, 2)), ROWS)
    reshapes = [each for each in found.graph.nodes if each.target is ATEN.reshape.default]
    assert [nodes.replacement(each) is not None for each in reshapes] == [True, False]


def test_a_copy_that_is_only_a_result():
    def given(x):
        y = x + 1
        return y.clone(), y * 2, y.clone()

    copies = [each for each in graph(given, ROWS).graph.nodes if each.target is ATEN.clone.default]
    assert [nodes.replacement(each) is not None for each in copies] == [True, False]


def test_a_copy_that_is_only_read_and_one_of_what_is_written():
    read = graph(lambda x: x.clone() + 1, ROWS)
    assert nodes.replacement(node(read, ATEN.clone.default)) is not None

    def written(x):
        y = x.clone()
        x.add_(1)
        return y * 2

    assert nodes.replacement(node(graph(written, ROWS), ATEN.clone.default)) is None


def test_one_of_two_copies_is_left():
    found = graph(lambda x: x.clone().clone(), ROWS)
    copies = [each for each in found.graph.nodes if each.target is ATEN.clone.default]
    assert sum(nodes.replacement(each) is None for each in copies) == 1


ADD = torch.ops.aten.add.Tensor
COND = torch.ops.higher_order.cond


def test_ops_and_their_names():
    x = torch.ones(2)
    found = graph(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), x)
    assert nodes.short(node(graph(lambda x: x + 1, x), ADD)) == "add"
    assert nodes.short(next(iter(node(found, COND).users))) == "chosen"
    assert nodes.name_of_higher(COND) == "cond"
    assert nodes.name_of_higher(ADD) == ""


def test_names_that_are_the_op_itself():
    assert op_syntax.is_function_of_torch("conv2d")
    assert not op_syntax.is_function_of_torch("einsum_of_nothing")
    assert op_syntax.is_functional("gelu")
    assert not op_syntax.is_functional("layer_norm")


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(4, 2))
        self.register_buffer("table", torch.ones(2))

    def forward(self, x, y):
        self.k[:2].reshape(-1).add_(1)
        y.mul_(2)
        z = x.clone()
        z.add_(self.table)
        return z + self.k.sum()


def test_buffers_and_inputs():
    assert writes(program(Cache(), torch.ones(2), torch.ones(2))) == (["k"], [1])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_copy_of_what_is_there_already():
    found = graph(Counter(), torch.ones(2))
    assert is_own_copy(node(found, torch.ops.aten.copy_.default))
    assert not is_own_copy(node(found, torch.ops.aten.add_.Tensor))
