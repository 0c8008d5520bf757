"""The dispatch of a convolution: how it is cut, and what it computes for any sizes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.backends.iree.kernels import convolution, lowering
from aotpipe.backends.iree.kernels.convolution import Convolution, Registers
from tests.sweep import examples, sweep
from tests.unit.backends.iree.kernels.running import computed

AVX512 = Registers(16, 32)
THREE = st.tuples(*[st.integers(1, 3)] * 3)


@given(
    batch=st.sampled_from([None, 1, 2]),
    sizes=st.tuples(st.integers(1, 60), *[st.none() | st.integers(1, 60)] * 2),
    channels=st.integers(1, 40),
    outputs=st.integers(1, 200),
    groups=st.sampled_from([1, 2, 5]),
    registers=st.sampled_from([AVX512, Registers(8, 16), Registers(4, 16), Registers(4, 32)]),
)
def test_tiles_fit_the_registers_and_the_image(
    batch: int | None,
    sizes: tuple[int, int | None, int | None],
    channels: int,
    outputs: int,
    groups: int,
    registers: Registers,
) -> None:
    size = (batch, *sizes, channels * groups)
    conv = Convolution(size, outputs * groups, (1, 1, 1), (1, 1, 1), (1, 1, 1), groups)
    tiles = convolution.tiling(conv, registers)
    pixels = tiles.rows * tiles.columns
    assert pixels * tiles.vectors + tiles.vectors + 1 <= registers.number
    assert tiles.panels * tiles.width >= outputs > (tiles.panels - 1) * tiles.width
    _, height, width = conv.counts
    assert height is None or tiles.rows <= height
    assert width is None or tiles.columns <= width
    if None in (height, width):
        assert min(tiles.rows, tiles.columns) == 1
    if height is not None:
        # The last workgroup has a whole tile, too.
        assert (height % tiles.rows_of_group or tiles.rows) >= tiles.rows


CASES: list[tuple[Any, ...]] = [
    # size with None for what a call decides, what it decides, outputs, kernel, stride, dilation, groups
    ((1, 1, 9, 9, 8), [(1, 1, 9, 9, 8)], 64, (1, 3, 3), (1, 1, 1), (1, 1, 1), 1),
    ((2, 1, 12, 11, 3), [(2, 1, 12, 11, 3)], 20, (1, 3, 2), (1, 2, 3), (1, 2, 1), 1),
    ((1, 5, 6, 7, 4), [(1, 5, 6, 7, 4)], 33, (3, 2, 2), (2, 1, 1), (1, 1, 2), 1),
    ((1, 1, 8, 30, 24), [(1, 1, 8, 30, 24)], 24, (1, 3, 3), (1, 1, 1), (1, 1, 1), 3),
    (
        (None, 1, None, 1, 20),
        [(s, 1, n, 1, 20) for s, n in ((1, 1), (2, 7), (3, 70))],
        50,
        (1, 1, 1),
        *[(1,) * 3] * 2,
        1,
    ),
    ((1, 1, 5, None, 6), [(1, 1, 5, n, 6) for n in (3, 4, 21, 40)], 16, (1, 2, 3), (1, 1, 1), (1, 1, 1), 1),
    ((None, 1, None, None, 6), [(2, 1, 4, 5, 6), (1, 1, 33, 40, 6)], 12, (1, 3, 3), (1, 2, 2), (1, 1, 1), 1),
    ((1, 1, 9, 12, 48), [(1, 1, 9, 12, 48)], 48, (1, 3, 3), (1, 1, 1), (1, 1, 1), 48),
    ((2, 1, 9, 12, 37), [(2, 1, 9, 12, 37)], 37, (1, 1, 5), (1, 2, 1), (1, 1, 2), 37),
    ((1, 4, 6, None, 5), [(1, 4, 6, n, 5) for n in (5, 9, 20)], 5, (2, 3, 3), (1, 1, 2), (1, 1, 1), 5),
    ((1, 1, 1, 1, 5), [(1, 1, 1, 1, 5)], 1, (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("lanes", sweep([16, 4], quick=1))
def test_it_computes_what_torch_does(case: int, lanes: int) -> None:
    size, calls, outputs, kernel, stride, dilation, groups = CASES[case]
    conv = Convolution(size, outputs, kernel, stride, dilation, groups)
    _compare(conv, AVX512 if lanes == 16 else Registers(lanes, 16), calls)


@examples(quick=4, nightly=60)
@given(data=st.data(), kernel=THREE, stride=THREE, dilation=THREE, groups=st.sampled_from([1, 1, 2, 3]))
def test_it_does_for_any_sizes(data: Any, kernel: Any, stride: Any, dilation: Any, groups: int) -> None:
    reach = [spread * (width - 1) + 1 for spread, width in zip(dilation, kernel, strict=True)]
    sizes = [data.draw(st.integers(least, least + 20)) for least in reach]
    channels, outputs = data.draw(st.integers(1, 9)) * groups, data.draw(st.integers(1, 40)) * groups
    if data.draw(st.booleans()):
        groups = channels = outputs
    size: list[Any] = [data.draw(st.integers(1, 3)), *sizes, channels]
    call = tuple(size)
    for dim in (0, 2, 3):
        if data.draw(st.booleans()):
            size[dim] = None
    conv = Convolution(tuple(size), outputs, kernel, stride, dilation, groups)  # type: ignore[arg-type]
    _compare(conv, data.draw(st.sampled_from([AVX512, Registers(8, 16)])), [call])


def test_there_may_be_more_images_than_16_bits_count() -> None:
    conv = Convolution((None, 1, 3, 1, 1), 2, (1, 2, 1), (1, 1, 1), (1, 1, 1))
    _compare(conv, AVX512, [(70000, 1, 3, 1, 1)])


def test_double_precision() -> None:
    conv = Convolution((2, 1, 9, 7, 5), 20, (1, 3, 3), (1, 1, 1), (1, 1, 1), element="f64")
    _compare(conv, AVX512, [conv.size])


def _compare(conv: Convolution, registers: Registers, calls: list[Any]) -> None:
    tiles = convolution.tiling(conv, registers)
    dtype = {"f32": torch.float32, "f64": torch.float64}[conv.element]
    weight = torch.randn(conv.outputs, conv.size[4] // conv.groups, *conv.kernel, dtype=dtype)
    panels = np.zeros(
        (conv.parts, tiles.panels * tiles.width, conv.size[4] // conv.groups, prod(conv.kernel)),
        weight.numpy().dtype,
    )
    panels[:, : conv.outputs // conv.parts] = weight.reshape(conv.parts, -1, *panels.shape[2:]).numpy()
    panels = panels.reshape(conv.parts * tiles.panels, tiles.width, *panels.shape[2:]).transpose(0, 3, 2, 1)
    panels = np.ascontiguousarray(panels.reshape(panels.shape[0], -1, tiles.width))
    text = convolution.text(conv, tiles, "convolve")
    xs = [torch.randn(call, dtype=dtype) for call in calls]
    found = computed(text, [[x.numpy(), panels] for x in xs])
    for x, got in zip(xs, found, strict=True):
        want = torch.conv3d(
            x.permute(0, 4, 1, 2, 3), weight, None, conv.stride, 0, conv.dilation, conv.groups
        ).permute(0, 2, 3, 4, 1)
        torch.testing.assert_close(torch.from_numpy(got), want, rtol=1e-4, atol=1e-4)


def test_weights_are_put_into_panels() -> None:
    conv = Convolution((1, 1, 4, 4, 6), 40, (1, 3, 2), (1, 1, 1), (1, 1, 1), 2)
    tiles = convolution.tiling(conv, AVX512)
    weight = torch.randn(40, 3, 1, 3, 2)
    [panels] = computed(lowering.packing(conv, tiles), [[weight.numpy()]])
    assert panels.shape == (2 * tiles.panels, 18, tiles.width)
    # The second group's fifth output, of the second channel at row 1 and column 1 of the kernel.
    assert (
        panels[tiles.panels + 4 // tiles.width, (1 * 2 + 1) * 3 + 1, 4 % tiles.width]
        == weight[24, 1, 0, 1, 1]
    )
    assert not panels[tiles.panels - 1, :, 20 - (tiles.panels - 1) * tiles.width :].any()
