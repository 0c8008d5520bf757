"""Small programs of reductions and what reads them, on a Vulkan device beside eager.

Its kernels are made otherwise than a CPU's: threads share memory, and a barrier that the compiler leaves out
shows in the numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

import pytest
import torch

from tests.programs.through import compare, legal, load_on_vulkan
from tests.sweep import sweep

Reduce = Callable[[torch.Tensor, list[int]], torch.Tensor]
REDUCTIONS: Final[Mapping[str, Reduce]] = {
    "sum": lambda x, dims: x.sum(dims, keepdim=True) / 8,
    "mean": lambda x, dims: x.mean(dims, keepdim=True),
    "amax": lambda x, dims: x.amax(dims, keepdim=True),
    "amin": lambda x, dims: x.amin(dims, keepdim=True),
    "norm": lambda x, dims: torch.linalg.vector_norm(x, dim=dims, keepdim=True),
    "variance": lambda x, dims: (x - x.mean(dims, keepdim=True)).square().mean(dims, keepdim=True),
    "count": lambda x, dims: (x > 0.5).sum(dims, keepdim=True).float() / 8,
    "softmax": lambda x, dims: x.softmax(dims[-1]),
    "cumsum": lambda x, dims: x.cumsum(dims[-1]) / 8,
}
READERS: Final[Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "divides": lambda x, y: x / (y.abs() + 1),
    "subtracts": lambda x, y: x - y,
    "scales": lambda x, y: (x * y).tanh(),
    "turns": lambda x, y: (x.transpose(0, -1) + y.expand_as(x).transpose(0, -1)).transpose(0, -1),
    "joins": lambda x, y: torch.cat([x, y.expand_as(x)], 0)[: x.shape[0] + 1].mean(0) + x,
    "slices": lambda x, y: x + y.expand_as(x).roll(1, -1),
}


class Program(torch.nn.Module):
    """Some steps: each reduces over some dims and reads the result."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.shape = [draw.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 33]) for _ in range(draw.randint(1, 4))]
        self.steps = [
            (
                draw.choice(list(REDUCTIONS)),
                sorted(draw.sample(range(len(self.shape)), draw.randint(1, len(self.shape)))),
                draw.choice(list(READERS)),
            )
            for _ in range(draw.randint(1, 3))
        ]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        reduced = x
        for name, dims, reader in self.steps:
            reduced = REDUCTIONS[name](x, dims)
            x = READERS[reader](x, reduced)
        return x, reduced


def check(seed: int) -> None:
    model, draw = Program(seed).eval(), torch.Generator().manual_seed(seed)
    program = legal(model, (torch.randn(model.shape, generator=draw),))
    with load_on_vulkan(program) as runner:
        compare(runner, program, model, (torch.randn(model.shape, generator=draw),))


@pytest.mark.parametrize("seed", sweep(range(12), quick=4))
def test_reductions(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(12, 300, 12))
def test_more_reductions(seed: int) -> None:
    for each in range(seed, seed + 12):
        check(each)
