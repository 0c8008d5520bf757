"""A number beside float32 tensors is the nearest float32, as torch has it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotpipe.backends.iree.fixes.graphs import float_rounding
from tests.canaries import canary
from tests.programs import through


class Thresholds(torch.nn.Module):
    def forward(self, x, i):
        some = torch.where(i > 3, x / 0.3, x * 0.6)
        return x / 0.6, x * 0.1, x > 0.6, (i / 0.6).floor(), x - 0.6, x.clamp(0.1, 0.6), some


X = torch.cat([torch.arange(1.0, 200.0), torch.tensor([0.6, 0.1, 0.3, 0.7])])
CALL = (X, torch.arange(203))


def answers(module: torch.nn.Module, call: through.Call) -> list[tuple[np.ndarray, np.ndarray]]:
    program = through.legal(module, call)
    with through.load(program, through.importer.lower(program)) as runner:
        names = [leaf.name for leaf in program.entries[0].signature.tensor_inputs]
        got = runner.infer(dict(zip(names, (each.numpy() for each in call), strict=True)))
    return list(zip(got.values(), (each.numpy() for each in module(*call)), strict=True))


def test_the_answers_are_torchs_to_the_bit():
    for got, want in answers(Thresholds(), CALL):
        np.testing.assert_array_equal(got, want)


@canary(float_rounding.FIX)
def test_iree_rounds_to_the_nearest_without():
    for got, want in answers(Thresholds(), CALL):
        np.testing.assert_array_equal(got, want)


def test_beside_float64_numbers_keep_their_digits():
    class Wide(torch.nn.Module):
        def forward(self, x, y):
            return x / 0.6, y / 0.6, y > 0.6

    for got, want in answers(Wide(), (X[:50].double(), X[-50:])):
        np.testing.assert_allclose(got, want, rtol=1e-15 if got.dtype == np.float64 else 1e-7)


@pytest.mark.parametrize("value", [0.5, math.inf, -math.inf, 1e300, 0.0])
def test_what_has_no_nearer_one_stays(value: float):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.mul.Scalar, (x, value))
    graph.output(node)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    float_rounding.round_to_nearest([module])
    assert node.args == (x, value)
    node.args = (x, 0.1)
    float_rounding.round_to_nearest([module])
    assert node.args == (x, float(np.float32(0.1)))


def test_a_graph_with_float64_is_computed_in_it():
    def graph(dtype: torch.dtype) -> torch.fx.GraphModule:
        module = torch.fx.symbolic_trace(torch.nn.Identity())
        for node in module.graph.nodes:
            node.meta["val"] = torch.empty(2, dtype=dtype)
        return module

    assert float_rounding.are_narrowed([graph(torch.float32), graph(torch.bfloat16)])
    assert not float_rounding.are_narrowed([graph(torch.float32), graph(torch.float64)])
