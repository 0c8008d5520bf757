"""Convolutions as matmuls of their windows, and depthwise ones as sums of shifted images."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from aotpipe.legalize.decompositions import loops, patches
from tests.programs.through import check, legal

TWO = st.tuples(*[st.integers(1, 3)] * 2)


def tensor(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0)).to(dtype)


@settings(deadline=None, max_examples=150)
@given(
    rank=st.sampled_from([1, 2]),
    batch=st.integers(0, 2),
    sizes=st.tuples(*[st.integers(1, 8)] * 2),
    kernel=TWO,
    stride=TWO,
    padding=st.tuples(*[st.integers(0, 2)] * 2),
    dilation=TWO,
    channels=st.sampled_from([1, 3, 16]),
    outputs=st.sampled_from([1, 2]),
    depthwise=st.booleans(),
    biased=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_equal_to_eager(
    rank: int,
    batch: int,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    channels: int,
    outputs: int,
    depthwise: bool,
    biased: bool,
    dtype: torch.dtype,
) -> None:
    sizes, kernel, stride, padding, dilation = (
        each[:rank] for each in (sizes, kernel, stride, padding, dilation)
    )
    reach = (each * (width - 1) + 1 for each, width in zip(dilation, kernel, strict=True))
    assume(all(size + 2 * border >= most for size, border, most in zip(sizes, padding, reach, strict=True)))
    groups = channels if depthwise else 1
    x = tensor(batch, channels, *sizes, dtype=dtype)
    weight = tensor(channels * outputs, channels // groups, *kernel, dtype=dtype)
    bias = tensor(channels * outputs, dtype=dtype) if biased else None
    got = patches.convolution(x, weight, bias, stride, padding, dilation, groups)
    want = (torch.conv1d, torch.conv2d)[rank - 1](x, weight, bias, stride, padding, dilation, groups)
    if got is NotImplemented:
        counts = want.shape[2:]
        is_looped = groups == 1 and loops.suits(channels, weight.shape[0], kernel, stride, counts)
        assert is_looped or (groups > 1 and stride[-1] > 2)
        return
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def left(module: nn.Module, x: torch.Tensor, *, varies: bool = False) -> bool:
    """Whether a convolution is left to the compiler."""
    options = {"dynamic_shapes": ({0: Dim("batch", min=1, max=64)},)} if varies else {}
    [entry] = legal(module, (x,), **options).entries
    return any("convolution" in str(node.target) for node in entry.graph.graph.nodes)


@pytest.mark.parametrize(
    ("module", "sizes", "fixed", "varying"),
    [
        (nn.Conv2d(24, 32, 1), (24, 56, 56), False, False),
        (nn.Conv2d(24, 32, 1), (24, 14, 14), False, False),
        (nn.Conv2d(24, 32, 1, 2), (24, 56, 56), False, False),
        (nn.Conv2d(64, 8, 3, padding=1), (64, 28, 28), True, True),
        (nn.Conv2d(64, 8, 3, padding=1), (64, 112, 112), True, True),
        (nn.Conv2d(64, 300, 3, padding=1), (64, 28, 28), False, False),
        (nn.Conv2d(64, 300, 3, padding=1), (64, 56, 56), True, False),
        (nn.Conv2d(64, 64, (1, 3)), (64, 28, 28), False, False),
        (nn.Conv2d(3, 64, 7, 2), (3, 224, 224), False, False),
        (nn.Conv1d(1, 128, 512, 4), (1, 1024), False, False),
        (nn.Conv2d(32, 32, 3, groups=32), (32, 56, 56), False, False),
        (nn.Conv2d(32, 64, 3, 2, groups=32), (32, 56, 56), False, False),
        (nn.Conv2d(32, 32, 3, 4, groups=32), (32, 56, 56), True, True),
        (nn.Conv2d(32, 32, 3, groups=4), (32, 14, 14), True, True),
        (nn.ConvTranspose2d(8, 8, 3, stride=2), (8, 14, 14), True, True),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_the_compiler_keeps_what_it_is_as_fast_at(
    module: nn.Module, sizes: tuple[int, ...], fixed: bool, varying: bool
) -> None:
    x = tensor(2, *sizes)
    assert left(module, x) is fixed
    assert left(module, x, varies=True) is varying


def test_half_precision_and_integers_are_the_compilers() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.complex64):
        x, weight = tensor(1, 3, 4, 4).to(dtype), tensor(2, 3, 3, 3).to(dtype)
        found = patches.convolution(x, weight, None, [1, 1], [0, 0], [1, 1], 1)
        assert found is NotImplemented


def test_images_of_any_size_are_the_compilers() -> None:
    dims = ({2: Dim("height", min=3, max=9)},)
    [entry] = legal(nn.Conv2d(2, 2, 3, padding=1), (tensor(1, 2, 5, 4),), dynamic_shapes=dims).entries
    assert any("convolution" in str(node.target) for node in entry.graph.graph.nodes)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [
                nn.Conv2d(2, 16, 3, 2, padding=1, bias=False),
                nn.Conv2d(16, 16, (3, 2), dilation=2, padding=2),
                nn.Conv2d(16, 32, 5, padding=2, groups=16),
                nn.Conv2d(32, 32, 3, 2, padding=1, groups=32),
                nn.Conv2d(32, 4, 1),
                nn.Conv2d(4, 4, 1, 2),
            ]
        )
        self.line = nn.Conv1d(4, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x).relu()
        return self.line(x.flatten(2))


@pytest.mark.parametrize("backend", ["llvm-cpu", "vmvx"])
def test_programs_take_any_batch(backend: str) -> None:
    torch.manual_seed(0)
    dims = ({0: Dim("batch", min=1, max=4)},)
    calls = [(tensor(batch, 2, 24, 20),) for batch in (2, 1, 4)]
    check(Net(), *calls, backend=backend, dynamic_shapes=dims)


def test_programs_of_a_fixed_batch() -> None:
    torch.manual_seed(0)
    check(Net(), (tensor(2, 2, 24, 20),))


def test_what_wide_kernels_meet_is_read_at_once() -> None:
    """Cuts would be a kernel of the compiler's each, and tables a part of the program."""
    many, one = (nn.Conv1d(16, 4, 64), tensor(2, 16, 90)), (nn.Conv1d(1, 4, 512, 4), tensor(2, 1, 1532))
    for module, x in (many, one):
        [entry] = legal(module, (x,)).entries
        targets = [str(node.target) for node in entry.graph.graph.nodes]
        assert "aten.unfold.default" in targets
        assert not any("cat" in target for target in targets)
        check(module, (x,))


def test_they_are_left_where_nobody_compiles() -> None:
    module, x = nn.Conv2d(24, 32, 1), tensor(2, 24, 14, 14)
    with patches.left_out():
        assert left(module, x)
    assert not left(module, x)
