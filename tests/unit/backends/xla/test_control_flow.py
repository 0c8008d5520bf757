"""Every higher-order op against eager: nested, with closures, on both branches, with no trips."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.programs import on_xla

Tensor = torch.Tensor


class Cond(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        def yes(x: Tensor) -> tuple[Tensor, Tensor]:
            inner = torch.cond(x.max() > 5, lambda x: x * 2, lambda x: x - self.weight, (x,))
            return inner + limit, x.sum()

        return torch.cond(x.sum() > limit, yes, lambda x: (x * self.weight, x.prod()), (x,))


class While(torch.nn.Module):
    def forward(self, n: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        def body(n: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return n - 1, torch.cond(n % 2 == 0, lambda x: x * y, lambda x: x + y, (x,))

        return while_loop(lambda n, x: n > 0, body, (n, x))


class Map(torch.nn.Module):
    def forward(self, xs: Tensor, y: Tensor) -> Tensor:
        return torch_map(lambda x, y: (x * y).cumsum(0), xs, y)


class Scan(torch.nn.Module):
    def forward(self, start: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            after = carry * 0.5 + x
            return after, after.tanh()

        return scan(step, start, xs, dim=0)


class Nested(torch.nn.Module):
    def forward(self, start: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            count = torch.tensor(3) + (x.sum() > 0)
            _, after = while_loop(lambda n, c: n > 0, lambda n, c: (n - 1, torch.sin(c + x)), (count, carry))
            return after, after * 2

        return scan(step, start, xs, dim=0)


class Associative(torch.nn.Module):
    def forward(self, xs: Tensor) -> Tensor:
        return associative_scan(lambda x, y: x * 0.5 + y, xs, dim=0, combine_mode="generic")


class OverRows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.scan, self.nested, self.associative = Map(), Scan(), Nested(), Associative()

    def forward(self, start: Tensor, xs: Tensor) -> list[Any]:
        return [self.map(xs, start), self.scan(start, xs), self.nested(start, xs), self.associative(xs)]


A, B = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0, 2.0, -3.0])
SIX = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("module", "calls"),
    [
        (Cond(), [(A, torch.tensor(1.0)), (A, torch.tensor(99.0)), (B, torch.tensor(1.0))]),
        (While(), [(torch.tensor(5), A, B), (torch.tensor(0), A, B), (torch.tensor(-1), B, A)]),
        (OverRows(), [(A, SIX), (B, -SIX)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_equals_eager(module: Any, calls: list[tuple[Tensor, ...]]) -> None:
    on_xla.check(module, *calls)


class Rolled(torch.nn.Module):
    """Rolls by the number of a trip, which jax takes in no list."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        i = 0
        while x.sum() < y.sum():
            i = i + 1
            x = torch.roll(x, i, 0) + torch.roll(y, shifts=(i, 1), dims=(0, 1)).abs()
            x = x + torch.roll(y, i).abs()
        return x


def test_a_roll_by_a_number_that_a_loop_counts() -> None:
    on_xla.check(Rolled(), (SIX, SIX.abs() * 9), (-SIX, SIX.abs()))
