"""Interpolation and grid sampling, equal to eager on torch's own samples and over scales."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op, decomposed

OPS = [
    "nn_functional_interpolate_linear",
    "nn_functional_interpolate_bilinear",
    "nn_functional_interpolate_bicubic",
    "nn_functional_interpolate_trilinear",
    "nn_functional_interpolate_nearest",
    "nn_functional_interpolate_nearest-exact",
    "_upsample_bilinear2d_aa",
    "grid_sampler_2d",
]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


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
    sweep(
        [
            pytest.param({"size": (3, 11)}, id="size"),
            pytest.param({"size": (1, 1)}, id="one"),
            pytest.param({"scale_factor": 2.0}, id="double"),
            pytest.param({"scale_factor": (0.4, 1.7)}, id="factors"),
        ],
        quick=2,
    ),
)
def test_antialiased(mode: str, align_corners: bool, wanted: dict[str, object]) -> None:
    x = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    module = Resized(mode=mode, align_corners=align_corners, antialias=True, **wanted)
    program = decomposed(module, (x,))
    assert not any("_aa" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    sweep(
        [
            pytest.param({"scale_factor": 2, "mode": "bilinear"}, id="factor"),
            pytest.param({"size": (7, 5), "mode": "bilinear", "align_corners": True}, id="size"),
        ],
        quick=1,
    ),
)
def test_compiles(options: dict[str, object]) -> None:
    check(Resized(**options), (torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)),))


@settings(deadline=None, max_examples=20)
@given(
    st.integers(1, 12),
    st.integers(1, 40),
    st.none() | st.floats(0.3, 4.0),
    st.sampled_from(["nearest", "nearest-exact"]),
)
def test_nearest(size: int, out: int, factor: float | None, mode: str) -> None:
    x = torch.arange(2.0 * size).reshape(1, 2, size)
    wanted = {"size": (out,)} if factor is None else {"scale_factor": factor}
    if factor is not None and size * factor < 1:
        return
    module = Resized(mode=mode, **wanted)
    assert torch.equal(decomposed(module, (x,)).module()(x), module(x))


def test_nearest_compiles() -> None:
    class Both(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [
                interpolate(x, mode=mode, **wanted)
                for mode in ("nearest", "nearest-exact")
                for wanted in ({"scale_factor": 3}, {"size": (9, 2, 7)}, {"scale_factor": (1.5, 0.5, 2.7)})
            ]

    check(Both(), (torch.randn(2, 3, 3, 4, 5, generator=torch.Generator().manual_seed(0)),))
