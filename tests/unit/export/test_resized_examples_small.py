"""Programs that forgot a branch on size one are found out."""

from __future__ import annotations

from typing import Any

import torch

from aotpipe.build import steps
from aotpipe.core.dims import Dim
from aotpipe.export import resized_examples, strategies
from tests.unit.export.models import entry_of

B = Dim("b", max=64)


def agree(function: Any, *args: Any, dim: Dim = B) -> bool:
    entry = entry_of(function, *args, shapes={"x": {0: dim}})
    # As torch.export does unless told otherwise: sizes of 0 and 1 are taken for impossible.
    program = strategies._export(entry, strategies.Strategy(changed={}))
    return resized_examples.agree(entry, program)


def double_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] == 1 else x + 1


def test_a_lost_branch_is_found_even_where_the_example_hides_it() -> None:
    assert not agree(double_one, torch.ones(3, 2))
    assert agree(double_one, torch.ones(3, 2), dim=Dim("b", 2, 64))


def test_a_model_without_branches_agrees() -> None:
    assert agree(lambda x: x.sum(0), torch.ones(3, 2), dim=Dim("b", 0, 64))


def test_a_size_that_the_model_refuses_says_nothing() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            raise ValueError("too small")
        return x

    assert agree(f, torch.ones(3, 2))


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


def test_state_begins_anew_for_each_size() -> None:
    """The second comparison was with a program that had counted the first."""
    exported = steps.export(Counting().eval(), (torch.ones(3, 2),), dynamic_shapes={"x": {0: B}})
    assert [str(symbol) for symbol in exported.entries[0].signature.symbols] == ["b=1..64"]
