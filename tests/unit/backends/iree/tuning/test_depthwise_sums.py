"""Depthwise convolutions as sums of shifted images, and what any convolution computes on a CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.decompositions.windows import Convolution
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import vmvx_windows
from aotpipe.backends.iree.lower import importer
from aotpipe.backends.iree.tuning import convolution, depthwise_sums
from aotpipe.core.targets import Target
from tests.programs import with_kernels
from tests.programs.through import Call, check, compare, legal, load
from tests.sweep import examples, sweep

TWO = st.tuples(*[st.integers(1, 3)] * 2)


def tensor(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0)).to(dtype)


def formed(given: Convolution) -> Any:
    """A convolution as the ops of a CPU's program."""
    return convolution.on_cpu(*given._replace(output_padding=[0] * len(given.stride)))


@examples(quick=50, nightly=150)
@given(
    rank=st.sampled_from([1, 2]),
    batch=st.integers(0, 2),
    sizes=st.tuples(*[st.integers(1, 8)] * 2),
    kernel=TWO,
    stride=TWO,
    padding=st.tuples(*[st.integers(0, 2)] * 2),
    dilation=TWO,
    channels=st.sampled_from([1, 3, 16, 80]),
    outputs=st.sampled_from([1, 2]),
    each=st.sampled_from([1, 2, 4, 16]),
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
    each: int,
    biased: bool,
    dtype: torch.dtype,
) -> None:
    sizes, kernel, stride, padding, dilation = (
        each[:rank] for each in (sizes, kernel, stride, padding, dilation)
    )
    assume(channels % each == 0)
    reach = (spread * (width - 1) + 1 for spread, width in zip(dilation, kernel, strict=True))
    assume(all(size + 2 * border >= most for size, border, most in zip(sizes, padding, reach, strict=True)))
    groups = channels // each
    x = tensor(batch, channels, *sizes, dtype=dtype)
    weight = tensor(channels * outputs, channels // groups, *kernel, dtype=dtype)
    bias = tensor(channels * outputs, dtype=dtype) if biased else None
    got = formed(Convolution(x, weight, bias, stride, padding, dilation, groups=groups))
    want = (torch.conv1d, torch.conv2d)[rank - 1](x, weight, bias, stride, padding, dilation, groups)
    if got is NotImplemented:
        assert batch == 0
        return
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def left(module: nn.Module, x: torch.Tensor, *, varies: bool = False) -> bool:
    """Whether a convolution is left to the compiler."""
    options = {"dynamic_shapes": ({0: Dim("batch", min=1, max=64)},)} if varies else {}
    [entry] = legal(module, (x,), **options).entries
    return any("aten.convolution" in str(node.target) for node in entry.graph.graph.nodes)


@pytest.mark.parametrize(
    ("module", "sizes", "fixed", "varying"),
    sweep(
        [
            (nn.Conv2d(64, 8, 3, padding=1), (64, 28, 28), False, False),
            (nn.Conv2d(32, 32, 3, groups=32), (32, 56, 56), False, False),
            (nn.Conv2d(32, 64, 3, 2, groups=32), (32, 56, 56), False, False),
            (nn.Conv2d(4, 4, 13, groups=4), (4, 56, 56), True, True),
            (nn.Conv2d(16, 16, 3, groups=4), (16, 14, 14), False, False),
        ],
        quick=5,
    ),
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
        x, weight = tensor(1, 3, 4, 4).to(dtype), tensor(3, 1, 3, 3).to(dtype)
        found = depthwise_sums.convolution(Convolution(x, weight, None, [1, 1], [0, 0], [1, 1], groups=3))
        assert found is NotImplemented


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_lines_in_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    x, weight, bias = (tensor(*sizes).to(dtype) for sizes in ((2, 16, 40), (8, 16, 3), (8,)))
    got = formed(Convolution(x, weight, bias, [2], [1], [1], groups=1))
    wide = torch.conv1d(x.double(), weight.double(), bias.double(), 2, 1)
    assert torch.equal(got, wide.to(dtype))


@pytest.mark.parametrize("groups", [1, 2, 48])
@pytest.mark.parametrize("stride", [1, 2])
def test_what_is_not_finite_stays_where_the_kernel_takes_it(groups: int, stride: int) -> None:
    x, weight = tensor(1, 48, 9, 10), tensor(48, 48 // groups, 3, 3)
    x[0, 1, 0, 2], x[0, 47, 8, 9], x[0, 5, 4, 4] = torch.inf, torch.nan, -torch.inf
    got = formed(Convolution(x, weight, None, [stride] * 2, [1, 1], [1, 1], groups=groups))
    want = torch.conv2d(x, weight, None, stride, 1, 1, groups)
    got = want if got is NotImplemented else got
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


def run(module: nn.Module, *calls: Call, backend: str = "llvm-cpu", **options: Any) -> list[str]:
    """Compare program and eager as `check` does; what the program calls."""
    program = legal(module, calls[0], **options)
    with load(program, importer.lower(program), backend) as runner:
        for call in calls:
            compare(runner, program, module, call)
    return [str(node.target) for node in program.entries[0].graph.graph.nodes]


class Sized(nn.Module):
    """Layers over sizes that vary."""

    def __init__(self, rank: int, groups: int, *, whole: bool) -> None:
        super().__init__()
        layer: type[nn.Conv1d | nn.Conv2d] = (nn.Conv1d, nn.Conv2d)[rank - 1]
        parts = [
            layer(4, 16, 3, padding="same", dilation=2, groups=groups),
            layer(16, 32, 4, 3, padding=2, groups=groups),
            layer(32, 32, 3, 2, padding=1, groups=32 if groups > 1 else 1),
            layer(32, 6, 1, 2, groups=groups),
        ]
        # `Net` has gaps, and `test_wide_depthwise_lines_of_any_length` one of the third kind.
        few = [layer(4, 32, 4, 3, padding=2, groups=groups), parts[3]]
        self.parts = nn.ModuleList(parts if whole else few)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x).sin()
        return x


@pytest.mark.parametrize(
    ("rank", "groups", "backend", "whole"),
    sweep(
        [
            (1, 2, "llvm-cpu", False),
            (1, 2, "llvm-cpu", True),
            (1, 1, "vmvx", True),
            (2, 1, "llvm-cpu", True),
            (2, 2, "vmvx", True),
        ],
        quick=1,
    ),
)
def test_programs_take_any_size(rank: int, groups: int, backend: str, whole: bool) -> None:
    torch.manual_seed(0)
    dims = {0: Dim("batch", min=1, max=4), 2: Dim("height", min=20, max=90)}
    dims |= {3: Dim("width", min=20, max=90)} if rank == 2 else {}
    sizes = [(2, 40, 31), (1, 21, 20), (3, 64, 57), (4, 33, 90)]
    calls = [(tensor(batch, 4, *each[:rank]),) for batch, *each in sizes]
    targets = run(Sized(rank, groups, whole=whole), *calls, backend=backend, dynamic_shapes=(dims,))
    assert not any("aten.convolution" in target for target in targets)


def test_lines_of_any_length_are_compiled_once() -> None:
    """With the channels last the compiler refused them, and was called again without."""
    module = nn.Conv1d(80, 64, 3, padding=1)
    lowered = importer.lower(
        legal(module, (tensor(1, 80, 100),), dynamic_shapes=({2: Dim("time", min=8, max=900)},))
    )
    assert not compiler.compile(lowered, Target.parse("iree-cpu-host")).notes


@pytest.mark.parametrize("width", [pytest.param(31, marks=pytest.mark.slow), 70])
def test_wide_depthwise_lines_of_any_length(width: int) -> None:
    """As a sum of shifted lines a kernel of the compiler's took more numbers than it may."""
    module = nn.Conv1d(24, 48, width, 2, padding=5, dilation=2, groups=24)
    dims = ({2: Dim("time", min=160, max=900)},)
    check(module, (tensor(2, 24, 200),), (tensor(2, 24, 161),), dynamic_shapes=dims)


def test_a_length_that_only_the_run_knows() -> None:
    class Found(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 4, 3, 2, padding=2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = x[x[:, 0] > 0]
            torch._check(kept.shape[0] >= 3)
            return self.layers(kept.t().unsqueeze(0))

    check(Found(), (tensor(30, 3),), (tensor(50, 3),), dynamic_shapes=({0: Dim("rows", min=20, max=64)},))


class Net(nn.Module):
    def __init__(self, *, whole: bool = True) -> None:
        super().__init__()
        parts = [
            nn.Conv2d(2, 16, 3, 2, padding=1, bias=False),
            nn.Conv2d(16, 16, (3, 2), dilation=2, padding=2),
            nn.Conv2d(16, 32, 5, padding=2, groups=16),
            nn.Conv2d(32, 32, 3, 2, padding=1, groups=32),
            nn.Conv2d(32, 4, 1),
            nn.Conv2d(4, 4, 1, 2),
        ]
        # `Sized` has a stride, and `test_grouped_convolution` depthwise ones with a stride.
        few = [nn.Conv2d(2, 16, (3, 2), dilation=2, padding=2), parts[2], parts[4]]
        self.parts = nn.ModuleList(parts if whole else few)
        self.line = nn.Conv1d(4, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x).relu()
        return self.line(x.flatten(2))


@pytest.mark.parametrize(
    ("whole", "backend"), sweep([(False, "llvm-cpu"), (True, "llvm-cpu"), (True, "vmvx")], quick=1)
)
def test_programs_take_any_batch(whole: bool, backend: str) -> None:
    torch.manual_seed(0)
    dims = ({0: Dim("batch", min=1, max=4)},)
    calls = [(tensor(batch, 2, 24, 20),) for batch in (2, 1, 4)]
    module = Net(whole=whole).eval()
    program = legal(module, calls[0], dynamic_shapes=dims)
    lowered = importer.lower(program)
    if backend == "vmvx":
        plain = with_kernels(lowered.module, backend)
        lowered = replace(lowered, module=rewritten(plain, [vmvx_windows.FIX.apply]) or plain)
    with load(program, lowered, backend) as runner:
        for call in calls:
            compare(runner, program, module, call)


@pytest.mark.slow
def test_programs_of_a_fixed_batch() -> None:
    torch.manual_seed(0)
    check(Net(), (tensor(2, 2, 24, 20),))
