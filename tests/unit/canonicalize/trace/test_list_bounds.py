"""How much room a list needs that grows in a loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow

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


def an_inputs_range(x, n):
    out = [x]
    for i in range(1, n):
        out.append(x + i)  # noqa: PERF401
    return torch.stack(out)


def an_input_that_counts_down(x, n):
    out = [x]
    while n > 1:
        out.append(x + n)
        n = n - 2
    return torch.stack(out)


def the_smaller_of_two(x, n):
    out = [x]
    for i in range(min(int(n) + 1, 5)):
        out.append(x + i)  # noqa: PERF401
    return torch.stack(out)


@pytest.mark.parametrize(
    ("model", "room"),
    [(an_inputs_range, 8), slow((an_input_that_counts_down, 5)), slow((the_smaller_of_two, 6))],
)
def test_an_input_has_the_range_that_was_declared(model: Any, room: int) -> None:
    n = torch.tensor(3)
    found = export(canonicalize(as_spec(model, args=(X, n), value_ranges={"n": (0, 8)})))
    assert max(_rooms(found.entries[0].program.graph_module)) == room
    with torch.no_grad():
        for count in (0, 1, 2, 8):
            given = (X, torch.tensor(count))
            torch.testing.assert_close(found.entries[0].program.module()(*given), model(*given))


@pytest.mark.parametrize(
    ("model", "room"),
    [slow((a_range, 8)), slow((a_counter, 4)), slow((a_length, 8)), (another_lists_length, 4)],
)
def test_room_is_what_the_trips_need(model: Any, room: int) -> None:
    graph = export(canonicalize(as_spec(model, args=(X,)))).entries[0].program.graph_module
    assert max(_rooms(graph)) == room


def _rooms(graph: torch.fx.GraphModule) -> set[int]:
    return {
        value.shape[0]
        for module in graph.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        and value.dim() == 2
        and isinstance(value.shape[0], int)
    }
