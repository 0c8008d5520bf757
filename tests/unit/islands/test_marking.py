"""A marked function is itself when it is called, and refuses to be traced unasked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.errors import IslandsNotAllowed
from aotpipe.runtime.islands.chain import MARKS, mark_of
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


def test_a_model_with_a_marked_function_is_not_exported_unasked() -> None:
    with pytest.raises(IslandsNotAllowed, match=r"the model calls .*:positive"):
        aotpipe.export(models.Masked(), (torch.ones(3),))


def test_torch_compile_breaks_its_graph_there() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(models.Masked(), backend="eager")
    x = torch.randn(5)
    assert torch.equal(compiled(x), models.Masked()(x))
