"""Histograms beside eager's: bins by number and by edges, weights, density, and what lies outside."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from aotpipe.passes.decompositions import histograms
from tests.unit.passes.legal import Runner, check, legal, model, targets

same = torch.testing.assert_close


@pytest.mark.parametrize("count", [0, 1, 57])
def test_one_dim_is_eagers(count):
    torch.manual_seed(count)
    x, weight = torch.randn(count, 1), torch.rand(count, 1)
    for bins, ends, density in product((1, 5, 10), (None, (-1.0, 1.0), (1.0, 1.0)), (False, True)):
        for shares in (None, weight):
            options = {"range": ends, "weight": shares, "density": density}
            found, wanted = histograms.histogram(x, bins, **options), torch.histogram(x, bins, **options)
            same(found, tuple(wanted), equal_nan=True)


def test_an_element_on_an_edge_is_in_the_bin_to_the_right():
    x, edges = torch.tensor([1.0, 2, 3, 4, 9, math.nan, 0]), torch.tensor([1.0, 2, 4])
    same(histograms.histogram_of_edges(x, edges), tuple(torch.histogram(x, edges)))


@pytest.mark.parametrize("ends", [None, [-1.0, 1, -2, 2, 0, 1]], ids=str)
def test_several_dims_are_eagers(ends):
    torch.manual_seed(0)
    x, weight, bins = torch.randn(4, 10, 3), torch.rand(4, 10), [3, 4, 2]
    for density in (False, True):
        wanted = torch.histogramdd(x, bins, range=ends, weight=weight, density=density)
        found = histograms.histogramdd(x, bins, range=ends, weight=weight, density=density)
        same(found, wanted.hist)
        same(histograms.bin_edges(x, bins, range=ends), list(wanted.bin_edges))


def test_programs_have_them():
    def forward(model, x):
        one = torch.histogram(x, 5, range=(-1.0, 1.0))
        several = torch.histogramdd(x.reshape(-1, 2), [2, 3])
        return *torch.histogram(x, 4), *one, several.hist, *several.bin_edges

    program = check(model(forward), (torch.randn(3, 4),), (torch.randn(3, 4),))
    assert not [name for name in targets(program) if "histogram" in name]


def test_values_without_a_range_have_to_be_finite():
    program = legal(model(lambda model, x: torch.histogram(x, 4)[0]), (torch.ones(3),))
    run = Runner(program)
    run((torch.tensor([1.0, math.inf, 2.0]),))
    assert not all(run.asserts.values())
    run((torch.ones(3),))
    assert all(run.asserts.values())


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8], ids=str)
def test_counts_of_integers_are_as_many_as_the_largest(dtype):
    def forward(model, x, weights):
        counts = torch.bincount(x), torch.bincount(x, minlength=6), torch.bincount(x, weights)
        return *counts, torch.bincount(x, weights.double(), 5), torch.bincount(x[:0], minlength=2)

    def call(*values):
        x = torch.tensor(values, dtype=dtype)
        return x, torch.rand(x.shape)

    rows = torch.export.Dim.AUTO
    program = check(
        model(forward),
        *(call(0, 3, 3), call(9, 1), call(0), call(2, 5, 5, 5)),
        dynamic_shapes={"x": {0: rows}, "weights": {0: rows}},
    )
    assert not [name for name in targets(program) if "bincount" in name]


def test_counts_of_negative_integers_fail_an_assert():
    run = Runner(legal(model(lambda model, x: torch.bincount(x)), (torch.tensor([3, 1]),)))
    for values in ([-1, 3], [-5, -1]):
        run((torch.tensor(values),))
        assert [text.partition(" (")[0] for text, holds in run.asserts.items() if not holds] == [
            "bincount only supports 1-d non-negative integral inputs"
        ]
    run((torch.tensor([0, 0]),))
    assert all(run.asserts.values())
