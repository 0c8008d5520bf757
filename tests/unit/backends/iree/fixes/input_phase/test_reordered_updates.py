"""What is updated and used again is what it was, also where the host reads a number between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.backends.iree.fixes.input_phase import reordered_updates
from aotpipe.backends.iree.fixes.rewrites import rewritten
from tests.canaries import canary, check_compiled
from tests.programs.through import Together

X = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
V = torch.tensor([0.3, 0.9, -0.4])

Result = tuple[torch.Tensor, ...]


class Applied(nn.Module):
    def __init__(self, function: Callable[..., Result]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, v: torch.Tensor) -> Result:
        return self.function(x, v)


def concatenated(x: torch.Tensor, v: torch.Tensor) -> Result:
    y = x @ x.T
    first, second = torch.cat([y, x]) * 2, torch.cat([y, -x])
    return first, second[second > 0.2]


def stacked(x: torch.Tensor, v: torch.Tensor) -> Result:
    """The compiler finds out late that both begin with the same."""

    def columns(x: torch.Tensor) -> list[torch.Tensor]:
        a, b, c = x.unbind(-1)
        scale = 2.0 / (x * x).sum(-1)
        return [scale * (a * b - c), scale * (b * c), a + scale * b, scale * (c * c), scale - a]

    first = torch.stack(columns(x)[:4], -1) * 2
    second = torch.stack(columns(x)[:3] + columns(x)[4:], -1)
    return first, second[second > 0.2]


def read_and_updated(x: torch.Tensor, v: torch.Tensor) -> Result:
    y = x @ x.T
    changed = y.index_put((v.argmax()[None],), v[:1])
    return y * 2, changed[changed > 0.2]


def updated_twice(x: torch.Tensor, v: torch.Tensor) -> Result:
    y, at = x @ x.T, v.argmax()[None, None].expand(1, 3)
    first, second = y.scatter(0, at, v[None]), y.scatter(0, at, 2 * v[None])
    return first.sum(0), second[second > 0.2]


def updated_in_turn(x: torch.Tensor, v: torch.Tensor) -> Result:
    y = x @ x.T
    first = torch.select_scatter(y, v, 0, 0)
    found = first[first > 0.2]
    second = torch.select_scatter(first, v * 2, 0, 1)
    return y, first, second, found, second[second > 0.2]


PROGRAMS = (concatenated, stacked, read_and_updated, updated_twice, updated_in_turn)


def test_each_reads_what_was_there_before() -> None:
    check_compiled(Together(map(Applied, PROGRAMS)), (X, V), (X + 1, -V))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_alone_it_reads_what_was_there_before(program: Callable[..., Result]) -> None:
    check_compiled(Applied(program), (X, V), (X + 1, -V))


@canary(reordered_updates.FIX)
def test_iree_moves_what_reads_it_behind_the_update() -> None:
    check_compiled(Applied(concatenated), (X, V))


_MODULE = """
!T = tensor<4x3xf32>
util.func public @forward(%x: !T, %v: tensor<1x3xf32>) -> (!T, !T, i64) {{
  %c0 = arith.constant 0 : index
  %n = arith.constant dense<1> : tensor<2xi64>
  {host}
  %y = math.exp %x : !T
  %z = tensor.insert_slice %v into %y[0, 0] [1, 3] [1, 1] : tensor<1x3xf32> into !T
  util.return {results}, %k : !T, !T, i64
}}
"""
_READ = "%k = tensor.extract %n[%c0] : tensor<2xi64>"
_KNOWN = "%k = arith.constant 1 : i64"


@pytest.mark.parametrize(
    ("host", "results", "changes"),
    [(_READ, "%y, %z", True), (_READ, "%z, %z", False), (_KNOWN, "%y, %z", False)],
)
def test_what_is_used_once_or_in_one_part_stays(host: str, results: str, changes: bool) -> None:
    text = _MODULE.format(host=host, results=results).encode()
    assert (rewritten(text, [reordered_updates.FIX.apply]) is not None) is changes


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        (b"torch.aten.cat ... torch.aten.nonzero", True),
        (b"torch.aten.item\ntorch.aten.index_put", True),
        (b"torch.aten.cat torch.aten.mul", False),
        (b"torch.aten.nonzero", False),
    ],
)
def test_only_programs_with_both_are_looked_at(text: bytes, may_be: bool) -> None:
    rewrite: Any = reordered_updates.FIX.apply
    assert (rewrite.made_of.search(text) is not None) is may_be
