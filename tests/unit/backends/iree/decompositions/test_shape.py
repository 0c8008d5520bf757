"""Views, reshapes and padding as the compiler takes them: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from aotpipe import Dim
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import COUNT, check_op

OPS = ["squeeze", "squeeze_multiple", "unbind", "narrow_copy", "roll", "unflatten"]


@pytest.mark.parametrize("dtype", sweep(["float32", "int64"], quick=1))
@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=OPS)


class Bits(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = torch.full((), 1, dtype=torch.int32)
        return x.view(torch.int32) + 1, x[0].view(torch.int32), x + one.view(torch.float32)


def test_program_reads_bits() -> None:
    check(Bits(), (torch.randn(4),))


PADDING = ["constant_pad_nd", "nn_functional_pad_constant"]


@pytest.mark.parametrize("dtype", sweep(["float32", "int64", "bool"], quick=2))
@pytest.mark.parametrize("op", PADDING)
def test_padding_is_equal_to_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=PADDING, count=2 * COUNT)


class Shift(torch.nn.Module):
    """The time shift of linear-attention models, and a cut through the filling."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        byte = x.to(torch.int8)
        whole = pad(x.long(), (2, 1), value=3) * pad(byte.to(torch.uint8), (1, 2), value=7)
        return (
            whole,
            pad(byte, (1, 1), value=-2) * 3,
            pad(x, (0, 0, 1, -1)),
            pad(x, (-1, 2, -2, -1), value=3.0),
            pad(x > 0, (1, -1)),
        )


def test_program_cuts() -> None:
    check(Shift(), (torch.randn(2, 4, 5),))


class PaddedTwice(torch.nn.Module):
    """Of two paddings of 64 bits with a number iree-compile made a program that it then refused."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        twice = pad(pad(x, (1, 0), value=1.5).exp(), (2, 0), value=1.5)
        cut = pad(x, (-1, 1, 1, 0), value=-0.0)
        return twice, x.logcumsumexp(1), pad(x, (0, 1), value=float("nan")), cut


def test_float64_is_padded_twice() -> None:
    check(PaddedTwice(), (torch.rand(5, 3, dtype=torch.float64),))


class PadOrCut(torch.nn.Module):
    """Amounts of padding that are negative for some sizes, and one that only a run knows."""

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, ...]:
        amount = int(shift)
        assert -3 <= amount <= 3
        short = 6 - x.shape[0]
        return pad(x, (0, 0, 0, short)), pad(x > 0, (0, 0, -short, short)), pad(x, (amount, -amount), value=2)


def test_amounts_may_be_negative_in_some_calls() -> None:
    rows = Dim("rows", min=4, max=9)
    calls = [(torch.randn(size, 4), torch.tensor(by)) for size, by in ((5, 2), (4, -3), (6, 0), (9, 3))]
    check(PadOrCut(), *calls, dynamic_shapes={"x": {0: rows}})


class ComplexFills(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.view_as_complex(x)
        filled = torch.where(z.real > 0, z, 1 - 2j)
        return torch.view_as_real(torch.full_like(z, 3j) + z), torch.view_as_real(filled)


def test_complex_numbers_fill() -> None:
    check(ComplexFills(), (torch.randn(4, 2),))
