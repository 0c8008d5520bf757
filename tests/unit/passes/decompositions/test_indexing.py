"""Scatters that reduce, and writes by masks: equal to eager on torch's own samples."""

from __future__ import annotations

import pytest
import torch

from aotpipe.passes.decompositions import indexing
from tests.unit.backends.iree.decompositions.agree import check_op
from tests.unit.passes.legal import Runner, check, model

OPS = [
    "masked_scatter",
    "scatter_reduce_amax",
    "index_reduce_mean",
    "put",
    "repeat_interleave",
    "histc",
    "as_strided_scatter",
    "nn_functional_embedding_bag",
]


@pytest.mark.parametrize("op", OPS)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "float32", among=OPS)


def test_writes_by_strides_stay_in_their_operand() -> None:
    x, ones = torch.randn(5, 4), torch.ones(2, 2)
    for offset in (None, 4, 6):
        found = indexing.as_strided_scatter(x[1:], ones, (2, 2), (4, 2), offset)
        torch.testing.assert_close(found, torch.as_strided_scatter(x[1:], ones, (2, 2), (4, 2), offset))
    outside, twice, ordered = (x[1:], (4, 2), 0), (x, (1, 1), 0), (x.mT, (4, 2), 0)
    for operand, stride, offset in (outside, twice, ordered):
        found = indexing.as_strided_scatter(operand, ones, (2, 2), stride, offset)
        assert found is NotImplemented


def test_a_diagonal_is_filled() -> None:
    def forward(model: object, x: torch.Tensor) -> torch.Tensor:
        return (x + 1).fill_diagonal_(7.0)

    check(model(forward), (torch.randn(3, 4),), (torch.randn(3, 4),))


def test_a_masked_write_takes_as_many_elements_as_it_has() -> None:
    """Also none of none; too few are refused as eager refuses them."""

    def forward(model: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + 0).masked_scatter_(x > 1, x[x > 1] * 2).masked_scatter(x < y.sum(), y)

    calls = [(torch.tensor(x), torch.tensor([-7.0, -8.0])) for x in ([1.0, 3.0, 2.0], [0.1, 0.2, 0.3])]
    run = Runner(check(model(forward), *calls))
    run((torch.tensor([-16.0, -17.0, -18.0]), torch.tensor([-7.0, -8.0])))
    (said,) = (said for said, holds in run.asserts.items() if not holds)
    assert said.startswith("Number of elements of source < number of ones in mask")


def test_a_resized_tensor_keeps_the_order_of_memory() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for size in ((2, 5), (12,), (0, 3), (), (3, 4)):
        torch.testing.assert_close(indexing.resize(x, size), x.clone().resize_(size))
    torch.testing.assert_close(indexing.resize(x.mT, (4, 3)), x.mT)
    # What is added has any value, and another order is not that of a graph's values.
    for operand, size, layout in ((x, (4, 4), None), (x.mT, (3, 4), None), (x, (3, 4), torch.channels_last)):
        assert indexing.resize(operand, size, memory_format=layout) is NotImplemented


def test_a_row_that_only_a_run_knows_is_written() -> None:
    """Torch's own form decides whether its index is negative."""

    def forward(model: object, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = y.argmax().item() - 2
        rows, columns = x.clone(), x.clone()
        rows[at] = y[:4]
        rows[at][0] += 3
        columns.select(1, at).copy_(y[:3])
        torch.mul(y[:4], 2, out=x.clone().select(0, at))
        return rows, columns

    x = torch.arange(12.0).reshape(3, 4)
    check(model(forward), *((x, torch.eye(5)[at]) for at in (2, 4, 0, 1)))
