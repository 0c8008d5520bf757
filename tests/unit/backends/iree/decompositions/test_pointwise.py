"""Elementwise arithmetic: eager's answers also for NaN, infinities, zeros and large integers."""

from __future__ import annotations

import math
import operator

import pytest
import torch

from aotpipe.backends.iree.decompositions import pointwise
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op

BOTH = "div_floor_rounding div_trunc_rounding fmod remainder pow clamp sgn float_power floor_divide".split()
FLOAT = "maximum minimum fmax fmin hypot copysign signbit isfinite nextafter heaviside".split()
SPECIAL = torch.tensor(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -7.3, 1e10, 3e38]
)


# Programs below have these too; of those that are alike the quick run takes one.
WHOLE = "div_floor_rounding remainder pow clamp".split()
QUICK = [*WHOLE, *"fmod sgn maximum fmax hypot nextafter heaviside isfinite".split()]


@pytest.mark.parametrize("op", sweep(BOTH, quick=0, always=WHOLE))
def test_integers_equal_eager(op: str) -> None:
    check_op(op, "int64", among=WHOLE if op in WHOLE else BOTH)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["gcd", "lcm"])
def test_common_divisors_equal_eager(op: str) -> None:
    # A common divisor is found in 64 steps, of which a trace takes seconds.
    check_op(op, "int64", count=1)


def test_common_divisors() -> None:
    values = torch.tensor([0, 1, -1, 6, -4, 35, 2**40, -(3**20)])
    left, right = torch.meshgrid(values, values[:-2], indexing="ij")
    assert torch.equal(pointwise.gcd(left, right), torch.gcd(left, right))
    assert torch.equal(pointwise.lcm(left, right), torch.lcm(left, right))


@pytest.mark.parametrize("op", sweep([*BOTH, *FLOAT], quick=0, always=QUICK))
def test_floats_equal_eager(op: str) -> None:
    check_op(op, "float32", among=QUICK if op in QUICK else [*BOTH, *FLOAT])


@pytest.mark.parametrize("op", ["remainder", "div_floor_rounding"])
def test_bytes_equal_eager(op: str) -> None:
    check_op(op, "uint8")


class Pairs(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "maximum": torch.maximum(left, right),
            "minimum": torch.minimum(left, right),
            "clamp": left.clamp(-1.5, 2.5),
            "floor": left // right,
            "fmod": torch.fmod(left, right),
            "remainder": left % right,
            "pow": left**right,
            "base": 2.0**right,
            "hypot": torch.hypot(left, right),
            "copysign": torch.copysign(left, right),
            "isfinite": torch.isfinite(left),
            "nextafter": torch.nextafter(left, right),
        }


def test_program_on_special_values() -> None:
    left, right = torch.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    check(Pairs(), (left.contiguous(), right.contiguous()))


class OutOfRange(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        orders = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
        numbers = (-1, -129, 300, 2**31, -(2**31) - 1, y.size(0), y.size(0) - 400)
        return [order(x, number) for number in numbers for order in orders]


@pytest.mark.parametrize(
    "dtype",
    sweep(
        [torch.uint8, torch.int8, torch.bool, torch.int16, torch.int32],
        quick=0,
        always=[torch.uint8, torch.bool],
    ),
)
def test_a_number_out_of_range_is_compared_as_eager_does(dtype: torch.dtype) -> None:
    values = [0, 1] if dtype == torch.bool else [torch.iinfo(dtype).min, 0, 1, 44, torch.iinfo(dtype).max]
    shapes = {"x": None, "y": {0: torch.export.Dim("n", min=2, max=500)}}
    check(OutOfRange(), (torch.tensor(values, dtype=dtype), torch.zeros(300)), dynamic_shapes=shapes)


class Integers(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "floor": torch.div(left, right, rounding_mode="floor"),
            "trunc": torch.div(left, right, rounding_mode="trunc"),
            "fmod": torch.fmod(left, right),
            "neg": -left,
            "square": left**2,
            "power": left ** right.abs().clamp(max=70),
        }


class Divisors(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.gcd(left, right)


@pytest.mark.parametrize("model", [Integers, pytest.param(Divisors, marks=pytest.mark.slow)])
def test_program_on_large_integers(model: type[torch.nn.Module]) -> None:
    values = torch.tensor([1, -1, 2, -3, 7, 10, 2**31, -(2**31), 2**53 + 1, 2**62, -(2**62) - 1])
    left, right = torch.meshgrid(values, values, indexing="ij")
    check(model(), (left.contiguous(), right.contiguous()))


class Constants(torch.nn.Module):
    """The compiler folds comparisons and remainders of constants wrong."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        two, three = torch.full((3,), 2.0), torch.full((3,), -3)
        return x + (two < 0), x + (two >= 1), x + (three < 0.5), x + two % -2.5, x + (-two) % 3


def test_program_with_constants() -> None:
    check(Constants(), (torch.zeros(3),))


class Mixed(torch.nn.Module):
    """Dtypes and ranks that meet: each of these did not compile, or gave other numbers."""

    def forward(
        self, x: torch.Tensor, row: torch.Tensor, whole: torch.Tensor, byte: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            torch.fmax(x, row),
            torch.fmin(whole, row),
            torch.fmin(byte, byte[0]),
            torch.nn.functional.hardtanh(whole, -1.0, 1.0),
            torch.isfinite(whole),
            torch.atan2(whole, whole[:, :1]),
            byte * 3,
            byte.to(torch.uint8) * 3,
        )


def test_program_of_mixed_kinds() -> None:
    whole = torch.tensor([[0, 5, -7], [-3, 0, 2]])
    x = torch.tensor([[1.0, math.nan, -2.0], [math.nan, 0.0, 4.0]])
    check(Mixed(), (x, torch.tensor([0.5, math.nan, 3.0]), whole, whole.to(torch.int8)))


POWERS = ["pow", "__rpow__", "square"]


@pytest.mark.parametrize("dtype", sweep(["float32", "float16", "int64"], quick=1))
@pytest.mark.parametrize("op", POWERS)
def test_powers_equal_eager(op: str, dtype: str) -> None:
    check_op(op, dtype, among=POWERS, count=2)


def test_whole_powers_wrap_around_and_vanish() -> None:
    values = torch.tensor([0, 1, -1, 2, -3, 10, 2**40])
    base, exponent = torch.meshgrid(values, torch.tensor([0, 1, 2, 5, 64, 70]), indexing="ij")
    assert torch.equal(pointwise.pow_tensor(base, exponent), torch.pow(base, exponent))
    negative = pointwise.pow_tensor(torch.tensor([1, -1, -1, 2, -3]), torch.tensor([-2, -2, -3, -1, -5]))
    assert negative.tolist() == [1, 1, -1, 0, 0]


class FirstBits(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = (x, -x, x.double(), x.half())
        return (*map(torch.signbit, each), torch.copysign(torch.ones_like(x), x))


def test_signs_of_nans_and_zeros() -> None:
    x = torch.tensor([0x7FC00000, -0x400000, 0, -(2**31), 0x3F800000], dtype=torch.int32).view(torch.float32)
    check(FirstBits(), (x,))
