"""What a region takes from those around it: sizes, numbers of the host, and tensors as they are."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.programs.through import check


class Stacked(torch.nn.Module):
    """A loop that stacks rows whose size is computed of sizes at hand: a sum, a product, a quotient."""

    def forward(self, x, y):
        def step(carry, row):
            wide = torch.cat([row, y, row])
            return carry + row.sum(), torch.stack([wide, wide]).reshape(-1)[: (y.shape[0] * 2) // 3]

        return torch._higher_order_ops.scan(step, x.new_zeros(()), x)


class Deep(torch.nn.Module):
    """A count, a size and a weight of the outermost graph, read in a branch in a loop in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, x, n):
        def inner(i, y):
            def body(j, y):
                is_last = j + 1 == n
                y = torch.cond(
                    is_last, lambda y: y * self.weight + x.shape[0], lambda y: y - self.weight, (y,)
                )
                return j + 1, y

            return torch.while_loop(lambda j, y: j < i, body, (i - i, y))[1]

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, inner(i, y)), (start, x.clone()))


@pytest.mark.filterwarnings("ignore")
def test_sizes_of_what_a_loop_stacks_come_from_outside() -> None:
    dims = {"x": {0: Dim("rows", min=1, max=8)}, "y": {0: Dim("width", min=3, max=9)}}
    calls = [(torch.randn(rows, 3), torch.randn(width)) for rows, width in ((4, 6), (1, 3), (7, 9))]
    check(Stacked(), *calls, dynamic_shapes=dims)


def test_numbers_and_weights_are_read_three_regions_deep() -> None:
    dims = {"x": {0: Dim("rows", min=1, max=8)}, "n": None}
    calls = [(torch.randn(rows, 3), torch.tensor(trips)) for rows, trips in ((4, 3), (1, 0), (2, 1), (7, 4))]
    text = check(Deep(), *calls, dynamic_shapes=dims).module.decode()
    assert "tensor.extract " not in text[text.index("scf.while") :]
