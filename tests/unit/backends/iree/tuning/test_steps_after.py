"""Elementwise ops behind a convolution are steps of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from aotpipe.backends.iree.kernels.steps import Steps
from aotpipe.backends.iree.tuning import kernels, steps_after
from tests.programs.through import legal
from tests.sweep import examples
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

Body = Callable[[torch.Tensor, torch.Tensor], Any]


class After(nn.Module):
    """A convolution, and what follows it, which may read the input too."""

    def __init__(self, body: Body, outputs: int = 3, groups: int = 1) -> None:
        super().__init__()
        self.first, self.body = nn.Conv2d(3, outputs, 3, padding=1, groups=groups), body

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self.first(x), x)


class Rows(nn.Module):
    def __init__(self, body: Body) -> None:
        super().__init__()
        self.up, self.body = nn.Linear(6, 24), body

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self.up(x), x)


TAKEN: dict[str, Body] = {
    "bias": lambda y, _: y,
    "relu": lambda y, _: F.relu(y),
    "silu": lambda y, _: F.silu(y),
    "gelu": lambda y, _: F.gelu(y),
    "hardswish": lambda y, _: F.hardswish(y),
    "leaky": lambda y, _: F.leaky_relu(y, 0.1),
    "leaky as usual": lambda y, _: F.leaky_relu(y),
    "clamp": lambda y, _: y.clamp(-0.3, 0.6),
    "elu": lambda y, _: F.elu(y),
    "residual": lambda y, x: F.relu(y + x),
    "residuals": lambda y, x: (y - x).abs() * torch.where(y > x, x, y) / 3 - 1,
    "scaled": lambda y, _: y * torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1),
}
APART: dict[str, Body] = {
    "read twice": lambda y, _: (y, F.relu(y).sum(1)),
    "rows": lambda y, _: y * torch.arange(6.0),
    "gelu by tanh": lambda y, _: F.gelu(y, approximate="tanh"),
    "largest": lambda y, x: torch.maximum(x, y),
    "one": lambda y, x: y * x.sum(),
    "other dtype": lambda y, _: (y > 0.1) | (y < -1),
    "times a bool": lambda y, _: y * (y > 0),
    "mask": lambda y, x: torch.where(x > 1, x, y),
}


def behind(module: nn.Module, *call: torch.Tensor) -> list[str]:
    """The elementwise ops on images of a program, which has a convolution with steps."""
    [entry] = legal(module, call).entries
    nodes = [node for node in entry.graph.graph.nodes if node.op == "call_function"]
    assert any(node.target in (steps_after.OP, kernels.OP) for node in nodes)
    pointwise = [node for node in nodes if torch.Tag.pointwise in getattr(node.target, "tags", ())]
    return [
        str(node.target)
        for node in pointwise
        if node.target is not torch.ops.aten.clone.default and node.meta["val"].numel() > 3
    ]


@pytest.mark.parametrize("name", TAKEN)
def test_nothing_is_left_behind_the_convolution(name: str) -> None:
    assert not behind(After(TAKEN[name]), tensor(1, 3, 6, 6))


@pytest.mark.parametrize("name", APART)
def test_what_is_not_elementwise_stays_behind_it(name: str) -> None:
    assert behind(After(APART[name]), tensor(1, 3, 6, 6))


class All(nn.Module):
    """Every body at once: one compile."""

    def __init__(self, *, exact: bool) -> None:
        super().__init__()
        # The compiler's `erf` is not exact at infinity.
        bodies = [body for name, body in (TAKEN | APART).items() if exact or name != "gelu"]
        self.images = nn.ModuleList(After(body) for body in bodies)
        self.grouped = After(lambda y, _: F.silu(y), outputs=60, groups=3)
        self.rows = nn.ModuleList(Rows(TAKEN[name]) for name in ("bias", "silu", "clamp"))

    def forward(self, x: torch.Tensor) -> list[Any]:
        return [*(part(x) for part in [*self.images, self.grouped]), *(part(x[:, 0]) for part in self.rows)]


@pytest.mark.parametrize("backend", ["llvm-cpu", "vmvx"])
def test_programs_compute_what_the_models_do(backend: str) -> None:
    torch.manual_seed(0)
    x = tensor(1, 3, 6, 6)
    not_finite = x.clone()
    not_finite[0, 0, 0, 0], not_finite[0, 1, 4, 4], not_finite[0, 2, 5, 5] = torch.inf, torch.nan, -torch.inf
    run(All(exact=True), (x,), backend=backend)
    if backend == "llvm-cpu":
        run(All(exact=False), (x,), (not_finite,), backend=backend)


def test_a_residual_that_lies_in_another_order_is_copied() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.transpose(0, 1) * 2) + x.transpose(0, 1) + x.sin().transpose(0, 1)

    assert str(steps_after.OP) in run(Turned(), (tensor(4, 3, 6),))


@pytest.mark.parametrize("backend", ["llvm-cpu", "vmvx"])
def test_they_do_for_rows_that_a_call_decides(backend: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(Rows(TAKEN["gelu"]), nn.Linear(24, 6), Rows(lambda y, x: F.silu(y)[:, :6] + x))
    rows = {"dynamic_shapes": ({0: Dim("rows", min=1, max=64)},)}
    calls = [(tensor(count, 6),) for count in (5, 1, 40)]
    assert str(steps_after.OP) in run(module, *calls, backend=backend, **rows)


@examples(quick=20, nightly=300)
@given(data=st.data())
def test_the_graph_computes_the_same_for_any_bodies(data: Any) -> None:
    chosen = data.draw(st.lists(st.sampled_from([*TAKEN]), min_size=1, max_size=4))
    again = data.draw(st.booleans())

    def body(y: torch.Tensor, x: torch.Tensor) -> Any:
        first = y
        for name in chosen:
            y = TAKEN[name](y, x)
        return (y, first * 2 + y) if again else y

    torch.manual_seed(0)
    module, x = After(body).eval(), tensor(2, 3, 6, 6)
    program = legal(module, (x,))
    [entry] = program.entries
    got = pytree.tree_leaves(entry.graph(*(program.weights[key] for key in entry.weights), x))
    for one, other in zip(got, pytree.tree_leaves(module(x)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_op_computes_its_steps() -> None:
    x, weight, number, image = tensor(1, 1, 4, 5, 3), tensor(6, 3, 1, 1, 1), tensor(6), tensor(1, 1, 4, 5, 6)
    text = str(
        Steps.parse('[["add", "v0", "c0"], ["relu", "v1"], ["sub", "v2", "i0"], ["mul", "v3", 0.5]]', 1, 1)
    )
    ones = [1, 1, 1]
    want = ((kernels.OP(x, weight, ones, ones, 1) + number).relu() - image) * 0.5
    found = steps_after.OP([x, weight, number, image], ones, ones, 1, 1, text)
    torch.testing.assert_close(found, want)
