"""Maxima over written-out windows: equal to eager, also their positions, and to a compiled program."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aotpipe import Dim
from aotpipe.passes.decompositions import resample
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op
from tests.unit.passes import legal


@pytest.mark.parametrize("dim", sweep([2, 3, 1], quick=1))
def test_equal_to_eager(dim: int) -> None:
    check_op(f"nn_functional_adaptive_max_pool{dim}d", "float32", count=8)


@pytest.mark.parametrize("ceil_mode", [True, False])
@pytest.mark.parametrize(("width", "step", "border", "spread"), [(3, 2, 1, 1), (2, 3, 0, 2), (4, 1, 2, 3)])
def test_positions_stay_in_their_window(
    width: int, step: int, border: int, spread: int, ceil_mode: bool
) -> None:
    x = torch.randperm(14).reshape(1, 1, 14)
    values, places = F.max_pool1d(x.float(), width, step, border, spread, ceil_mode, return_indices=True)
    positions = resample.sliding(14, values.shape[-1], width, step, border, spread, x)
    got = resample.over_windows(x, [positions])
    assert torch.equal(got[0].float(), values)
    assert torch.equal(got[1], places)


class Adaptive(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
            F.adaptive_max_pool2d(x[0], (4, 1)),
            F.adaptive_max_pool3d(x, (2, 3, 2)),
            F.adaptive_max_pool1d(x[0], 5),
        )


class Few(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.adaptive_max_pool1d(x[0], 2, return_indices=True)


@pytest.mark.parametrize("model", sweep([Few, Adaptive], quick=1))
def test_program(model: type[torch.nn.Module]) -> None:
    check(model(), (torch.randn(2, 3, 8, 7),))


def test_every_form_gives_eagers_numbers() -> None:
    legal.check(Adaptive(), (torch.randn(2, 3, 8, 7),))


@pytest.mark.slow
def test_positions_over_sizes_that_vary() -> None:
    sizes = {2: Dim("h", min=3, max=16), 3: Dim("w", min=2, max=16)}
    check(Few2d(), (torch.randn(2, 3, 7, 9),), (torch.randn(2, 3, 8, 2),), dynamic_shapes={"x": sizes})


class Few2d(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.adaptive_max_pool2d(x, (3, 2), return_indices=True)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("lead", [(3,), (2, 3)], ids=str)
def test_fractional_pooling_by_given_samples_is_eagers(lead: tuple[int, ...], rank: int) -> None:
    torch.manual_seed(0)
    op = getattr(torch.ops.aten, f"fractional_max_pool{rank}d").default
    samples = torch.rand((1, *lead, rank) if len(lead) == 1 else (*lead, rank))
    x = torch.randn(*lead, *(9, 8, 7)[:rank])
    x[x > 1.5] = torch.nan
    x[x < -1] = -torch.inf
    for kernel, out in (([2, 3, 1][:rank], [4, 3, 5][:rank]), ([2] * rank, [1] * rank)):
        found = resample.fractional_max_pool(x, kernel, out, samples)
        torch.testing.assert_close(found, op(x, kernel, out, samples), equal_nan=True)
