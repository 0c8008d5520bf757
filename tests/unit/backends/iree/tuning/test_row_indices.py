"""Reads and updates of whole rows have one index for a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from aotpipe.canonicalize.modules import as_module
from aotpipe.model.spec import Dim
from tests.programs import through

GENERATOR = torch.Generator().manual_seed(0)
NODES = torch.randn(20, 12, generator=GENERATOR)
LINKS = torch.randint(0, 20, (50,), generator=GENERATOR)
MESSAGES = torch.randn(50, 12, generator=GENERATOR)


def add(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.scatter_add(0, at.view(-1, 1).expand_as(rows), rows)


def put(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    places = torch.arange(19, -1, -1) + at[:20] * 0
    return x.scatter(-2, places.unsqueeze(-1).expand(20, 12), rows[:20])


def gather(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.gather(0, at.unsqueeze(-1).expand(-1, 12)) + rows


def index(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x[at - 20] + rows + x[at.view(10, 5)].sum((0, 1))


def some_columns(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.scatter_add(0, at.view(-1, 1).expand(50, 7), rows) + x.gather(0, at[:20, None].expand(20, 12))


def along_rows(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (
        rows.scatter_add(1, (at % 12).view(-1, 1).expand(50, 12), rows)
        + x.gather(1, at[:20, None] % 12).sum()
    )


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (add, {"index_put": 1}),
        (put, {"scatter": 1}),
        (gather, {"index_select": 1}),
        (index, {"index_select": 2}),
        # An index for some of a row's elements, or within rows, is none of a row.
        (some_columns, {"scatter_add": 1, "index_select": 1}),
        (along_rows, {"scatter_add": 1, "gather": 1}),
    ],
)
def test_rows_have_one_index(model: Callable[..., torch.Tensor], expected: dict[str, int]) -> None:
    inputs = NODES, LINKS, MESSAGES
    program = through.legal(as_module(model), inputs)
    named = {"scatter_add", "scatter", "gather", "index", "index_put", "index_select"}
    ops = Counter(
        node.target.overloadpacket.__name__
        for node in program.entries[0].graph.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    )
    assert {name: count for name, count in ops.items() if name in named} == expected
    through.check(as_module(model), inputs)


def test_sizes_that_vary() -> None:
    links = Dim("links", min=1, max=90)
    few = torch.tensor([3, 3, 0]), torch.ones(3, 12)
    through.check(
        as_module(add), (NODES, LINKS, MESSAGES), (NODES, *few), dynamic_shapes=(None, {0: links}, {0: links})
    )
