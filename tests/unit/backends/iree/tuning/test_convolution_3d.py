"""Convolutions of volumes as those of images."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning.convolution import volume
from tests.programs.through import check
from tests.sweep import examples

THREE = st.tuples(*[st.integers(1, 3)] * 3)


def tensor(*sizes: int, whole: bool = False) -> torch.Tensor:
    found = torch.randn(*sizes, generator=torch.Generator().manual_seed(0))
    return (found * 9).long() if whole else found


@examples(quick=25, nightly=60)
@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 3),
    kernel=THREE,
    stride=THREE,
    padding=st.tuples(*[st.integers(0, 2)] * 3),
    dilation=THREE,
    groups=st.sampled_from([1, 2]),
    biased=st.booleans(),
    whole=st.booleans(),
)
def test_a_volume_is_convolved_layer_by_layer(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    biased: bool,
    whole: bool,
) -> None:
    reach = (each * (width - 1) + 1 for each, width in zip(dilation, kernel, strict=True))
    assume(all(size + 2 * border >= most for size, border, most in zip(sizes, padding, reach, strict=True)))
    x, weight = tensor(2, 4, *sizes, whole=whole), tensor(6, 4 // groups, *kernel, whole=whole)
    bias = tensor(6, whole=whole) if biased else None
    got = volume(Convolution(x, weight, bias, stride, padding, dilation, groups=groups))
    want = torch.conv3d(x, weight, bias, stride, padding, dilation, groups)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_programs_take_any_batch_and_depth() -> None:
    net = nn.Sequential(
        nn.Conv3d(2, 4, (3, 1, 3), padding=(1, 0, 1)), nn.ReLU(), nn.ConvTranspose3d(4, 2, 2, stride=2)
    )
    dims = ({0: Dim("batch", min=1, max=4), 2: Dim("depth", min=2, max=9)},)
    check(net, (tensor(2, 2, 3, 4, 5),), (tensor(1, 2, 7, 4, 5),), dynamic_shapes=dims)
