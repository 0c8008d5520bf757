"""Convolutions that are left to the compiler's loops, with full columns and channels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from aotpipe.backends import legalization
from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.tuning import channels_last, im2col
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize
from tests.programs.through import check, legal
from tests.sweep import examples, sweep

TWO = st.tuples(*[st.integers(1, 3)] * 2)


def tensor(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


@examples(quick=35, nightly=100)
@given(
    batch=st.integers(0, 2),
    sizes=st.tuples(st.integers(2, 9), st.integers(2, 26)),
    kernel=st.tuples(*[st.integers(2, 4)] * 2),
    stride=TWO,
    padding=st.tuples(*[st.integers(0, 3)] * 2),
    dilation=TWO,
    outputs=st.sampled_from([1, 7, 16, 33]),
    biased=st.booleans(),
)
def test_equal_to_eager(
    batch: int,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    outputs: int,
    biased: bool,
) -> None:
    reach = (each * (width - 1) + 1 for each, width in zip(dilation, kernel, strict=True))
    assume(all(size + 2 * border >= most for size, border, most in zip(sizes, padding, reach, strict=True)))
    x, weight = tensor(batch, 8, *sizes), tensor(outputs, 8, *kernel)
    bias = tensor(outputs) if biased else None
    want = torch.conv2d(x, weight, bias, stride, padding, dilation)
    got = im2col.convolution(Convolution(x, weight, bias, stride, padding, dilation, groups=1))
    if got is NotImplemented:
        assert channels_last.suits(8, outputs, kernel, stride, want.shape[2:])
        assert want.shape[3] % 8 == outputs % 16 == 0
        assert any(padding)
        assert not channels_last.lacking(8)
    else:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "counts", "wanted"),
    [
        (32, 32, (3, 3), (1, 1), (32, 32), True),
        (32, 32, (3, 3), (2, 2), (32, 32), True),
        (32, 3, (2, 7), (1, 1), (9, 7), True),
        (768, 128, (3, 3), (1, 1), (8, 8), True),
        (3, 32, (3, 3), (1, 1), (32, 32), False),
        (32, 256, (3, 3), (1, 1), (32, 32), False),
        (512, 255, (3, 3), (1, 1), (32, 32), False),
        (32, 32, (1, 3), (1, 1), (32, 32), False),
        (32, 32, (3, 1), (1, 1), (32, 32), False),
        (32, 32, (4, 4), (1, 4), (32, 32), False),
        (32, 32, (3, 3), (1, 1), (1, 32), False),
        (32, 32, (3, 3), (1, 1), (32, 6), False),
    ],
)
def test_what_the_loops_are_fast_at(
    channels: int,
    outputs: int,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    counts: tuple[int, ...],
    wanted: bool,
) -> None:
    assert channels_last.suits(channels, outputs, kernel, stride, counts) is wanted


@pytest.mark.parametrize(
    ("channels", "wanted"), [(8, 0), (12, 0), (16, 6), (32, 2), (64, 4), (96, 10), (62, 0), (384, 2)]
)
def test_channels_are_taken_by_four_or_two(channels: int, wanted: int) -> None:
    assert channels_last.lacking(channels) == wanted


def test_added_channels_change_nothing() -> None:
    x, weight, bias = tensor(2, 32, 9, 17), tensor(5, 32, 3, 3), tensor(5)
    x[0, 0, 0, 0], x[1, 3, 4, 5] = torch.inf, torch.nan
    got = im2col.convolution(Convolution(x, weight, bias, [1, 1], [1, 1], [1, 1], groups=1))
    want = torch.conv2d(x, weight, bias, padding=1)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("outputs", [5, 16])
@pytest.mark.parametrize(("stride", "width"), sweep([(1, 10), (2, 17), (2, 18), (2, 34), (3, 30)], quick=3))
@pytest.mark.parametrize("padding", [0, 1])
def test_the_compiler_gets_full_columns_and_channels_and_nothing_cut_off(
    outputs: int, stride: int, width: int, padding: int
) -> None:
    module = nn.Conv2d(8, outputs, 3, (1, stride), padding=padding, dilation=(2, 1))
    if (width + 2 * padding - 3) // stride + 1 < 7:
        return
    [entry] = legal(module, (tensor(2, 8, 12, width),)).entries
    [found] = [node for node in entry.graph.graph.nodes if "convolution" in str(node.target)]
    shape = found.meta["val"].shape
    assert shape[1] % 16 == shape[3] % 8 == 0
    padded = entry.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.constant_pad_nd.default)
    assert all(min(node.args[1]) >= 0 for node in padded)
    # Of an image that nothing is added to, the compiler would read the channels where they are.
    assert found.args[0] in padded or any(found.args[4])


@pytest.mark.parametrize("varies", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_programs_take_any_batch(varies: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(8, 24, 3, 2, padding=1), nn.ReLU(), nn.Conv2d(24, 7, (2, 4), dilation=(2, 1), bias=False)
    )
    dims = ({0: Dim("batch", min=1, max=4)},)
    if varies:
        check(net, *[(tensor(batch, 8, 22, 41),) for batch in (2, 1, 4)], dynamic_shapes=dims)
    else:
        check(net, (tensor(2, 8, 22, 41),))


class Multiplied(nn.Module):
    """What a convolution gives, by a product that reads it after elementwise ops and views."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.between = between
        self.convolution = nn.Conv2d(8, 16, 3, padding=1)
        self.line = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.line(self.between(self.convolution(x).movedim(1, -1)))
        return found


@pytest.mark.parametrize(
    ("between", "count"),
    [
        (lambda x: x, 1),
        (lambda x: (x.relu() * x.sigmoid() + 1).flatten(0, 2), 1),
        (lambda x: x[:, 0:8].relu(), 1),
        (lambda x: x.softmax(-1), 0),
        (lambda x: x[:, 1:], 0),
    ],
)
def test_products_of_convolved_images_read_a_buffer(
    between: Callable[[torch.Tensor], torch.Tensor], count: int
) -> None:
    net, x = Multiplied(between), tensor(2, 8, 8, 8)
    [entry] = legal(net, (x,)).entries
    found = [source for node in entry.graph.graph.nodes for source in channels_last.own_buffers(node)]
    assert len(found) == count


def test_products_of_other_devices_read_what_the_compiler_makes_of_it() -> None:
    canonical = canonicalize(as_spec(Multiplied(torch.relu), args=(tensor(2, 8, 8, 8),)))
    [entry] = legalize(export(canonical), legalization("torch-gpu")).entries
    assert not any(map(channels_last.own_buffers, entry.graph.graph.nodes))


def test_numbers_of_products_of_convolved_images_are_eagers() -> None:
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1))
    check(net, (tensor(2, 8, 8, 8),))
    volumes = nn.Sequential(nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 4, 1))
    check(volumes, (tensor(1, 8, 4, 8, 8),), (tensor(1, 8, 4, 8, 8).fill_(float("nan")),))
