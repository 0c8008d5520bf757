"""The dispatch of products of matrices computes what torch does, for any sizes and batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe import Dim
from aotpipe.backends.iree.kernels import batch_matmul
from aotpipe.backends.iree.kernels.batch_matmul import Matmul
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.lower import importer
from tests.programs import with_kernels
from tests.programs.through import legal
from tests.sweep import examples
from tests.unit.backends.iree.kernels.running import computed
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

REGISTERS = [Registers(16, 32), Registers(8, 16), Registers(4, 16), Registers(4, 32)]
SIZE = st.integers(1, 200)


@given(batch=st.none() | st.integers(1, 3), sizes=st.tuples(SIZE, SIZE, SIZE), has=st.sampled_from(REGISTERS))
def test_tiles_fit_the_registers_and_the_rows(
    batch: int | None, sizes: tuple[int, int, int], has: Registers
) -> None:
    tiles = batch_matmul.tiling(Matmul(batch, *sizes), has)
    vectors = tiles.columns.vectors
    assert tiles.rows * vectors + vectors + 1 <= has.number
    assert tiles.rows <= tiles.rows_of_group <= sizes[0]
    assert tiles.columns.size <= sizes[2]
    # The last workgroup has a whole tile, too.
    assert (sizes[0] % tiles.rows_of_group or tiles.rows) >= tiles.rows


@given(
    batch=st.integers(1, 3),
    is_decided=st.booleans(),
    sizes=st.tuples(SIZE, st.integers(1, 40), SIZE),
    has=st.sampled_from(REGISTERS[:3]),
)
@examples(quick=4, nightly=100)
def test_it_computes_what_torch_does(
    batch: int, is_decided: bool, sizes: tuple[int, int, int], has: Registers
) -> None:
    matmul = Matmul(None if is_decided else batch, *sizes)
    x, y = tensor(batch, *sizes[:2]), tensor(batch, *sizes[1:])
    [found] = computed(batch_matmul.text(matmul, batch_matmul.tiling(matmul, has)), [[x.numpy(), y.numpy()]])
    np.testing.assert_allclose(found, torch.bmm(x, y).numpy(), rtol=1e-4, atol=1e-4)


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


@pytest.mark.parametrize(
    ("left", "right", "is_ours"),
    [
        ((3, 40, 24), (3, 24, 40), True),
        ((2, 3, 40, 24), (3, 24, 40), True),
        ((3, 40, 24), (3, 24, 8), False),
        ((3, 2, 240), (3, 240, 200), False),
        ((3, 8, 8), (3, 8, 16), False),
    ],
)
def test_enough_products_are_ours(left: tuple[int, ...], right: tuple[int, ...], is_ours: bool) -> None:
    module = importer.lower(legal(Product(), (tensor(*left), tensor(*right)))).module
    assert (b"@multiply_" in with_kernels(module, "llvm-cpu")) == is_ours
    assert b"@multiply_" not in with_kernels(module, "vmvx")


def test_a_batch_that_a_call_decides() -> None:
    batch = Dim("b", min=1, max=8)
    sizes = {"x": {0: batch}, "y": {0: batch}}
    calls = [(tensor(count, 40, 24), tensor(count, 24, 40)) for count in (3, 1, 8)]
    run(Product(), *calls, dynamic_shapes=sizes)
