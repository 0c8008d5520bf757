"""The whole count, through the public function."""

from __future__ import annotations

import pytest
import torch

import aotpipe
from aotpipe.errors import TooManyPrograms
from tests.unit.tools.recompiles.models import Counting, N


def test_torch_compile_and_a_program_side_by_side() -> None:
    found = aotpipe.recompiles(
        Counting().eval(),
        (torch.ones(3, 2),),
        dynamic_shapes={"x": {0: N}},
        ways=["torch.compile", "iree-vmvx"],
        cache=False,
    )
    mine, theirs = found.way("iree-vmvx"), found.way("torch.compile")
    assert mine.count == 1
    assert mine.compared == len(found.calls)
    assert theirs.count > 4
    with pytest.raises(TooManyPrograms, match=r"models.py:\d+: torch.compile takes"):
        found.require(1)


def test_a_model_that_no_program_takes_is_counted_all_the_same() -> None:
    class Growing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0]

    found = aotpipe.recompiles(
        Growing().eval(), (torch.ones(3),), inputs=[torch.ones(3)], ways=["torch.compile"]
    )
    assert found.calls == ("call 1",)
    assert found.way("torch.compile").refused == ()
