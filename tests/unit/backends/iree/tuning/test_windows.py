"""Where a window's elements meet an input."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from aotpipe.backends.iree.tuning.depthwise_sums import Window, cut, padded


@given(size=st.integers(1, 30), width=st.integers(1, 20), step=st.integers(1, 5), spread=st.integers(1, 4))
def test_each_element_meets_what_its_places_are(size: int, width: int, step: int, spread: int) -> None:
    assume(size > spread * (width - 1))
    window = Window([width], [step], [spread])
    [count] = window.counts([size])
    x = torch.arange(2 * size).reshape(2, size)
    for [at] in window.places():
        met = window.met(x, [at], [count], 1)
        assert met.tolist() == [
            [row[place * step + at * spread] for place in range(count)] for row in x.tolist()
        ]


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
