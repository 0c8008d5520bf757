"""Special functions against float64, and at their poles and ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from aotpipe.backends.iree.decompositions import transcendental
from tests.programs.through import check
from tests.unit.backends.iree.decompositions.agree import check_op

WIDE = torch.cat([torch.linspace(-8.03, 20.01, 3001), torch.logspace(-6, 4, 500)])
UNIT = torch.cat([torch.linspace(-0.9999, 0.9999, 2001), torch.logspace(-8, -1, 100)])
DOMAINS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "acosh": (torch.acosh, torch.linspace(1, 1e7, 4001)),
    "erfc": (torch.erfc, torch.linspace(-6, 9, 4001)),
    "erfinv": (torch.erfinv, UNIT),
    "lgamma": (torch.lgamma, WIDE),
    "digamma": (torch.digamma, WIDE[WIDE > 0]),
    "i0": (torch.i0, torch.linspace(-30, 30, 2001)),
    "i0e": (torch.special.i0e, WIDE),
    "i1": (torch.special.i1, torch.linspace(-30, 30, 2001)),
    "i1e": (torch.special.i1e, WIDE),
    "erfcx": (torch.special.erfcx, torch.linspace(-4, 50, 4001)),
}


def ours(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    named = (name, f"special_{name}")
    return next(
        entry for op, entry in transcendental.DECOMPOSITIONS.items() if op.overloadpacket.__name__ in named
    )


@pytest.mark.parametrize("name", DOMAINS)
def test_close_to_float64(name: str) -> None:
    reference, arguments = DOMAINS[name]
    want = reference(arguments.double())
    got = ours(name)(arguments).double()
    scale = want.abs().clamp(min=1e-30 if name in {"erfc", "erfinv"} else 1.0)
    # Next to its poles log gamma is that of an argument's last bit.
    assert ((got - want).abs() / scale).max() < (2e-5 if name == "lgamma" else 5e-6)


@pytest.mark.parametrize("name", DOMAINS)
def test_ends_and_poles(name: str) -> None:
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, math.inf, math.nan])
    torch.testing.assert_close(ours(name)(ends), DOMAINS[name][0](ends), equal_nan=True, rtol=1e-5, atol=1e-5)


OPS = ["lgamma", "digamma", "erfinv", "special_i1"]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


class Functions(torch.nn.Module):
    """Of each kind one: its own series on both sides of a bound, a rational function, polynomials."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.lgamma(x), torch.erfinv(x / 10), torch.i0(x)


class Others(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.digamma(x), torch.erfc(x), torch.acosh(x)


@pytest.mark.parametrize("model", [Functions, pytest.param(Others, marks=pytest.mark.slow)])
def test_program(model: type[torch.nn.Module]) -> None:
    check(model(), (torch.linspace(0.1, 9.7, 60),))
