"""Writes at ids that eager refuses, and of values that one dim may repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe import Dim
from tests.programs.through import check as check_program
from tests.unit.passes.legal import Runner, legal, model

X, IDS, ROWS = torch.randn(3, 4), torch.tensor([0, 2]), torch.randn(2, 4)
PLACES = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]])


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning", "ignore:The reduce argument:UserWarning")
@pytest.mark.parametrize(
    ("write", "ids"),
    [
        (lambda x, ids: x.index_add(0, ids, ROWS, alpha=2.0), IDS),
        (lambda x, ids: x.index_copy(0, ids, ROWS), IDS),
        (lambda x, ids: x.index_reduce(0, ids, ROWS, "amax"), IDS),
        (lambda x, ids: x.scatter_reduce(0, ids, ROWS, "prod"), PLACES),
        (lambda x, ids: x.scatter(0, ids, ROWS, reduce="add"), PLACES),
    ],
)
def test_ids_out_of_range_raise(write: Callable[..., torch.Tensor], ids: torch.Tensor) -> None:
    run = Runner(legal(model(lambda self, x, ids: write(x, ids + 0)), (X, ids)))
    (found,) = run((X, ids)).values()
    assert all(run.asserts.values())
    torch.testing.assert_close(found, write(X, ids))
    for bad in (-1, 3):
        run((X, torch.where(ids == 2, bad, ids)))
        assert {said[:18] for said, holds in run.asserts.items() if not holds} == {"index out of range"}


def test_repeats_that_eager_refuses_raise() -> None:
    def forward(self: Any, x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(repeats + 0, dim=0, output_size=4)

    run = Runner(legal(model(forward), (X, torch.tensor([2, 0, 2]))))
    for repeats, holds in (([2, 0, 2], True), ([1, 3, 0], True), ([3, 2, -1], False), ([1, 1, 1], False)):
        run((X, torch.tensor(repeats)))
        assert all(run.asserts.values()) is holds


def test_one_row_is_written_at_all_places() -> None:
    def forward(self: Any, x: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return x.index_put((ids,), rows)

    options = {"dynamic_shapes": {"x": None, "ids": {0: Dim("n")}, "rows": {0: Dim("m")}}}
    calls = [(X, IDS, ROWS), (X, torch.arange(3), ROWS[:1])]
    check_program(model(forward), *calls, **options)
    run = Runner(legal(model(forward), calls[0], **options))
    run((X, torch.arange(3), ROWS))
    assert not all(run.asserts.values())
