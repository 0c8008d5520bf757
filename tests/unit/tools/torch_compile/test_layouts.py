"""Results lie in memory as eager's do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.errors import UnsupportedOps
from aotpipe.tools.torch_compile.layouts import layouts, placed
from tests.unit.tools.torch_compile import graph


def again(call: Any, *args: Any) -> tuple[list[Any], Any]:
    """Contiguous results of a graph, placed, and eager's."""
    module, flat = graph.of(call, *args)
    results = [each.contiguous() if isinstance(each, torch.Tensor) else each for each in module(*flat)]
    return placed(layouts(module), results), call(*args)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: (x + 1,),
        lambda x: ((x + 1).permute(1, 2, 0).clone(),),
        lambda x: ((x + 1).t()[1:],) if x.dim() == 2 else ((x + 1).transpose(0, 2)[1:],),
    ],
)
def test_strides_are_eager_s(call: Any) -> None:
    got, want = again(call, torch.randn(2, 3, 4))
    torch.testing.assert_close(tuple(got), want, check_stride=True)


def test_what_shares_memory_goes_on_sharing_it() -> None:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y[1:], y.t()

    got, want = again(call, torch.randn(3, 4))
    torch.testing.assert_close(tuple(got), want, check_stride=True)
    got[0].fill_(7)
    assert (got[1] == 7).all()
    assert (got[2] == 7).all()


def test_an_empty_result_and_an_expanded_one() -> None:
    got, want = again(lambda x: ((x + 1)[:0], (x.sum() + 1).expand(3)), torch.randn(3, 4))
    torch.testing.assert_close(tuple(got), want)


def test_shared_memory_of_varying_strides_is_refused() -> None:
    module, _ = graph.of(lambda x: ((y := x + 1), y.t()), torch.randn(3, 4), dynamic=True)
    with pytest.raises(UnsupportedOps, match="share memory"):
        layouts(module)


def test_a_size_is_a_number() -> None:
    module, flat = graph.of(lambda x, k: (x * k, x + 1), torch.ones(3), 4, dynamic=True)
    assert not any(each.is_number for each in layouts(module))
    assert [tuple(each.shape) for each in module(*flat)] == [(3,), (3,)]
