"""Where a window's elements meet an input."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aotpipe.backends.iree.tuning.im2col import Window, cut, padded


@given(size=st.integers(1, 30), width=st.integers(1, 20), step=st.integers(1, 5), spread=st.integers(1, 4))
def test_what_is_joined_is_what_each_place_meets(size: int, width: int, step: int, spread: int) -> None:
    assume(size > spread * (width - 1))
    window = Window([width], [step], [spread])
    [count] = window.counts([size])
    x = torch.arange(2 * size * 3).reshape(2, size, 3)
    joined = window.joined(x, 0, count)
    assert joined.shape == (2, count, 3 * width)
    for place in range(count):
        met = x[:, place * step : place * step + spread * (width - 1) + 1 : spread]
        assert torch.equal(joined[:, place], met.flatten(1))
    for at in window.places():
        column = window.met(x.movedim(1, -1), at, [count], 2)
        assert torch.equal(column, joined[:, :, 3 * at[0] : 3 * at[0] + 3].movedim(1, -1))


def test_tables_are_what_each_place_meets() -> None:
    window = Window([2, 3], [1, 2], [2, 1])
    counts = window.counts([5, 7])
    rows, columns = window.indices(counts)
    x = torch.arange(35).reshape(5, 7)
    assert torch.equal(x[rows, columns][1, 2], window.met(x, (1, 2), counts, 0))
    assert window.has_small_tables(counts)


def test_a_cut_of_what_varies_ends_a_known_number_before_the_end() -> None:
    x = torch.arange(10)
    assert cut(x, 0, 2, 3, 2, 4).tolist() == [2, 4, 6]
    graph = torch.export.export(Cut(), (x,), dynamic_shapes=({0: torch.export.Dim("size", min=8, max=20)},))
    assert "Min" not in str(graph.graph_module.graph.output_node().args[0][0].meta["val"].shape)


class Cut(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cut(x, 0, 2, (x.shape[0] - 5) // 2 + 1, 2, 4)


def test_padding_is_around_the_last_dims() -> None:
    x = torch.ones(1, 2, 3, 4)
    assert padded(x, [0, 0]) is x
    assert padded(x, [1, 2]).shape == (1, 2, 5, 8)
