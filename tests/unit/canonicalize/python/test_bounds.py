"""How much room a list needs that grows in a loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.spec import as_spec

X = torch.tensor([1.0, 2.0])


def a_range(x):
    out = [x, x]
    for _ in range(2, 9, 3):
        out.append(x)
        out.append(x + 1)
        if x.sum() > 100:
            break
    return torch.stack(out)


def a_counter(x):
    out, i = [], 1
    while i <= 7 and x.sum() < 100:
        out.append(x)
        i += 2
        x = x * 2
    return torch.stack(out)


def a_length(x):
    out = [x, x]
    while len(out) < 6 and x.sum() < 100:
        out.append(x)
        out.append(x)
        out.append(x)
        x = x * 2
    return torch.stack(out)


def another_lists_length(x):
    out, other = [x], [1]
    while len(other) < 4 and x.sum() < 100:
        other.append(2)
        out.append(x)
        x = x * 2
    return torch.stack(out)


@pytest.mark.parametrize(
    ("model", "room"), [(a_range, 8), (a_counter, 4), (a_length, 8), (another_lists_length, 4)]
)
def test_room_is_what_the_trips_need(model: Any, room: int) -> None:
    graph = export(canonicalize(as_spec(model, args=(X,)))).entries[0].program.graph_module
    sizes = {
        value.shape[0]
        for module in graph.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        and value.dim() == 2
        and isinstance(value.shape[0], int)
    }
    assert max(sizes) == room
