"""A marked function is itself when it is called, and is noted where that is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.errors import IslandsNotAllowed, SpecInvalid
from aotpipe.islands import marking
from aotpipe.islands.marking import eager_island, recording
from aotpipe.runtime.islands.marks import MARKS, mark_of
from tests.unit.islands import models


def test_a_call_is_the_function_s() -> None:
    x = torch.randn(3, 4)
    got, width = models.order(x, 3)
    assert torch.equal(got, torch.sort(x, dim=-1).values[:, :2])
    assert width == 3


def test_a_mark_has_a_name_by_which_a_host_finds_it() -> None:
    mark = mark_of(models.order)
    assert mark is not None
    assert mark.name == "tests.unit.islands.models:order"
    assert (mark.arrays, mark.reason) == ("numpy", "numpy's sort")
    assert mark_of(np.sort) is None
    assert MARKS[mark.name] is mark


def test_calls_are_noted_where_that_is_asked_for() -> None:
    with recording():
        for size in (3, 5):
            models.positive(torch.ones(size))
    [site] = marking.SITES.values()
    assert [(r.inputs, r.outputs) for r in site.records] == [(((3,),), ((3,),)), (((5,),), ((5,),))]


def test_a_model_with_a_marked_function_is_not_exported_unasked() -> None:
    with pytest.raises(IslandsNotAllowed, match=r"the model calls .*:positive"):
        aotpipe.export(models.Masked(), (torch.ones(3),))


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


def test_torch_compile_breaks_its_graph_there() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(models.Masked(), backend="eager")
    x = torch.randn(5)
    assert torch.equal(compiled(x), models.Masked()(x))
