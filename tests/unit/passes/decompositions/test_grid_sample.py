"""Samples of volumes beside eager's, at and outside of the borders and at what is no number."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from aotpipe.passes.decompositions import grid_sample
from tests.unit.passes.legal import check, model, targets

ODD = [[math.nan, 0, 0], [math.inf, 0, 0.2], [-math.inf, 0, 0.2], [1, 1, 1], [-1, -1, -1], [0, 0, 5]]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1])
def test_equals_eager(mode, padding, align_corners):
    torch.manual_seed(0)
    volume, grid = torch.randn(2, 3, 4, 5, 6), torch.randn(2, 2, 3, 4, 3) * 1.3
    odd = torch.tensor(ODD).reshape(1, 1, 2, 3, 3).expand(2, -1, -1, -1, -1)
    # Where a dim has one voxel, eager reflects NaN and the infinities by way of an undefined cast.
    for x, points in ((volume, grid), (volume, odd), (volume[:, :, :1], grid), (volume[:0], grid[:0])):
        found = grid_sample.grid_sampler_3d(x, points, mode, padding, align_corners)
        torch.testing.assert_close(found, torch.grid_sampler_3d(x, points, mode, padding, align_corners))


def test_programs_have_it():
    def forward(model, x, grid):
        return F.grid_sample(x, grid, align_corners=False)

    program = check(model(forward), (torch.randn(1, 2, 3, 3, 3), torch.randn(1, 2, 2, 2, 3)))
    assert "grid_sampler_3d" not in str(targets(program))
