"""A view after a value whose strides changed becomes a reshape, unless a write could be seen through it."""

from __future__ import annotations

import torch

from aotpipe.passes.alias_copies import relax

aten = torch.ops.aten


def _targets(program: torch.export.ExportedProgram) -> list[object]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


class Viewed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1).view(-1)


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = x + 1
        base.view(-1).add_(1)
        return base


def test_a_view_becomes_a_reshape_of_the_same_value() -> None:
    x = torch.randn(2, 3)
    program = torch.export.export(Viewed(), (x,))
    relaxed = relax(program)
    assert aten.reshape.default in _targets(relaxed)
    assert aten.view.default in _targets(program), "the program given stays as it was"
    assert torch.equal(relaxed.module()(x), x.add(1).reshape(-1))


def test_a_view_that_is_written_through_stays() -> None:
    x = torch.randn(2, 3)
    relaxed = relax(torch.export.export(Written(), (x,)))
    assert aten.view.default in _targets(relaxed)
    assert torch.equal(relaxed.module()(x), x + 2)
