"""Ops that change nothing are seen, and those that do are not taken for such."""

from __future__ import annotations

import torch

from aotpipe.tools.rewrite import no_ops
from tests.unit.tools.rewrite.graph import graph, node

ATEN = torch.ops.aten
X = torch.ones(2, 3)


def test_a_copy_of_what_nobody_else_holds():
    found = graph(lambda x: (x + 1).clone(), X)
    assert no_ops.replacement(node(found, ATEN.clone.default)) is node(found, ATEN.add.Tensor)


def test_a_copy_of_an_input_or_of_what_is_read_again():
    assert no_ops.replacement(node(graph(lambda x: x.clone(), X), ATEN.clone.default)) is None

    def twice(x):
        y = x + 1
        return y.clone(), y

    assert no_ops.replacement(node(graph(twice, X), ATEN.clone.default)) is None


def test_a_copy_of_a_view():
    assert no_ops.replacement(node(graph(lambda x: x[0].clone(), X), ATEN.clone.default)) is None


def test_a_reshape_to_the_same_shape():
    found = graph(lambda x: (x.reshape(2, 3), x.reshape(3, 2)), X)
    reshapes = [each for each in found.graph.nodes if each.target is ATEN.reshape.default]
    assert [no_ops.replacement(each) is not None for each in reshapes] == [True, False]


def test_a_copy_that_is_only_a_result():
    def given(x):
        y = x + 1
        return y.clone(), y * 2, y.clone()

    copies = [each for each in graph(given, X).graph.nodes if each.target is ATEN.clone.default]
    assert [no_ops.replacement(each) is not None for each in copies] == [True, False]


def test_a_copy_that_is_only_read_and_one_of_what_is_written():
    read = graph(lambda x: x.clone() + 1, X)
    assert no_ops.replacement(node(read, ATEN.clone.default)) is not None

    def written(x):
        y = x.clone()
        x.add_(1)
        return y * 2

    assert no_ops.replacement(node(graph(written, X), ATEN.clone.default)) is None


def test_one_of_two_copies_is_left():
    found = graph(lambda x: x.clone().clone(), X)
    copies = [each for each in found.graph.nodes if each.target is ATEN.clone.default]
    assert sum(no_ops.replacement(each) is None for each in copies) == 1
