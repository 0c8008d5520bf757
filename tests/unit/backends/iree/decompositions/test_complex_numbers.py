"""Complex numbers over their parts: equal to eager."""

from __future__ import annotations

import pytest
import torch

from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

OPS = ["conj", "conj_physical", "view_as_real", "abs", "angle", "neg", "exp", "real", "imag", "sgn"]
OF_REALS = ["polar", "view_as_complex", "cfloat", "complex", "angle"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "complex64", among=OPS)


@pytest.mark.parametrize("op", OF_REALS)
def test_from_reals(op: str) -> None:
    check_op(op, "float32", among=OF_REALS)


class Turn(torch.nn.Module):
    """A rotary embedding as a product of complex numbers."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2), turned.abs(), turned.conj().imag, turned.angle()


def test_program() -> None:
    check(Turn(), (torch.randn(2, 6, 8), torch.randn(6, 4)))


class Floored(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        least = torch.tensor(1e-3, dtype=torch.complex64)
        if x.sum() > 0:
            return torch.where(x.abs() < 0.5, least, torch.complex(x, x))
        return torch.zeros(x.shape, dtype=torch.complex64) + least


def test_a_constant_is_chosen() -> None:
    """A constant of one number is written into the program where its parts are known by then."""
    check(Floored(), (torch.rand(4, 3),))


class Scatters(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z, y = torch.complex(x, x * 2 - 1), torch.complex(x.sin(), x.cos())
        added = y.scatter_add(1, index, z)
        # Of what is written twice torch does not say which stays.
        written = y.scatter(-1, torch.arange(4).flip(0).expand(2, 4), z)
        return torch.view_as_real(added), torch.view_as_real(written)


def test_scatters() -> None:
    check(Scatters(), (torch.randn(2, 4), torch.tensor([[0, 2, 2, 1], [1, 1, 0, 3]])))
