"""Where a graph compares or rounds floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aotpipe.signature import Signature
from aotpipe.stages import Legal, LegalEntry
from aotpipe.validate.discontinuity import has_jumps


def _has_jumps(function: Callable[..., Any], *args: torch.Tensor) -> bool:
    graph = make_fx(function, tracing_mode="fake")(*args)
    entry = LegalEntry(name="forward", graph=graph, weights=(), signature=Signature(inputs=(), outputs=()))
    return has_jumps(
        Legal(name="m", dialect="torch", entries=(entry,), weights={}, initial_state={}, digest="")
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x > 0.5).to(torch.float32),
        lambda x: x.round(),
        lambda x: x.argmax(-1),
        lambda x: x.topk(2)[0],
        lambda x: x.to(torch.int64),
        lambda x: x.max(-1)[1],
        lambda x: torch.where(x < x.mean(), x, -x),
    ],
)
def test_choices_by_floats_are_jumps(function: Callable[..., Any]) -> None:
    assert _has_jumps(function, torch.randn(3, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.gelu(x).softmax(-1),
        lambda x: torch.relu(x) * 2,
        lambda x: x.max(-1)[0],
        lambda x: torch.where(x == float("-inf"), 0.0, x),
        lambda x: torch.where(x == torch.full((4,), float("-inf")), 0.0, x),
        lambda x: torch.where(x != x, 0.0, x),
        lambda x: x.to(torch.float64),
    ],
)
def test_continuous_functions_and_special_values_are_none(function: Callable[..., Any]) -> None:
    assert not _has_jumps(function, torch.randn(3, 4))


def test_choices_by_integers_are_none() -> None:
    assert not _has_jumps(lambda i: (i > 3).to(torch.float32), torch.arange(4))


def test_a_jump_in_a_branch_is_found() -> None:
    class Outer(torch.nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(flag, lambda a: a.floor(), lambda a: a + 1, (x,))

    program = torch.export.export(Outer(), (torch.tensor(True), torch.randn(3)))
    entry = LegalEntry(
        name="forward",
        graph=program.graph_module,
        weights=(),
        signature=Signature(inputs=(), outputs=()),
    )
    legal = Legal(name="m", dialect="torch", entries=(entry,), weights={}, initial_state={}, digest="")
    assert has_jumps(legal)
