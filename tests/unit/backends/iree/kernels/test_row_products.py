"""The dispatch of rows times a vector computes what torch does, for any sizes and registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe import Dim
from aotpipe.backends.iree.kernels import row_products
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.row_products import RowProducts
from aotpipe.backends.iree.lower import importer
from tests.programs import with_kernels
from tests.programs.through import legal
from tests.sweep import examples
from tests.unit.backends.iree.kernels.running import computed
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

REGISTERS = [Registers(16, 32), Registers(8, 16), Registers(4, 16)]


@given(
    batch=st.integers(1, 4),
    rows=st.integers(1, 600),
    is_decided=st.booleans(),
    quarter=st.integers(1, 80),
    has=st.sampled_from(REGISTERS),
)
@examples(quick=6, nightly=100)
def test_it_computes_what_torch_does(
    batch: int, rows: int, is_decided: bool, quarter: int, has: Registers
) -> None:
    sizes = RowProducts(batch, None if is_decided else rows, 4 * quarter)
    cut = row_products.tile(sizes, has)
    assert cut is not None
    assert cut.size == sizes.reduced
    matrix, vector = tensor(batch, rows, sizes.reduced), tensor(batch, 1, sizes.reduced)
    [found] = computed(row_products.text(sizes, cut), [[matrix.numpy(), vector.numpy()]])
    np.testing.assert_allclose(found, (matrix * vector).sum(-1).numpy(), rtol=1e-4, atol=1e-4)


def test_a_row_that_no_vectors_divide_has_none() -> None:
    assert row_products.tile(RowProducts(2, 3, 6), REGISTERS[0]) is None


class Sum(torch.nn.Module):
    """Products summed over a dim, which something else may read, too."""

    def __init__(self, dim: int = -1, *, keeps: bool = False, reads: bool = False) -> None:
        super().__init__()
        self.dim, self.keeps, self.reads = dim, keeps, reads

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        product = x * y
        total = product.sum(self.dim, keepdim=self.keeps)
        return (total, product) if self.reads else total


@pytest.mark.parametrize(
    ("model", "left", "right", "is_ours"),
    [
        (Sum(), (3, 400, 64), (3, 1, 64), True),
        (Sum(), (3, 1, 64), (3, 400, 64), True),
        (Sum(2), (3, 2000, 20), (3, 1, 20), True),
        (Sum(1), (3, 400, 64), (3, 1, 64), False),
        (Sum(keeps=True), (3, 400, 64), (3, 1, 64), False),
        (Sum(reads=True), (3, 400, 64), (3, 1, 64), False),
        (Sum(), (3, 400, 64), (1, 1, 64), False),
        (Sum(), (3, 400, 64), (3, 400, 64), False),
        (Sum(), (3, 400, 6), (3, 1, 6), False),
        (Sum(), (3, 4, 64), (3, 1, 64), False),
        (Sum(), (3, 1, 64), (3, 1, 64), False),
        (Sum(), (400, 64), (1, 64), False),
    ],
)
def test_sums_over_the_last_dim_are_ours(
    model: Sum, left: tuple[int, ...], right: tuple[int, ...], is_ours: bool
) -> None:
    module = importer.lower(legal(model, (tensor(*left), tensor(*right)))).module
    assert (b"@multiply_rows_" in with_kernels(module, "llvm-cpu")) == is_ours
    assert b"@multiply_rows_" not in with_kernels(module, "vmvx")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_other_dtypes_stay(dtype: torch.dtype) -> None:
    call = tuple(tensor(*size).to(dtype) for size in ((3, 400, 64), (3, 1, 64)))
    assert b"@multiply_rows_" not in with_kernels(importer.lower(legal(Sum(), call)).module, "llvm-cpu")


class Attention(torch.nn.Module):
    """The scores of one query with keys that lie position by position."""

    def forward(self, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return (query @ keys.transpose(1, 2)).softmax(-1)


def test_one_query_of_keys_whose_number_a_call_decides() -> None:
    many = Dim("many", min=2, max=600)
    calls = [(tensor(3, 1, 64), tensor(3, count, 64)) for count in (300, 2, 600)]
    run(Attention(), *calls, dynamic_shapes=({}, {1: many}))


def test_a_large_number_in_one_row_is_in_no_other() -> None:
    matrix, vector = tensor(2, 300, 64), tensor(2, 1, 64)
    matrix[1, 7, 3], matrix[0, 299, 63], matrix[0, 0, 0] = float("inf"), float("nan"), -float("inf")
    sizes = RowProducts(2, 300, 64)
    cut = row_products.tile(sizes, REGISTERS[0])
    assert cut is not None
    [found] = computed(row_products.text(sizes, cut), [[matrix.numpy(), vector.numpy()]])
    np.testing.assert_allclose(found, (matrix * vector).sum(-1).numpy(), rtol=1e-4, atol=1e-4)
