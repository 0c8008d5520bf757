"""Programs that IREE computes wrong or refuses without what mends them."""

from __future__ import annotations

import copy

import pytest
import torch

from aotpipe.backends.iree.lower import stablehlo
from tests.programs import through
from tests.unit.backends.iree.lower.test_stablehlo import load


class Shifting(torch.nn.Module):
    """Writes slices of an array into the array."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.arange(6.0))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.window[1:] = self.window[:-1].clone()
        self.window[0] = x[0]
        return self.window * 1, x.index_copy(0, places, x[:3])


def test_what_is_written_is_read_before() -> None:
    """IREE 3.13 reads such an update after it wrote first rows; `overlaps` mends the torch dialect."""
    model = Shifting().eval()
    example = (torch.arange(5.0), torch.tensor([1, 2, 3]))
    program = through.legal(copy.deepcopy(model), example, dialect="stablehlo")
    with load(program, stablehlo.lower(program)) as runner:
        for places in ([1, 2, 3], [3, 2, 1]):
            through.compare(runner, program, model, (torch.arange(5.0) + 7, torch.tensor(places)))


class Narrow(torch.nn.Module):
    """Convolutions whose windows take one place and leave rows, or padding, unread."""

    def __init__(self) -> None:
        super().__init__()
        self.padded = torch.nn.Conv1d(3, 4, 3, stride=2, padding=1)
        self.cut = torch.nn.Conv1d(3, 4, 2, stride=3)
        self.plane = torch.nn.Conv2d(3, 4, 3, stride=4, padding=1, dilation=(1, 2))
        self.depthwise = torch.nn.Conv1d(3, 3, 1, stride=4, groups=3)

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.padded(x), self.cut(x), self.plane(image), self.depthwise(x)


@pytest.mark.parametrize("length", [2, 3])
def test_what_no_window_reads_is_cut_off(length: int) -> None:
    torch.manual_seed(0)
    model = Narrow().eval()
    example = (torch.randn(1, 3, length), torch.randn(2, 3, length, 2 * length - 1))
    program = through.legal(model, example, dialect="stablehlo")
    with load(program, stablehlo.lower(program)) as runner:
        through.compare(runner, program, model, example)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_grouped_convolutions_of_few_bits_are_summed_in_more(dtype: torch.dtype) -> None:
    """IREE 3.13 refuses a depthwise convolution whose result has another dtype than its operands."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(4, 4, 3, groups=4), torch.nn.Conv2d(4, 8, 3, stride=2, groups=2)
    )
    model = model.to(dtype).eval()
    example = (torch.randn(2, 4, 9, 9).to(dtype),)
    program = through.legal(model, example, dialect="stablehlo")
    with load(program, stablehlo.lower(program)) as runner:
        through.compare(runner, program, model, example)


class Caching(torch.nn.Module):
    """Writes what is not made of the array."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return x.index_copy(0, places, rows * 2)


def test_other_updates_have_no_barrier() -> None:
    example = (torch.arange(5.0), torch.arange(2.0), torch.tensor([3, 1]))
    program = through.legal(Caching(), example, dialect="stablehlo")
    assert b"optimization_barrier" not in stablehlo.lower(program).module
    example = (torch.arange(5.0), torch.tensor([1, 2, 3]))
    program = through.legal(Shifting().eval(), example, dialect="stablehlo")
    assert stablehlo.lower(program).module.count(b"optimization_barrier") == 2
