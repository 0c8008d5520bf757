"""Sizes of the run that torch took for known ones are checked, and nothing is read beyond them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.backends.iree.lower import importer
from aotpipe.core.dims import Dim
from aotpipe.errors import AssertionViolated, UnsupportedOps
from tests.programs import through
from tests.unit.passes import legal

X, LENGTHS = torch.arange(20.0).reshape(2, 10), torch.tensor([6, 4])
LENGTH = {"x": {1: Dim("length", min=4, max=32)}}


def of_a_number(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(torch.arange(int(lengths.sum())) >= lengths[:, None], 0.0)


def of_a_mask(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x[0][x[0] >= lengths[1] - 4] + x[1]


def of_a_slice(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x[0][-lengths.sum() :] + x[1]


def of_repeats(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x[:, 0], lengths) + x[1]


def of_a_product(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1) + torch.arange(int(lengths.sum() * 2))


def of_places(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.where(x - x[0, 0] >= 2 * lengths[1] + 2)  # of 20 numbers as many as x has columns
    return rows * 100 + columns + x[1]


def of_places_as_a_tuple(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    (columns,) = (x[0] >= lengths[1] - 4).nonzero(as_tuple=True)
    return x[0][columns] + x[1]


def of_places_in_rows(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.argwhere(x - x[0, 0] >= 2 * lengths[1] + 2)[:, 1] + x[1]


def of_columns(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x[:, x[0] >= lengths[1] - 4] * x


def of_a_broadcast_mask(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, lengths[:, None] > 4) + x[1]


def of_unique_numbers(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    found, counts = torch.unique((x - x[0, 0]) // (lengths.sum() - 8), return_counts=True)
    return found * x[1] + counts


def of_runs(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    found, counts = torch.unique_consecutive((x - x[0, 0]) // (lengths.sum() - 8), return_counts=True)
    return found * x[1] + counts


MODELS = (
    *(of_a_number, of_a_mask, of_a_slice, of_repeats, of_a_product),
    *(of_places, of_places_as_a_tuple, of_places_in_rows, of_columns, of_a_broadcast_mask),
    *(of_unique_numbers, of_runs),
)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("model", MODELS)
def test_the_assert_stays(model: Callable[..., Any], dynamic: bool) -> None:
    shapes = {"dynamic_shapes": LENGTH} if dynamic else {}
    made = legal.legal(legal.model(lambda _, x, lengths: model(x, lengths)), (X, LENGTHS), **shapes)
    [entry] = made.entries
    assert any("a size or number is not as the model needs it: Eq(" in text for text in entry.asserts)


class All(torch.nn.Module):
    """All of them, each of which needs another sum of lengths or none."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(model(x, lengths) for model in MODELS)


def test_a_program_gives_eagers_numbers_and_refuses_what_eager_does() -> None:
    module = All()
    program = through.legal(module, (X, LENGTHS))
    with through.load(program, importer.lower(program)) as runner:
        for call in ((X, LENGTHS), (X + 3, LENGTHS)):
            through.compare(runner, program, module, call)
        for lengths in ([5, 4], [9, 8], [0, 0]):
            with pytest.raises(RuntimeError):
                module(X, torch.tensor(lengths))
            with pytest.raises(AssertionViolated, match="is not as the model needs it"):
                runner.infer({"x": X.numpy(), "lengths": np.array(lengths)})


def test_what_cannot_be_checked_is_refused() -> None:
    def of_rows(_: torch.nn.Module, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.unique_consecutive(x, dim=0) + x

    with pytest.raises(UnsupportedOps, match="taken for 2") as refused:
        legal.legal(legal.model(of_rows), (X, LENGTHS))
    assert "unique_consecutive" in refused.value.reason
