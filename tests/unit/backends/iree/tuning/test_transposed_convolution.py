"""Transposed convolutions as matmuls, and as convolutions of stride 1 whose channels are the phases."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning.convolution import transposed
from tests.programs.through import check, legal
from tests.sweep import examples
from tests.unit.backends.iree.decompositions.agree import check_op

EAGER = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
THREE = st.tuples(*[st.integers(1, 4)] * 3)


def tensor(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


@examples(quick=50, nightly=150)
@given(
    rank=st.integers(1, 3),
    sizes=THREE,
    kernel=THREE,
    stride=THREE,
    padding=st.tuples(*[st.integers(0, 3)] * 3),
    beyond=st.tuples(*[st.integers(0, 5)] * 3),
    dilation=THREE,
    groups=st.sampled_from([1, 2, 4]),
    biased=st.booleans(),
)
def test_any_stride_and_padding_is_eagers(
    rank: int,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    beyond: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    biased: bool,
) -> None:
    sizes, kernel, stride, padding, beyond, dilation = (
        each[:rank] for each in (sizes, kernel, stride, padding, beyond, dilation)
    )
    each = zip(beyond, stride, dilation, strict=True)
    assume(all(extra < max(step, spread) for extra, step, spread in each))
    x, weight = tensor(2, 4, *sizes), tensor(4, 3, *kernel)
    bias = tensor(3 * groups) if biased else None
    try:
        want = EAGER[rank - 1](x, weight, bias, stride, padding, beyond, groups, dilation)
    except RuntimeError:  # nothing is left
        return
    got = transposed(Convolution(x, weight, bias, stride, padding, dilation, True, beyond, groups))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (4, 2), (2, 3), (5, 3), (3, 1)])
def test_what_is_not_finite_stays_where_the_kernel_takes_it(kernel: int, stride: int) -> None:
    x, weight = tensor(1, 3, 5, 6), tensor(3, 2, kernel, kernel)
    x[0, 1, 2, 2], x[0, 2, 4, 5] = torch.inf, torch.nan
    got = transposed(Convolution(x, weight, None, [stride] * 2, [0, 0], [1, 1], True, [0, 0]))
    want = torch.conv_transpose2d(x, weight, None, stride)
    assert torch.equal(got.isfinite(), want.isfinite())
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


def convolutions(module: nn.Module, x: torch.Tensor) -> list[list[object]]:
    """Of each convolution of a program: its stride, and whether it is transposed."""
    [entry] = legal(module, (x,)).entries
    found = [node for node in entry.graph.graph.nodes if node.target is torch.ops.aten.convolution.default]
    return [[node.args[3], node.args[6]] for node in found]


def test_no_zeros_are_multiplied() -> None:
    x = tensor(1, 16, 8, 8)
    assert not convolutions(nn.ConvTranspose2d(16, 2, 2, stride=2), x)
    assert not any(is_transposed for _, is_transposed in convolutions(nn.ConvTranspose2d(16, 16, 4, 2, 1), x))


@pytest.mark.parametrize("settings_", [{"dilation": 2}, {"groups": 2}, {"groups": 4}], ids=str)
def test_nor_of_several_groups_or_with_gaps(settings_: dict[str, int]) -> None:
    layer = nn.ConvTranspose2d(4, 4, 3, stride=2, **settings_)
    assert not any(is_transposed for _, is_transposed in convolutions(layer, tensor(1, 4, 5, 5)))


def test_integers_are_the_compilers() -> None:
    x, weight = tensor(1, 2, 5).long(), tensor(2, 3, 4).long()
    assert transposed(Convolution(x, weight, None, [2], [0], [1], True, [0])) is NotImplemented


@pytest.mark.parametrize(
    "op",
    [
        "nn_functional_conv_transpose1d",
        "nn_functional_conv_transpose2d",
        pytest.param("nn_functional_conv_transpose3d", marks=pytest.mark.slow),
    ],
)
def test_samples_are_eagers(op: str) -> None:
    check_op(op, "float64")


# Quick ones over a batch that varies: `test_vmvx_windows`, and of volumes `test_convolution_3d`.
@pytest.mark.slow
@pytest.mark.parametrize(
    "layer", [nn.ConvTranspose2d(3, 5, 3, 2, 1, 1), nn.ConvTranspose2d(16, 16, 4, 2, 1)], ids=str
)
def test_programs_take_any_batch(layer: nn.Module) -> None:
    channels = layer.in_channels
    dims = ({0: Dim("batch", min=1, max=4)},)
    check(layer, (tensor(2, channels, 7, 6),), (tensor(1, channels, 7, 6),), dynamic_shapes=dims)


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [
        (nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2), torch.float16),
        *(
            pytest.param(layer, dtype, marks=pytest.mark.slow)
            for layer in (
                nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2),
                nn.ConvTranspose2d(4, 4, 3, 2, dilation=3, output_padding=1),
                nn.ConvTranspose2d(4, 4, 2, 2),
                nn.ConvTranspose1d(4, 6, 9, 4, 3, dilation=2),
                nn.ConvTranspose3d(4, 2, 3, 2, 1),
            )
            for dtype in (torch.float32, torch.float16)
        ),
    ],
    ids=str,
)
def test_programs_take_any_size(layer: nn.Module, dtype: torch.dtype) -> None:
    rank = len(layer.kernel_size)
    dims = {dim: Dim(f"size{dim}", min=3, max=12) for dim in range(2, 2 + rank)}
    calls = [(tensor(2, 4, *[7, 6, 5][:rank]).to(dtype),), (tensor(2, 4, *[3, 11, 4][:rank]).to(dtype),)]
    check(layer.to(dtype), *calls, dynamic_shapes=(dims,))
