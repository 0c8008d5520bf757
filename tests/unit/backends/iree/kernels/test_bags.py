"""The dispatch of bags adds the rows that eager adds, for any sizes and registers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import embedding_bag

from aotpipe.backends.iree.kernels import bags
from aotpipe.backends.iree.kernels.bags import Bags
from aotpipe.backends.iree.kernels.convolution import Registers
from tests.sweep import examples
from tests.unit.backends.iree.kernels.running import computed
from tests.unit.backends.iree.tuning.test_depthwise_sums import tensor

REGISTERS = [Registers(16, 32), Registers(8, 16), Registers(4, 16)]


@given(
    rows=st.integers(1, 50),
    quarter=st.integers(1, 80),
    cuts=st.lists(st.lists(st.integers(0, 90), max_size=70), min_size=1, max_size=3),
    count=st.integers(0, 90),
    is_mean=st.booleans(),
    with_end=st.booleans(),
    has=st.sampled_from(REGISTERS),
)
@examples(quick=6, nightly=100)
def test_it_computes_what_eager_does(
    rows: int, quarter: int, cuts: list[list[int]], count: int, is_mean: bool, with_end: bool, has: Registers
) -> None:
    width = 4 * quarter
    cut = bags.tile(width, has)
    assert cut is not None
    assert width % cut.size == 0
    table = tensor(rows, width)
    indices = torch.arange(count) * 7 % rows
    # With a last offset there is one bag at least; eager counts what comes after it for a mean.
    starts = [sorted(min(each, count) for each in some) for some in cuts]
    given = [
        torch.tensor([0, *some, *([count // 2 + 1] if with_end else [])]).clamp(max=count) for some in starts
    ]
    given = [offsets.sort().values for offsets in given]
    text = bags.text(Bags(rows, width, is_mean, with_end), cut)
    calls = [[table.numpy(), indices.numpy(), offsets.numpy()] for offsets in given]
    mode = "mean" if is_mean else "sum"
    for offsets, found in zip(given, computed(text, calls), strict=True):
        want = embedding_bag(indices, table, offsets, mode=mode, include_last_offset=with_end)
        np.testing.assert_allclose(found, want.numpy(), rtol=1e-5, atol=1e-5)


def test_what_is_no_place_is_not_read() -> None:
    """An assert of the program refuses such a call, but the dispatch may run before it."""
    table = tensor(5, 16)
    cut = bags.tile(16, REGISTERS[0])
    assert cut is not None
    far = 1 << 62
    calls = [
        [table.numpy(), np.array([0, -far, far, 4]), np.array([0, 2, 4])],
        [table.numpy(), np.array([1, 2, 3]), np.array([0, far, -far, 2])],
    ]
    first, second = computed(bags.text(Bags(5, 16, False, False), cut), calls)
    rows = table.numpy()
    np.testing.assert_allclose(first, [rows[0] + rows[0], rows[4] + rows[4], 0 * rows[0]], rtol=1e-6)
    np.testing.assert_allclose(
        second, [rows[1] + rows[2] + rows[3], 0 * rows[0], rows[1] + rows[2], rows[3]], rtol=1e-6
    )


@pytest.mark.parametrize(("width", "is_cut"), [(4, True), (6, False), (3, False), (20, True), (1024, True)])
def test_a_row_that_no_vectors_divide_has_none(width: int, is_cut: bool) -> None:
    assert (bags.tile(width, REGISTERS[0]) is not None) == is_cut
