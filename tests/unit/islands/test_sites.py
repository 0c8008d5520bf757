"""What marked functions take and give is noted where that is asked for."""

from __future__ import annotations

import pytest
import torch

from aotpipe.errors import SpecInvalid
from aotpipe.islands.marking import eager_island
from aotpipe.islands.sites import SITES, recording
from tests.unit.islands import models


def test_calls_are_noted_where_that_is_asked_for() -> None:
    with recording():
        for size in (3, 5):
            models.positive(torch.ones(size))
    [site] = SITES.values()
    assert list(site.records) == [(((3,),), ((3,),)), (((5,),), ((5,),))]


def test_a_function_that_writes_into_its_argument_is_refused() -> None:
    @eager_island
    def write(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    with recording(), pytest.raises(SpecInvalid, match="writes into its argument"):
        write(torch.ones(2))


def test_a_function_that_gives_what_no_program_takes_is_refused() -> None:
    @eager_island
    def leave(x: torch.Tensor) -> object:
        return x.numpy()

    with recording(), pytest.raises(SpecInvalid, match="returns a ndarray"):
        leave(torch.ones(2))
