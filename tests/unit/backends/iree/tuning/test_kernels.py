"""Which convolutions and matmuls become an op with the channels last, and what it computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from aotpipe.backends.iree.tuning import kernels, steps_after
from tests.programs.through import legal
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

# A bias is a step behind it.
OPS = {str(kernels.OP), str(steps_after.OP)}


class Tied(nn.Module):
    """Logits by the table of an embedding, and a product by what the call brings."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 24)

    def forward(self, ids: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        return (x @ self.table.weight.t()) @ other


def count(module: nn.Module, *call: torch.Tensor, **options: Any) -> int:
    [entry] = legal(module, call, **options).entries
    return sum(str(node.target) in OPS for node in entry.graph.graph.nodes)


@pytest.mark.parametrize(
    ("module", "size", "wanted"),
    [
        (nn.Conv2d(3, 24, 3), (2, 3, 9, 9), 1),
        (nn.Conv1d(3, 24, 3, 2), (2, 3, 9), 1),
        (nn.Conv3d(3, 24, 3, padding=1), (2, 3, 5, 5, 5), 1),
        (nn.Conv2d(16, 24, 3, groups=2), (1, 16, 9, 9), 1),
        (nn.Conv2d(16, 16, 3, groups=16), (1, 16, 9, 9), 1),
        (nn.Conv2d(24, 24, (1, 5), groups=24), (1, 24, 9, 9), 1),
        (nn.Conv1d(24, 24, 5, groups=24), (1, 24, 9), 1),
        (nn.Conv2d(4, 4, 3, groups=4), (1, 4, 9, 9), 0),
        (nn.Conv2d(16, 32, 3, groups=16), (1, 16, 9, 9), 0),
        (nn.Conv2d(16, 16, 3, groups=8), (1, 16, 9, 9), 1),
        (nn.Conv2d(16, 16, 3), (1, 16, 3, 3), 1),
        (nn.Conv2d(16, 16, 3).double(), (1, 16, 9, 9), 1),
        (nn.Linear(16, 24), (5, 16), 1),
        (nn.Linear(16, 24), (2, 3, 16), 1),
        (nn.Linear(16, 24), (1, 16), 1),
    ],
    ids=lambda each: str(each).replace(" ", ""),
)
def test_what_has_weights_for_all_pixels_takes_this_form(
    module: nn.Module, size: tuple[int, ...], wanted: int
) -> None:
    dtype = next(module.parameters()).dtype
    assert count(module, tensor(*size, dtype=dtype)) == wanted


@pytest.mark.parametrize("outputs", [1, 7, 24, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_single_row_is_multiplied_by_all_columns(outputs: int, dtype: torch.dtype) -> None:
    run(nn.Linear(70, outputs).to(dtype), (tensor(1, 70, dtype=dtype),))


@pytest.mark.parametrize(
    ("module", "size"),
    [
        (nn.Conv2d(24, 24, 7, padding=3, groups=24), (2, 24, 9, 8)),
        (nn.Conv2d(37, 37, (3, 5), (2, 3), padding=(0, 2), groups=37, bias=False), (1, 37, 12, 11)),
        (nn.Conv2d(16, 16, 3, 2, padding=1, dilation=2, groups=16).double(), (1, 16, 6, 9)),
        (nn.Conv3d(8, 8, 3, padding=1, groups=8), (1, 8, 4, 5, 6)),
        (nn.Sequential(nn.Conv1d(16, 16, 3, groups=16), nn.SiLU()), (1, 16, 9)),
    ],
    ids=lambda each: str(each).replace(" ", "").replace("\n", ""),
)
def test_depthwise_convolutions_compute_what_eager_does(module: nn.Module, size: tuple[int, ...]) -> None:
    dtype = next(module.parameters()).dtype
    assert OPS & {*run(module, (tensor(*size, dtype=dtype),))}
    run(module, (tensor(*size, dtype=dtype),), backend="vmvx")


@pytest.mark.parametrize("backend", ["llvm-cpu", "vmvx"])
@pytest.mark.parametrize("varies", [False, True])
def test_depthwise_convolutions_of_any_number_or_size_of_images(backend: str, varies: bool) -> None:
    module = nn.Conv2d(16, 16, 3, 2, padding=1, groups=16)
    number = {0: Dim("b", min=1, max=8)}
    size = {2: Dim("h", min=1, max=40), 3: Dim("w", min=1, max=40)} if varies else {}
    calls = [(tensor(batch, 16, *size),) for batch, size in ((2, (9, 10)), (1, (9, 10)))]
    calls += [(tensor(3, 16, 5, 31),)] if varies else []
    run(module, *calls, backend=backend, dynamic_shapes=(number | size,))


def test_rows_that_a_call_decides_take_it_too() -> None:
    rows = {"dynamic_shapes": ({0: Dim("rows", min=1, max=64)},)}
    assert count(nn.Linear(16, 24), tensor(5, 16), **rows) == 1
    targets = run(nn.Linear(16, 24), (tensor(5, 16),), (tensor(1, 16),), (tensor(20, 16),), **rows)
    assert OPS & {*targets}
    run(nn.Linear(16, 24), (tensor(5, 16),), (tensor(1, 16),), backend="vmvx", **rows)


def test_images_of_any_size_take_it() -> None:
    sizes = {
        "dynamic_shapes": (
            {0: Dim("b", min=1, max=4), 2: Dim("h", min=3, max=40), 3: Dim("w", min=3, max=40)},
        )
    }
    calls = [(tensor(*size),) for size in ((2, 3, 9, 10), (1, 3, 3, 3), (3, 3, 5, 31))]
    assert OPS & {*run(nn.Conv2d(3, 20, 3, padding=1), *calls, **sizes)}


def test_a_matrix_of_the_call_does_not() -> None:
    call = (torch.tensor([3, 5, 8]), tensor(40, 7))
    assert count(Tied(), *call) == 1
    run(Tied(), call)


def test_rows_that_are_none_are_multiplied() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x[x[:, 0] > 0])

    targets = run(Kept(), (tensor(5, 16),), (-tensor(5, 16).abs(),))
    assert OPS & {*targets}


def test_the_op_computes_what_a_convolution_does() -> None:
    x, weight = tensor(1, 3, 6, 7, 8), tensor(6, 4, 2, 3, 3)
    want = torch.conv3d(x.permute(0, 4, 1, 2, 3), weight, None, (1, 2, 1), 0, (1, 1, 2), 2)
    found = kernels.OP(x, weight, (1, 2, 1), (1, 1, 2), 2)
    torch.testing.assert_close(found, want.permute(0, 2, 3, 4, 1))
    assert kernels.OP(tensor(1, 1, 0, 1, 8), tensor(6, 8, 1, 1, 1), [1] * 3, [1] * 3, 1).shape == (
        1,
        1,
        0,
        1,
        6,
    )
    assert kernels.OP(x.to("meta"), weight.to("meta"), (1, 2, 1), (1, 1, 2), 2).shape == found.shape
