"""Grafting copies what is wanted, and what that needs, into another graph."""

from __future__ import annotations

import torch
from torch.fx import symbolic_trace

from aotpipe.passes.extract import graft


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.scale, y.exp()


class Host(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.scale


def _grafted(*, everything: bool) -> torch.fx.GraphModule:
    host, body = symbolic_trace(Host()), symbolic_trace(Body())
    end = host.graph.output_node()
    (x,) = host.graph.find_nodes(op="placeholder")
    first = body.graph.output_node().args[0][0]
    (value,) = graft(host, end, body, [x, x], [first], everything=everything)
    end.args = (value,)
    host.recompile()
    return host


def test_the_wanted_result_comes_with_its_own_attribute() -> None:
    host = _grafted(everything=False)
    assert torch.equal(host(torch.tensor(2.0)), torch.tensor(6.0)), "the body's scale, not the host's"
    assert not host.graph.find_nodes(op="call_method", target="exp")


def test_everything_comes_along_where_asked() -> None:
    assert _grafted(everything=True).graph.find_nodes(op="call_method", target="exp")


def test_a_constant_is_its_own_result() -> None:
    host = symbolic_trace(Host())
    assert graft(host, host.graph.output_node(), symbolic_trace(Body()), [0, 0], [7, None]) == [7, None]
