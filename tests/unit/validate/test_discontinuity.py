"""Where a graph compares or rounds floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize
from aotpipe.validate.discontinuity import has_discontinuities


def _has_jumps(function: Callable[..., Any], *args: torch.Tensor) -> bool:
    graph = make_fx(function, tracing_mode="fake")(*args)
    entry = LegalEntry(name="forward", graph=graph, weights=(), signature=Signature(inputs=(), outputs=()))
    return has_discontinuities(
        Legal(name="m", dialect="torch", entries=(entry,), weights={}, initial_state={})
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


def test_which_of_equal_integers_is_taken_is_a_jump() -> None:
    assert _has_jumps(lambda x: x.sort(dim=1)[1], torch.ones(3, 4, dtype=torch.int64))
    assert not _has_jumps(lambda x: x.amax(1), torch.ones(3, 4, dtype=torch.int64))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.gelu(x).softmax(-1),
        lambda x: torch.relu(x) * 2,
        lambda x: x.max(-1)[0],
        lambda x: torch.where(x == float("-inf"), 0.0, x),
        lambda x: torch.where(x == torch.full((4,), float("-inf")), 0.0, x),
        lambda x: torch.where(x != x, 0.0, x),
        lambda x: torch.where(x - x == 0, x, 0.0),
        lambda x: x.to(torch.float64),
    ],
)
def test_continuous_functions_and_special_values_are_none(function: Callable[..., Any]) -> None:
    assert not _has_jumps(function, torch.randn(3, 4))


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def _legal(function: Callable[..., Any]) -> Legal:
    spec = as_spec(_Function(function), args=(torch.randn(2, 3, 4),))
    return legalize(export(canonicalize(spec)), legalization())


OTHERS: list[Callable[..., Any]] = [
    torch.nn.functional.hardswish,
    torch.nn.functional.leaky_relu,
    lambda x: torch.prelu(x, x.new_full((1,), 0.2)),
    torch.nn.functional.elu,
    torch.nn.functional.softplus,
    torch.nn.functional.normalize,
    torch.tanh,
    torch.sin,
    lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, (x @ x.mT) > float("-inf")),
    lambda x: torch.nn.functional.max_pool1d(x, 2),
    lambda x: torch.cond(x.isnan().any(), torch.tanh, torch.sin, (x,)),
]


@pytest.mark.parametrize(
    "functions", [pytest.param([torch.nn.functional.relu6], id="relu6"), pytest.param(OTHERS, id="others")]
)
def test_what_continuous_functions_become_has_none(functions: list[Callable[..., Any]]) -> None:
    # A jump of any of them is one of the program.
    assert not has_discontinuities(_legal(lambda x: [function(x) for function in functions]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.tanh().round(),
        lambda x: x.clamp(0, 1) > 0.5,
        lambda x: x % 1.0,
        lambda x: torch.nn.functional.hardshrink(x, 0.5),
        lambda x: torch.atan2(x, x - 1),
    ],
)
def test_what_jumps_does_so_when_legal(function: Callable[..., Any]) -> None:
    assert has_discontinuities(_legal(function))


def test_choices_by_integers_are_none() -> None:
    assert not _has_jumps(lambda i: (i > 3).to(torch.float32), torch.arange(4))


def test_a_jump_in_a_branch_is_found() -> None:
    class Outer(torch.nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(flag, lambda a: a.floor(), lambda a: a + 1, (x,))

    program = torch.export.export(Outer(), (torch.tensor(True), torch.randn(3)))
    entry = LegalEntry(
        name="forward", graph=program.graph_module, weights=(), signature=Signature(inputs=(), outputs=())
    )
    legal = Legal(name="m", dialect="torch", entries=(entry,), weights={}, initial_state={})
    assert has_discontinuities(legal)
