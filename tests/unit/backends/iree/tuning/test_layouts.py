"""Images stay with the channels last between convolutions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from tests.programs.through import legal
from tests.sweep import examples
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

PERMUTE = torch.ops.aten.permute.default


class Between(nn.Module):
    """A convolution, some ops, and a convolution."""

    def __init__(self, body: Any, channels: int = 8) -> None:
        super().__init__()
        self.first, self.body, self.last = nn.Conv2d(3, 8, 3, padding=1), body, nn.Conv2d(channels, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(self.first(x)))


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (
        x * x.mean([2, 3], keepdim=True).sigmoid()
        + torch.arange(8.0).reshape(8, 1, 1)
        - x.amax(1, keepdim=True)
    )


def joined(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.relu(x), x[:, 2:5, :, :], x.flip(3)[:, :1]], 1)


def padded(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (1, 2, 0, 1), value=3.0)[:, :, 1:, ::2]


def where(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, 2.0 * x).clamp(-1, 1)


def pooled(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3, 2, padding=1)


def flat(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(2).sin().unflatten(2, x.shape[2:])


def gated(x: torch.Tensor) -> torch.Tensor:
    return x * x.mean((2, 3))[:, :, None, None]


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).cumsum(3).permute(0, 3, 1, 2)


def rows(x: torch.Tensor) -> torch.Tensor:
    return (
        x.index_select(2, torch.tensor([3, 1, 1, 0])) + x.index_select(1, torch.arange(8).flip(0))[:, :, :4]
    )


def exchanged(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(2, 3) + x.permute(0, 1, 3, 2)


def flattened(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).flatten(1).sin().reshape(x.shape)


MOVED = [scaled, padded, where, pooled, flat, gated, rows]


def permutes(module: nn.Module, *call: torch.Tensor, **options: Any) -> list[tuple[int, ...]]:
    """The shapes of images that are written in another order; those of a size of 1 are views."""
    [entry] = legal(module, call, **options).entries
    found = entry.graph.graph.find_nodes(op="call_function", target=PERMUTE)
    shapes = [tuple(node.meta["val"].shape) for node in found]
    return [shape for shape in shapes if len(shape) == 4 and sum(size > 1 for size in shape[1:]) > 1]


@pytest.mark.parametrize("body", MOVED, ids=lambda body: body.__name__)
def test_no_image_is_moved_between_convolutions(body: Any) -> None:
    # The first and the last are what comes and goes.
    assert len(permutes(Between(body), tensor(1, 3, 6, 6))) == 2


class All(nn.Module):
    """Every body at once: one compile."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Between(body) for body in [*MOVED, turned, exchanged, flattened])
        self.joined = Between(joined, 12)
        self.line = nn.Sequential(nn.Conv1d(3, 6, 3), nn.ReLU(), nn.Conv1d(6, 4, 1))
        self.volume = nn.Sequential(nn.Conv3d(3, 6, 3, padding=1), nn.GELU(), nn.Conv3d(6, 4, 1))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        images = [part(x) for part in [*self.parts, self.joined]]
        return [*images, self.line(x.flatten(2)), self.volume(x.unsqueeze(2))]


def test_programs_compute_what_the_models_do() -> None:
    torch.manual_seed(0)
    run(All(), (tensor(1, 3, 6, 6),))


def test_they_do_for_sizes_that_a_call_decides() -> None:
    torch.manual_seed(0)
    bodies = [Between(body) for body in (scaled, where, flat, gated)]
    module = nn.Sequential(bodies[0], nn.Conv2d(4, 3, 1), bodies[1], nn.Conv2d(4, 3, 1), bodies[2])
    dims = {0: Dim("b", min=1, max=4), 2: Dim("h", min=4, max=30), 3: Dim("w", min=4, max=30)}
    calls = [(tensor(*size),) for size in ((2, 3, 6, 7), (1, 3, 20, 5))]
    run(module, *calls, dynamic_shapes=(dims,))


@examples(quick=25, nightly=300)
@given(data=st.data())
def test_the_graph_computes_the_same_for_any_ops(data: Any) -> None:
    chosen = data.draw(
        st.lists(st.sampled_from([*MOVED, turned, exchanged, flattened]), min_size=1, max_size=4)
    )
    torch.manual_seed(0)

    def body(x: torch.Tensor) -> torch.Tensor:
        values = [x]
        for op in chosen:
            source = values[-1]
            found = op(F.pad(source, (0, 4, 0, 4)))
            height, width = (min(sizes) for sizes in zip(found.shape[2:], source.shape[2:], strict=True))
            values.append(found[:, :, :height, :width] + source[:, :, :height, :width])
        return values[-1]

    module, x = Between(body).eval(), tensor(2, 3, 6, 6)
    program = legal(module, (x,))
    [entry] = program.entries
    [got] = pytree.tree_leaves(entry.graph(*(program.weights[key] for key in entry.weights), x))
    torch.testing.assert_close(got, module(x), rtol=1e-4, atol=1e-4)
