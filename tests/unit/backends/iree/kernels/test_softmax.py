"""The dispatch of a softmax computes what torch does, for rows of any size and any numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aotpipe.backends.iree.kernels import softmax
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.lower import importer
from tests.programs import with_kernels
from tests.programs.through import legal
from tests.sweep import examples
from tests.unit.backends.iree.kernels.running import computed
from tests.unit.backends.iree.tuning.test_depthwise_sums import run, tensor

AVX512 = Registers(16, 32)


@given(
    before=st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=3),
    last=st.integers(2, 200),
    registers=st.sampled_from([AVX512, Registers(8, 16), Registers(4, 16)]),
)
@examples(quick=4, nightly=100)
def test_it_computes_what_torch_does(before: list[tuple[int, bool]], last: int, registers: Registers) -> None:
    sizes = [None if is_decided else size for size, is_decided in before]
    x = 4 * tensor(*(size for size, _ in before), last)
    [found] = computed(softmax.text([*sizes, last], registers), [[x.numpy()]])
    np.testing.assert_allclose(found, x.softmax(-1).numpy(), rtol=1e-5, atol=1e-12)


@given(
    before=st.lists(st.integers(1, 5), max_size=2),
    summed=st.integers(1, 60),
    after=st.lists(st.integers(1, 40), min_size=1, max_size=2),
    registers=st.sampled_from([AVX512, Registers(8, 16), Registers(4, 16)]),
)
@examples(quick=6, nightly=100)
def test_it_does_over_another_dim_than_the_last(
    before: list[int], summed: int, after: list[int], registers: Registers
) -> None:
    x = 4 * tensor(*before, summed, *after)
    assume(softmax.columns_of_group(prod(after)))
    [found] = computed(softmax.text_of_columns([*x.shape], len(before), registers), [[x.numpy()]])
    np.testing.assert_allclose(found, x.softmax(len(before)).numpy(), rtol=1e-5, atol=1e-12)


@given(columns=st.integers(1, 5000))
def test_workgroups_have_all_columns(columns: int) -> None:
    group = softmax.columns_of_group(columns)
    assert group == 0 or (4 <= group <= 512 and columns % group == 0)
    assert group or columns < 4 or columns > 512


def test_what_is_no_number() -> None:
    inf, nan = float("inf"), float("nan")
    rows = tensor(6, 37)
    for row, (at, value) in enumerate([(36, -inf), (0, inf), (36, nan), (0, nan), (5, -inf)]):
        rows[row, at] = value
    rows[5] = -inf
    columns = rows.t().contiguous()
    [found] = computed(softmax.text([6, 37], AVX512), [[rows.numpy()]])
    [other] = computed(softmax.text_of_columns([37, 6], 0, AVX512), [[columns.numpy()]])
    np.testing.assert_allclose(found, rows.softmax(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(other, columns.softmax(0).numpy(), rtol=1e-5)


class Softmax(torch.nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, self.dim) * 2


@pytest.mark.parametrize(
    ("sizes", "dim", "dtype", "is_ours"),
    [
        ((3, 50, 49), -1, torch.float32, True),
        ((3, 50, 49), 2, torch.float32, True),
        ((3, 50, 49), 1, torch.float32, True),
        ((3, 50, 49), 0, torch.float32, True),
        ((3, 50, 49), -3, torch.float32, True),
        ((3000, 3), 0, torch.float32, False),
        ((21, 521), 0, torch.float32, False),
        ((3, 50, 49), -1, torch.float64, False),
        ((3, 5, 49), -1, torch.float32, False),
        ((2000, 3), -1, torch.float32, False),
    ],
)
def test_a_softmax_of_enough_numbers_is_ours(
    sizes: tuple[int, ...], dim: int, dtype: Any, is_ours: bool
) -> None:
    module = importer.lower(legal(Softmax(dim), (tensor(*sizes, dtype=dtype),))).module
    assert (b"@softmax_" in with_kernels(module, "llvm-cpu")) == is_ours
    assert b"@softmax_" not in with_kernels(module, "vmvx")


@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_a_program_computes_what_eager_does(dim: int) -> None:
    run(Softmax(dim), (tensor(3, 50, 49),))
