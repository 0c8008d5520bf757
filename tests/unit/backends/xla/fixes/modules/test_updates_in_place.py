"""Updates of a tensor that are computed from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aotpipe.backends.xla import lowering
from aotpipe.backends.xla.fixes.modules import updates_in_place
from aotpipe.runtime.xla import container
from tests.canaries import canary
from tests.programs import on_xla, through

Body = Callable[[torch.Tensor], torch.Tensor]


class Updated(torch.nn.Module):
    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x + 1)


def shifted(x: torch.Tensor) -> torch.Tensor:
    x[1:] = x[:-1].clone()
    return x.reshape(1, 4, 1)


def turned(x: torch.Tensor) -> torch.Tensor:
    x[:3, :3] = x[:3, :3].T.clone() * 2
    return x[None].matmul(x[None])


def flipped(x: torch.Tensor) -> torch.Tensor:
    y = x[None].clone()
    y[:, :3, :3] = y[:, :3, :3].flip(-2, -1)
    return y @ x[None]


def apart(x: torch.Tensor) -> torch.Tensor:
    """An update by what is in memory before."""
    x = x.clone()
    x[1:] = (x @ x)[:-1]
    return x.reshape(1, -1)


CASES = [(shifted, (4, 1, 1)), (turned, (4, 4)), (flipped, (4, 4)), (apart, (4, 4))]


@pytest.mark.parametrize(("body", "sizes"), CASES)
def test_it_reads_what_was_before(body: Body, sizes: tuple[int, ...]) -> None:
    on_xla.check(Updated(body), (torch.randn(sizes),))


@pytest.mark.parametrize(("body", "sizes"), CASES)
def test_what_is_in_memory_needs_no_barrier(body: Body, sizes: tuple[int, ...]) -> None:
    program = through.legal(Updated(body), (torch.randn(sizes),), dialect="stablehlo")
    _, modules = container.read(lowering.lower(program).module)
    barriers = {name: b"optimization_barrier" in module for name, module in modules.items()}
    assert any(barriers.values()) == (body is not apart)


@canary(updates_in_place.FIX)
def test_xla_does_without() -> None:
    on_xla.check(Updated(shifted), (torch.randn(4, 1, 1),))
