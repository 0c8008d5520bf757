"""Every rule against eager, at sizes between buckets, with garbage in the padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from tests.programs import on_xla
from tests.unit.backends.xla.padding.cases import CASES, Case

SIZES = {"n": (5, 4, 7, 8), "m": (6, 8, 4, 5), "k": (4, 7, 8, 6)}
# The rest is slow: an export and a compile each.
QUICK = {"views", "joins", "slices", "softmax", "writes"}


class Function(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.function = case.function


class OfOne(Function):
    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class OfTwo(Function):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)


def check(case: Case) -> None:
    torch.manual_seed(0)
    names = sorted({size for shape in case.shapes for size in shape if isinstance(size, str)})
    dims = {name: Dim(name, min=4, max=8) for name in names}
    inputs = ("x", "y")[: len(case.shapes)]
    shapes = {
        name: {axis: dims[size] for axis, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in zip(inputs, case.shapes, strict=True)
    }
    calls = []
    for number in range(4):
        given = [
            tuple(SIZES[size][number] if isinstance(size, str) else size for size in shape)
            for shape in case.shapes
        ]
        calls.append(tuple(case.draw(shape) for shape in given))
    module = (OfOne if len(inputs) == 1 else OfTwo)(case)
    on_xla.check_padded(
        module, *calls, buckets=dict.fromkeys(names, (8,)), fills=(float("nan"), 1e30), dynamic_shapes=shapes
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_a_padded_program_equals_eager(name: str) -> None:
    check(CASES[name])
