"""Reads by strides: of the memory of their operand, whatever view of it the operand is."""

from __future__ import annotations

import pytest
import torch

import aotpipe
from aotpipe.errors import UnsupportedOps
from tests.programs.on_xla import check as check_on_xla
from tests.programs.through import check


class Strided(torch.nn.Module):
    def forward(self, x: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = number * 2
        return (
            x.as_strided((2, 2), (4, 1), 1) + 1,
            x.as_strided((), (), 3) + 1,
            one.as_strided((), ()) + 1,
            one.as_strided((3, 1), (0, 1)) + 1,
            x.as_strided((0, 2), (1, 1)) + 1,
        )


class OfViews(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = x.t()
        return (
            turned.as_strided((2, 3), (1, 2), 1),
            x[:, ::2].as_strided((3, 2), (4, 1)),
            x[1:].as_strided((2,), (3,)),
            (turned + 1).as_strided((5,), (2,)),
            turned.as_strided((3, 3), (4, 1)).as_strided((4,), (2,), 1),
        )


class Dynamic(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((x.shape[0], 3), (4, 1), 1)


def test_program() -> None:
    call = (torch.randn(3, 4), torch.tensor(3.0))
    check(Strided(), call)
    check_on_xla(Strided(), call)


def test_views() -> None:
    check(OfViews(), (torch.randn(3, 4),))
    check_on_xla(OfViews(), (torch.randn(3, 4),))


def test_a_size_that_varies() -> None:
    dims = {"x": {0: aotpipe.Dim("n", min=1, max=6)}}
    check(Dynamic(), (torch.randn(3, 4),), dynamic_shapes=dims)


def test_an_input_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(UnsupportedOps, match="not contiguous in the example"):
        check(OfViews(), (torch.randn(4, 3).t(),))
