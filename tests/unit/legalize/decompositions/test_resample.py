"""Interpolation and grid sampling, equal to eager on torch's own samples and over scales."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import interpolate

from tests.programs.through import check
from tests.unit.legalize.decompositions.agree import check_op, decomposed


@pytest.mark.parametrize(
    "op",
    [
        "nn_functional_interpolate_linear",
        "nn_functional_interpolate_bilinear",
        "nn_functional_interpolate_bicubic",
        "nn_functional_interpolate_trilinear",
        "_upsample_bilinear2d_aa",
        "grid_sampler_2d",
    ],
)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", count=8)


class Resized(torch.nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return interpolate(x, **self.options)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    "wanted",
    [{"size": (3, 11)}, {"size": (1, 1)}, {"scale_factor": (0.4, 1.7)}, {"scale_factor": 2.0}],
    ids=["size", "one", "factors", "double"],
)
def test_antialiased(mode: str, align_corners: bool, wanted: dict[str, object]) -> None:
    x = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    module = Resized(mode=mode, align_corners=align_corners, antialias=True, **wanted)
    program = decomposed(module, (x,))
    assert not any("_aa" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"scale_factor": 2, "mode": "bilinear"}, {"size": (7, 5), "mode": "bilinear", "align_corners": True}],
    ids=["factor", "size"],
)
def test_compiles(options: dict[str, object]) -> None:
    check(Resized(**options), (torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)),))
