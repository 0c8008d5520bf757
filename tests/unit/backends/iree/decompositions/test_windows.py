"""Convolutions and pools whose only window ends before the input does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op, decomposed


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        super().__init__()
        self.function, self.arguments, self.options = function, arguments, options
        self.weight = torch.nn.Parameter(torch.randn(4, 3, *[3] * RANKS.get(function, 0)))

    def forward(self, x: torch.Tensor) -> Any:
        weights = (self.weight,) if self.function in RANKS else ()
        return self.function(x, *weights, *self.arguments, **self.options)


RANKS: dict[Any, int] = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}


OPS = [
    "nn_functional_avg_pool1d",
    "nn_functional_avg_pool2d",
    "nn_functional_avg_pool3d",
    "nn_functional_max_pool2d",
    "nn_functional_max_pool3d",
    "nn_functional_conv1d",
    "nn_functional_conv2d",
    "nn_functional_conv3d",
]


# Of each kind one; `SINGLE` has those of other ranks.
QUICK = ["nn_functional_avg_pool3d", "nn_functional_max_pool2d", "nn_functional_conv2d"]


@pytest.mark.parametrize("op", sweep(OPS, quick=0, always=QUICK))
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=QUICK if op in QUICK else OPS)


def image(*sizes: int) -> torch.Tensor:
    return torch.randn(2, 3, *sizes, generator=torch.Generator().manual_seed(0))


def whole(*sizes: int) -> torch.Tensor:
    return (image(*sizes) * 9).long()


class Volume(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = x.reshape(-1)[:108].reshape(4, 1, 3, 3, 3)
        return F.conv3d(x[:, :2], weight, x[0, 0, 0, 0], (2, 1, 1), (1, 0, 1), groups=2)


SINGLE = [
    (Applied(F.conv2d, stride=2), image(4, 4)),
    (Applied(F.conv2d, stride=4, padding=1), image(4, 4)),
    (Applied(F.conv2d, stride=9, padding=2), image(2, 4)),
    (Applied(F.conv2d, stride=(5, 1), dilation=2), image(6, 8)),
    (Applied(F.conv1d, stride=3), image(5)),
    (Applied(F.conv3d, stride=2), image(4, 5, 4)),
    (Applied(F.max_pool2d, 3, 2, 1, return_indices=True), image(2, 5)),
    (Applied(F.max_pool2d, 3, 2, return_indices=True), image(4, 7)),
    (Applied(F.max_pool3d, 3, 2, 1, return_indices=True), image(2, 4, 5)),
    (Applied(F.avg_pool1d, 3, 2), image(4)),
    (Applied(F.avg_pool1d, 3, 2, 1, count_include_pad=False), image(2)),
    (Applied(F.avg_pool2d, 3, 2, 1), image(2, 5)),
    (Applied(F.avg_pool2d, 3, 2, 1, count_include_pad=False), image(2, 5)),
    (Applied(F.avg_pool2d, 3, 2, divisor_override=5), image(4, 4)),
    (Applied(F.avg_pool3d, 3, 2), image(4, 4, 7)),
    (Applied(F.avg_pool2d, (2, 1), (2, 1), ceil_mode=True), image(8, 4)),
    (Applied(F.avg_pool2d, 3, 2, 1, ceil_mode=True), image(6, 8)),
    (Applied(F.avg_pool2d, 3, 2, 1, ceil_mode=True, count_include_pad=False), image(6, 9)),
    (Applied(F.avg_pool1d, 3, 2, ceil_mode=True), image(8)),
    (Applied(F.avg_pool2d, 2, 3, ceil_mode=True), image(7, 8)),
    (Applied(F.max_pool2d, 3, 2, 1, ceil_mode=True, return_indices=True), image(6, 8)),
    (Applied(F.max_pool2d, 2, 2, ceil_mode=True), image(7, 1)),
    (Applied(F.max_pool2d, 3, 2, 1, return_indices=True), image(7, 6)[0]),
    (Applied(F.max_pool2d, 3, 2, 1, 2, return_indices=True, ceil_mode=True), whole(9, 8)),
    (Applied(F.max_pool2d, 2, return_indices=True), whole(9, 8)[0]),
    (Applied(F.max_pool3d, 2, 1, 1), whole(3, 2, 3)),
    # Without a batch, without a stride, and with one number for all dims.
    (Applied(F.avg_pool1d, 3), image(7)[0]),
    (Applied(F.avg_pool2d, 3, 2, 1, count_include_pad=False), image(7, 8)[0]),
    (Applied(F.avg_pool3d, 2), image(4, 5, 6)[0]),
    (Applied(F.avg_pool3d, 2), image(4, 5, 6)),
    (Applied(F.lp_pool2d, 2.0, 3), image(6, 7)[0]),
    (Applied(F.avg_pool2d, (3,), (2,), (1,), count_include_pad=False), image(7, 8)),
    (Applied(F.max_pool2d, (3,), (2,), (1,), return_indices=True), image(7, 8)),
    (Applied(F.max_pool3d, (2,)), image(4, 5, 6)[0]),
    (Volume(), whole(5, 4, 4)),
    (Applied(F.adaptive_avg_pool2d, (3, 4)), image(7, 8)),
    (Applied(F.adaptive_avg_pool2d, 5), image(3, 4)),
    (Applied(F.adaptive_avg_pool3d, (2, 3, 1)), image(5, 3, 4)),
    (Applied(F.adaptive_avg_pool2d, (2, 4)), image(4, 8)),
]


class Several(torch.nn.Module):
    """Those modules in one program, as each compile has its cost."""

    def __init__(self, parts: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, *images: torch.Tensor) -> list[torch.Tensor]:
        return [part(x) for part, x in zip(self.parts, images, strict=True)]


@cache
def results_of_all() -> list[torch.Tensor]:
    """What one program of all of them gives."""
    images = tuple(x for _, x in SINGLE)
    found: list[torch.Tensor] = decomposed(Several(module for module, _ in SINGLE), images).module()(*images)
    return found


@pytest.mark.parametrize("place", range(len(SINGLE)))
def test_a_single_window(place: int) -> None:
    module, x = SINGLE[place]
    torch.testing.assert_close(results_of_all()[place], module(x), rtol=1e-5, atol=1e-5)


# Of each kind one: a stride, padding, a line, indices, a mean over what is cut off, a volume of integers, and
# means over windows that differ in size.
FEW = [SINGLE[place] for place in (1, 4, 7, 10, 17, 26, 27)]


def test_adaptive_means_are_of_the_ops_that_every_device_has() -> None:
    """The compiler's own form wrote most of its counts to no place on a GPU."""
    program = decomposed(Applied(F.adaptive_avg_pool2d, (3, 4)), (image(7, 8),))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("adaptive" in target for target in called)


def test_adaptive_means_of_sizes_that_vary_and_of_what_is_not_finite() -> None:
    module, x = Applied(F.adaptive_avg_pool2d, (3, 2)), image(9, 7)
    x[0, 0, 4, 3], x[1, 0, 0, 0] = torch.nan, torch.inf
    sizes = {0: torch.export.Dim("batch", min=1, max=9), 2: torch.export.Dim("rows", min=2, max=20)}
    check(module, (x,), (image(2, 7)[:1],), (image(20, 7),), dynamic_shapes={"x": sizes})


@pytest.mark.parametrize("taken", [FEW, pytest.param(SINGLE, marks=pytest.mark.slow)], ids=["few", "all"])
def test_compiles(taken: list[tuple[torch.nn.Module, torch.Tensor]]) -> None:
    check(Several(module for module, _ in taken), tuple(x for _, x in taken))
