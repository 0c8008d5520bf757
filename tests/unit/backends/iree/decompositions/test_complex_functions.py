"""Functions of complex numbers over their parts: eager's on a grid around the axes, and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.backends.iree.decompositions.complex_numbers import OF_COMPLEX
from tests.programs.through import check

aten = torch.ops.aten
ENDS = torch.tensor([0.0, -0.0, 1e-6, 0.3, -0.3, 1.0, -1.0, 0.9999, 1.5, -2.5, 3.1, 12.0, -15.0, 30.0])
GRID = torch.complex(*(part.flatten() for part in torch.meshgrid(ENDS, ENDS, indexing="ij")))
UNARY = [op for op in OF_COMPLEX if len(op._schema.arguments) == 1]
BINARY = [
    *((aten.pow.Tensor_Scalar, GRID, number) for number in (2, -1, 3, 0.5, 0, 1.5, 2 - 1j)),
    (aten.pow.Tensor_Tensor, GRID, GRID.flip(0) * 0.3),
    (aten.pow.Scalar, 0.3 + 1j, GRID),
    *((op, GRID, number) for op in (aten.eq.Scalar, aten.ne.Scalar) for number in (1, 0.0, 1 + 1j)),
    *((op, GRID, GRID.flip(0)) for op in (aten.eq.Tensor, aten.ne.Tensor)),
    *((getattr(aten, f"logical_{name}").default, GRID, GRID.flip(0)) for name in ("and", "or", "xor")),
]


def near_eager(op: Any, *operands: Any) -> None:
    wanted, found = op(*operands), OF_COMPLEX[op](*operands)
    if not wanted.is_complex():
        assert torch.equal(found, wanted)
        return
    assert found.dtype == wanted.dtype
    wide = [x.to(torch.complex128) if isinstance(x, torch.Tensor) else x for x in operands]
    exact = op(*wide)
    # Eager itself is off where parts cancel.
    is_near = torch.isclose(found, wanted, rtol=5e-5, atol=5e-5, equal_nan=True)
    is_near |= (found - exact).abs() <= 3 * (wanted - exact).abs() + 1e-5 * exact.abs()
    assert is_near.all(), (found[~is_near], wanted[~is_near])


@pytest.mark.parametrize("op", UNARY, ids=str)
def test_a_function_is_eagers(op: Any) -> None:
    near_eager(op, GRID)


@pytest.mark.parametrize("call", BINARY, ids=lambda call: str(call[0]))
def test_a_function_of_two_is_eagers(call: Any) -> None:
    near_eager(*call)


@pytest.mark.parametrize("op", OF_COMPLEX, ids=str)
def test_real_numbers_are_left(op: Any) -> None:
    given = [torch.ones(2), [torch.zeros(1, dtype=torch.int64)], torch.ones(1)]
    assert OF_COMPLEX[op](*given[: len(op._schema.arguments)]) is NotImplemented


class Functions(torch.nn.Module):
    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = z.clone()
        y.index_put_((torch.tensor([0, 0]),), z[1:3] * 2j, accumulate=True)
        return (
            torch.log(z) + torch.tanh(z),
            torch.sqrt(z) * z**2 - z.reciprocal(),
            z == z.flip(0),
            torch.isnan(z),
            torch.add(z, z, alpha=2) - z.sigmoid(),
            torch.nn.functional.pad(z, (1, 2), value=3.0),
            y,
            torch.pow(z[0], z[1]),
        )


def test_a_program() -> None:
    check(Functions(), (torch.complex(torch.randn(6), torch.randn(6)),))
