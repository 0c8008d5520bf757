"""A view after a value whose strides changed becomes a reshape, unless a write could be seen through it."""

from __future__ import annotations

import torch

from aotpipe.core.dims import Dim
from aotpipe.passes.alias_copies import relax
from tests.unit.passes import legal

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


class PartsWritten(torch.nn.Module):
    """Attention that writes to some of its heads, which lie in the memory of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8)
        self.mix = torch.nn.Conv1d(2, 2, 3, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length = x.shape[:2]
        heads = self.into(x).reshape(batch, length, 4, 2).permute(0, 2, 1, 3).reshape(batch, 4, 1, length, 2)
        for head in (1, 2):
            part = heads[:, head].transpose(-1, -2).reshape(batch, 2, length)
            mixed = self.mix(torch.nn.functional.pad(part, (2, 0))).reshape(batch, 1, 2, length)
            heads[:, head] = mixed.transpose(-1, -2)
        return self.out(heads.reshape(batch, 4, length, 2).permute(0, 2, 1, 3).reshape(batch, length, 8))


class WrittenBefore(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = x + 1
        base[0] = 5.0
        return base.view(-1)


def test_a_view_after_the_last_write_becomes_a_reshape() -> None:
    x = torch.randn(2, 3)
    relaxed = relax(torch.export.export(WrittenBefore(), (x,)))
    assert aten.reshape.default in _targets(relaxed)
    assert torch.equal(relaxed.module()(x), WrittenBefore()(x))


def test_what_is_written_in_parts_is_a_copy() -> None:
    calls = [(torch.randn(batch, 5, 8),) for batch in (3, 7, 1)]
    sizes = {"x": {0: Dim("batch", min=1, max=9)}}
    legal.check(PartsWritten().eval(), *calls, dynamic_shapes=sizes)
