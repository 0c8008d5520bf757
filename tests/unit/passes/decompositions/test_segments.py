"""Reductions of segments beside eager's: empty segments, NaN, batches of lengths, offsets, a start value."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.passes.decompositions.segments import segment_reduce
from tests.unit.passes.legal import Runner, check, legal, model, targets

REDUCTIONS = ["sum", "mean", "prod", "max", "min"]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("initial", [None, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_equals_eager(reduce, initial, dtype):
    data = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    data[0, 1, 2] = math.nan
    lengths = torch.tensor([[3, 0, 2, 1], [0, 6, 0, 0]])
    offsets = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))
    for given in ({"lengths": lengths}, {"offsets": offsets, "unsafe": True}):
        options = {**given, "axis": 1, "initial": initial}
        wanted = torch.segment_reduce(data, reduce, **options)
        found = segment_reduce(data, reduce, **options)
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-3, equal_nan=True)
        found = segment_reduce(data.mT.contiguous().mT, reduce, **{**options, "axis": -2})
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_nothing_has_the_start_value(reduce):
    data, lengths = torch.zeros(0, 3), torch.tensor([0, 0])
    wanted = torch.segment_reduce(data, reduce, lengths=lengths, axis=0)
    torch.testing.assert_close(segment_reduce(data, reduce, lengths=lengths), wanted, equal_nan=True)


def test_a_program_checks_the_lengths():
    def forward(model, data, lengths):
        return torch.segment_reduce(data, "max", lengths=lengths, axis=0)

    good = (torch.arange(5.0), torch.tensor([2, 0, 3]))
    found = check(model(forward), good, (good[0] - 9, torch.tensor([5, 0, 0])))
    assert not {name for name in targets(found) if "segment" in name}
    run = Runner(legal(model(forward), good))
    for bad in ([2, 0, 2], [2, -1, 4]):
        run((good[0], torch.tensor(bad)))
        assert list(run.asserts.values()) == [False]
