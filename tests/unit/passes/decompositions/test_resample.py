"""Interpolation and grid sampling, equal to eager on torch's own samples and over scales."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from tests.programs.through import Together, check
from tests.sweep import examples, sweep
from tests.unit.backends.iree.decompositions.agree import check_op, decomposed

OPS = [
    "nn_functional_interpolate_linear",
    "nn_functional_interpolate_bilinear",
    "nn_functional_interpolate_nearest-exact",
]
# The tests below are of these.
OTHERS = ["nn_functional_interpolate_nearest", "_upsample_bilinear2d_aa"]
# Each sample of these takes as long as all of another op.
LARGE = ["nn_functional_interpolate_bicubic", "nn_functional_interpolate_trilinear", "grid_sampler_2d"]


@pytest.mark.parametrize("op", [*OPS, *(pytest.param(op, marks=pytest.mark.slow) for op in OTHERS)])
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS if op in OPS else OTHERS)


@pytest.mark.parametrize("count", sweep([1, 4], quick=1))
@pytest.mark.parametrize("op", LARGE)
def test_large_ones_are_equal_to_eager(op: str, count: int) -> None:
    check_op(op, "float32", among=LARGE, count=count)


class Resized(torch.nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return interpolate(x, **self.options)


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
def test_antialiased(wanted: dict[str, object]) -> None:
    x = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    module = Together(
        Resized(mode=mode, align_corners=align_corners, antialias=True, **wanted)
        for mode in ("bilinear", "bicubic")
        for align_corners in (False, True)
    )
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


@examples(quick=2, nightly=20)
@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(
            st.integers(1, 40), st.none() | st.floats(0.3, 4.0), st.sampled_from(["nearest", "nearest-exact"])
        ),
        min_size=6,
        max_size=6,
    ),
)
def test_nearest(size: int, calls: list[tuple[int, float | None, str]]) -> None:
    x = torch.arange(2.0 * size).reshape(1, 2, size)
    module = Together(
        Resized(mode=mode, **({"size": (out,)} if factor is None else {"scale_factor": factor}))
        for out, factor, mode in calls
        if factor is None or size * factor >= 1
    )
    if not module.models:
        return
    for got, want in zip(decomposed(module, (x,)).module()(x), module(x), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "several",
    sweep(
        [
            [
                {"mode": "nearest", "scale_factor": 3},
                {"mode": "nearest-exact", "scale_factor": (1.5, 0.5, 2.7)},
            ],
            [
                {"mode": "nearest-exact", "scale_factor": 3},
                {"mode": "nearest", "size": (9, 2, 7)},
                {"mode": "nearest-exact", "size": (9, 2, 7)},
                {"mode": "nearest", "scale_factor": (1.5, 0.5, 2.7)},
            ],
        ],
        quick=1,
    ),
)
def test_nearest_compiles(several: list[dict[str, object]]) -> None:
    module = Together(Resized(**options) for options in several)
    check(module, (torch.randn(2, 3, 3, 4, 5, generator=torch.Generator().manual_seed(0)),))


class Direct(torch.nn.Module):
    """Calls of the ops that `interpolate` is made of, which torch counts among the composite ones."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        aten = torch.ops.aten
        return (
            aten.upsample_nearest2d.default(x, [11, 13], 2.3, 1.9),
            aten.upsample_nearest2d.default(x, [3, 4]),
            aten._upsample_nearest_exact2d.default(x, [11, 13], 2.3, 1.9),
            aten.upsample_nearest2d.default(x, [9, 33], 0.5, 2.3),
        )


def test_ops_of_nearest_that_are_called_by_name() -> None:
    check(Direct(), (torch.randn(1, 2, 5, 7, generator=torch.Generator().manual_seed(0)),))


FACTORS = (1.05, 2.1, 1.5)


class Scaled(torch.nn.Module):
    """Factors by which some sizes stay, or double, which eager's kernels for few pixels do not look at."""

    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        self.rank = rank

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rest = (1.0,) * (self.rank - 1)
        return [interpolate(x, scale_factor=(*rest, by)) for by in FACTORS]


@pytest.mark.parametrize(("height", "channels"), sweep(product([3, 140, 1], [4, 3]), quick=1))
def test_factors_that_eager_ignores(height: int, channels: int) -> None:
    x = torch.arange(7.0).expand(1, channels, height, 7)
    deep = x[:, :, None].contiguous(memory_format=torch.channels_last_3d)
    for image in (x.contiguous(), x.contiguous(memory_format=torch.channels_last), deep, x[:, :, 0]):
        model = Scaled(image.dim() - 2)
        for got, want in zip(decomposed(model, (image,)).module()(image), model(image), strict=True):
            assert torch.equal(got, want)


@pytest.mark.parametrize("height", sweep([60, 3, 140], quick=1))
def test_factors_that_eager_ignores_at_some_sizes(height: int) -> None:
    x = torch.randn(1, 2, height, 7)
    program = decomposed(Scaled(), (x,), {"x": {3: torch.export.Dim("n", min=4, max=90)}})
    for size in (4, 9, 10, 19, 20, 21, 60, 65, 66, 90):
        x = torch.randn(1, 2, height, size)
        for got, want in zip(program.module()(x), Scaled()(x), strict=True):
            assert torch.equal(got, want), size


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        half = x[:, :, ::2]
        return [
            interpolate(x, scale_factor=3),
            interpolate(x, size=(2 * x.shape[2],), mode="nearest-exact"),
            interpolate(half, scale_factor=2.0),
            interpolate(x, size=(x.shape[2] + 3,)),
        ]


def test_whole_factors_of_sizes_that_vary_repeat_pixels() -> None:
    """IREE refused the gather by computed places of a size such as `2 * (n // 2)`."""
    module = Doubled()
    x = torch.arange(24.0).reshape(1, 2, 12)
    program = decomposed(module, (x,), {"x": {2: torch.export.Dim("n", min=4, max=40)}})
    gathers = [node for node in program.graph.nodes if "index" in str(node.target)]
    assert len(gathers) == 1
    for size in (4, 7, 40):
        y = torch.randn(1, 2, size)
        for got, want in zip(program.module()(y), module(y), strict=True):
            assert torch.equal(got, want)


class Ranges(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        n = x.shape[0]
        return [torch.arange(n, dtype=torch.float32), torch.arange(2, n + 3, 2, dtype=torch.float64)]


def test_ranges_of_floats_count_in_integers_where_their_size_varies() -> None:
    """IREE counts the elements in the dtype of the range, of which float32 has no odd number above 2**24."""
    module = Ranges()
    program = decomposed(module, (torch.ones(6),), {"x": {0: torch.export.Dim("n", min=2, max=40)}})
    ranges = [node for node in program.graph.nodes if "arange" in str(node.target)]
    assert {node.meta["val"].dtype for node in ranges} == {torch.int64}
    for got, want in zip(program.module()(torch.ones(9)), module(torch.ones(9)), strict=True):
        assert torch.equal(got, want)
        assert got.dtype == want.dtype
