"""What torch does not see of sizes and of extremes, and takes for an assumption or fails at."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
import torch
from torch.utils._sympy.functions import Mod

from aotpipe.core.dims import Dim
from aotpipe.export import tracing
from tests.unit.export.models import exported, run
from tests.unit.passes import legal

ROWS = {"x": {0: Dim("rows", min=3, max=12)}}


def distinct(x: torch.Tensor) -> torch.Tensor:
    whole = x.round()
    found: torch.Tensor = whole.unique() * 2 if whole.sum() > 0 else whole[whole < 0]  # type: ignore[no-untyped-call]
    return found


def within(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    assert max(lengths) <= x.shape[0], "longer than x"
    found: torch.Tensor = x * max(lengths) + min(lengths)
    return found


def test_a_size_that_divides_another_leaves_no_remainder() -> None:
    size = sympy.Symbol("size", integer=True, positive=True)
    with tracing.sizes_are_followed():
        assert Mod(8 * size - 8, 2 * size - 2) == 0
        assert Mod(8 * size - 4, 2 * size - 2) != 0
        assert Mod(3 * size, size + 1) != 0


def test_branches_may_keep_other_counts_of_distinct_values() -> None:
    found = exported(distinct, torch.randn(5, 4), shapes=ROWS)
    for x in (torch.rand(9, 4), -torch.rand(4, 4)):
        torch.testing.assert_close(run(found, x), distinct(x))


def in_parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x[x[:, 0] > 0]
    whole = torch.zeros(rows.shape[0], 2, 2)
    whole[:, 0, 0] = rows[:, 0]
    whole[:, 1] = rows[:, :2] * 2
    across = rows.t().clone().t()
    across[:, 1] += 1
    return whole, across


def test_parts_of_no_rows_are_written() -> None:
    x = torch.randn(5, 4)
    legal.check(in_parts, (x,), (-x.abs(),), (x.abs(),))


def test_pythons_extremes_take_the_rows_of_a_tensor() -> None:
    found = exported(within, torch.randn(5, 4), torch.tensor([2, 5]), shapes=ROWS)
    x = torch.randn(3, 4)
    torch.testing.assert_close(run(found, x, torch.tensor([3, 1])), within(x, torch.tensor([3, 1])))
    with pytest.raises(RuntimeError, match="longer than x"):
        run(found, x, torch.tensor([1, 4]))


def shifted(x: torch.Tensor) -> torch.Tensor:
    rows = x.shape[0]
    offset = rows - x.clone().shape[0]
    if x.sum() > 0:
        return x[offset : offset + rows] * 2
    return x + offset


def test_a_size_less_itself_is_a_number_in_a_branch() -> None:
    """torch gave the branch a symbol of no input."""
    found = exported(shifted, torch.randn(5, 4), shapes=ROWS)
    for x in (torch.ones(7, 4), -torch.ones(3, 4)):
        torch.testing.assert_close(run(found, x), shifted(x))


def trained(x: torch.Tensor) -> torch.Tensor:
    """What a model of quantization-aware training computes, and a gradient by hand."""
    each = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.zeros(4, dtype=torch.int32)
    found = torch.fake_quantize_per_tensor_affine(x, 0.05, 2, -128, 127)
    return found + torch.fake_quantize_per_channel_affine(x, *each, 1, -8, 7)


def gradients(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    options = [1], [0], [1], False, [0], 1, [True, True, True]
    found: list[torch.Tensor] = torch.ops.aten.convolution_backward(gradient, x, weight, None, *options)
    return found


def test_fake_quantization_takes_sizes_that_vary() -> None:
    found = exported(trained, torch.randn(5, 4), shapes=ROWS)
    x = torch.randn(3, 4)
    torch.testing.assert_close(run(found, x), trained(x))


def test_the_gradient_of_a_bias_needs_no_sizes_of_it() -> None:
    given = torch.randn(2, 4, 6), torch.randn(2, 3, 8), torch.randn(4, 3, 3)
    for got, want in zip(run(exported(gradients, *given), *given), gradients(*given), strict=True):
        torch.testing.assert_close(got, want)


def test_a_threshold_promotes_gradient_and_values() -> None:
    def f(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.threshold_backward(gradient, x, 0.5)
        return found

    given = torch.arange(1, 5), torch.tensor([0.5, 0.6, float("nan"), -1.0])
    found = exported(f, *given)
    assert str(found.entries[0].signature.outputs[0]) == "output: float32[4]"
    torch.testing.assert_close(run(found, *given), f(*given))


@pytest.mark.parametrize(
    "rounded",
    [
        lambda n: math.ceil(n / 4),
        lambda n: int(n * 0.3) + 1,
        lambda n: round(n / 3),
        lambda n: n**2,
        lambda n: n / 3,
    ],
)
def test_a_branch_computes_with_a_rounded_size_from_outside(rounded: Any) -> None:
    """torch refused the size as one that the branch does not track."""

    def model(x: torch.Tensor) -> torch.Tensor:
        size = rounded(x.shape[0])
        return x * (size + 1) if x.sum() > 0 else x - (size + 2)

    found = exported(model, torch.randn(5, 4), shapes=ROWS)
    for x in (torch.rand(9, 4), -torch.rand(4, 4), torch.rand(12, 4)):
        torch.testing.assert_close(run(found, x), model(x))


def bare(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() + y.sum()


def test_axes_of_one_dim_have_one_symbol_before_the_model_runs() -> None:
    seen: list[int] = []

    class Longest(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            sizes = (each.shape[0] for each in (x, y, z))
            seen.append(len({size.node.expr for size in sizes}))  # type: ignore[attr-defined]
            return torch.zeros(max(x.shape[0], y.shape[0]))

    rows, other = torch.export.Dim("rows", min=1, max=12), torch.export.Dim("other", min=1, max=12)
    args = (torch.randn(3, 2), torch.randn(3), torch.randn(3))
    shapes = {"x": {0: rows}, "y": {0: rows}, "z": {0: other}}
    with tracing.axes_of_one_dim_are_one():
        torch.export.export(Longest(), args, dynamic_shapes=shapes)
    assert seen == [2]


@pytest.mark.parametrize("size", [1, 3, 12])
def test_axes_of_one_dim_may_lie_in_one_tensor_and_beside_a_multiple(size: int) -> None:
    rows = Dim("rows", min=1, max=12)
    shapes = {"x": {0: rows, 1: rows}, "y": {0: 2 * rows}}
    found = exported(bare, torch.randn(size, size), torch.randn(2 * size), shapes=shapes)
    for count in (1, 5):
        x, y = torch.randn(count, count), torch.randn(2 * count)
        torch.testing.assert_close(run(found, x, y), bare(x, y))
