from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe import Dim
from aotpipe.core.stages import Legal
from aotpipe.passes import hops, if_conversion
from tests.programs import through

X, N = torch.tensor([1.0, -2.0, 3.0]), torch.tensor(2)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        return self.function(x, n)


def legal(function: Callable[..., Any], **options: Any) -> Legal:
    return through.legal(Model(function), (X, N), **options)


def kinds(program: Legal) -> list[str]:
    """The control flow of a program once its cheap branches are gone."""
    graph = copy.deepcopy(program.entries[0].graph)
    if_conversion.convert(graph)
    return [call.node.target.name() for module in hops.walk(graph) for call in hops.calls(module)]


def scale(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if n > 1:
        return torch.tanh(x) * n
    return x - 1


def nested(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.sum() > 0:
        if n > 1:
            y, n = x * 2, n + 1
        else:
            y = x
    else:
        y = -x
    return y, n


def looped(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    while n > 0:
        x = x * 2 if x.sum() < 9 else x - 1
        n = n - 1
    return x


def asserted(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if n > 1:
        assert x[0] > 0, "the first is not positive"
        x = x * 2
    return x


def indexed(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if (n >= 0) & (n < 3):
        return x[n] * 2
    return x.sum()


def divided(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if n != 0:
        return x + 7 // n
    return x


def multiplied(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    if n > 1:
        return torch.outer(x, x) @ x
    return x


@pytest.mark.parametrize("function", [scale, nested, asserted])
def test_selects_what_is_cheap(function: Callable[..., Any]) -> None:
    program = legal(function)
    assert kinds(program) == []
    graph = copy.deepcopy(program.entries[0].graph)
    if_conversion.convert(graph)
    for x in (X, -X):
        for n in (0, 2):
            given = (x, torch.tensor(n))
            wanted, got = program.entries[0].graph(*given), graph(*given)
            assert all(map(torch.equal, wanted, got))


def test_selects_in_a_loops_body() -> None:
    assert kinds(legal(looped)) == ["while_loop"]


@pytest.mark.parametrize("function", [indexed, divided, multiplied])
def test_leaves_what_may_fail_or_costs(function: Callable[..., Any]) -> None:
    assert kinds(legal(function)) == ["cond"]


def test_counts_the_largest_size() -> None:
    shapes = {"x": {0: Dim("d", min=2, max=64)}, "n": None}
    assert kinds(legal(scale, dynamic_shapes=shapes)) == []
    shapes = {"x": {0: Dim("d", min=2, max=100_000)}, "n": None}
    assert kinds(legal(scale, dynamic_shapes=shapes)) == ["cond"]


def test_a_branch_that_a_size_decides_is_converted() -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x.sum().reshape(1),))

    calls = [(torch.randn(size),) for size in (4, 3, 6)]
    through.check(Sized(), *calls, dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}})
