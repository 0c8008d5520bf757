"""Float64 whatever the code names, and a policy of fewer bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from aotpipe.core.precision import Precision
from aotpipe.validate.eager.modes import CannotWiden, dtypes_unwidened, narrow, ties_decided, widen, widened

POLICY = Precision("bfloat16")


def test_a_cast_to_a_narrow_dtype_stays_wide() -> None:
    x = torch.tensor([1.0], dtype=torch.float64) / 3
    with widen():
        assert (x.float() * 3 - 1).abs().item() < 1e-15
        assert x.to(torch.bfloat16).dtype == torch.float64


def test_factories_and_integer_division_are_wide() -> None:
    with widen():
        assert torch.zeros(2).dtype == torch.float64
        assert torch.zeros(2, dtype=torch.float16).dtype == torch.float64
        assert (torch.tensor(1) / 3).dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_a_narrow_constant_meets_wide_weights() -> None:
    constant = torch.eye(2)
    weight = torch.ones(2, 2, dtype=torch.float64)
    with widen():
        assert (constant @ weight).dtype == torch.float64


def test_branches_and_loop_bodies_are_wide() -> None:
    x = torch.ones(2, dtype=torch.float64)
    with torch.compiler.set_stance("force_eager"), widen():
        y = torch.cond(x.sum() > 0, lambda a: a.float() / 3, lambda a: a.clone(), (x,))
    assert y.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_the_default_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), widen():
        _ = 1 / 0
    assert torch.get_default_dtype() == torch.float32


def test_integers_and_bools_are_left_alone() -> None:
    for dtype in (torch.int64, torch.uint8, torch.bool):
        assert widened(torch.ones(2, dtype=dtype)).dtype == dtype
    assert widened(torch.ones(2, dtype=torch.complex64)).dtype == torch.complex128


def test_code_sees_the_dtypes_that_it_would_see_unwidened() -> None:
    x, z = torch.ones(2, dtype=torch.float64) / 3, torch.ones(2, dtype=torch.complex128)
    with widen(), dtypes_unwidened():
        assert (x.dtype, z.dtype) == (torch.float32, torch.complex64)
        assert torch.arange(2).dtype == torch.int64
        y = x.to(x.dtype) * torch.ones(2, dtype=x.dtype)
    assert (y * 3 - 1).abs().max() < 1e-15


def test_bits_of_a_float_cannot_be_widened() -> None:
    with pytest.raises(CannotWiden), widen():
        torch.ones(2).view(torch.int32)


def test_a_kernel_without_float64_is_computed_in_float32() -> None:
    library = torch.library.Library("aotpipe_test", "FRAGMENT")
    library.define("single(Tensor x) -> Tensor")

    def single(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise RuntimeError("expected float32")
        return x / 3

    library.impl("single", single, "CPU")
    with widen():
        y = torch.ops.aotpipe_test.single(torch.ones(1, dtype=torch.float64))
    assert y.dtype == torch.float64
    assert y.item() == pytest.approx(1 / 3, rel=1e-6)


def test_products_are_rounded_and_islands_are_not() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 8), torch.randn(8, 8)
    with torch.no_grad(), narrow(POLICY):
        product = x @ weight
        normal = F.layer_norm(product, (8,))
        attended = F.scaled_dot_product_attention(product, x, x)
        summed = product + x
        wide = x.double() @ weight.double()
    assert product.dtype is torch.bfloat16
    torch.testing.assert_close(product, x.bfloat16() @ weight.bfloat16())
    torch.testing.assert_close(normal, F.layer_norm(product.float(), (8,)).bfloat16())
    assert attended.dtype is torch.bfloat16
    assert summed.dtype is torch.float32
    assert wide.dtype is torch.float64


def test_a_write_keeps_the_dtype_of_what_is_written() -> None:
    memory = torch.zeros(4, 8)
    with torch.no_grad(), narrow(POLICY):
        row = torch.ones(1, 8) @ torch.eye(8)
        memory.index_copy_(0, torch.tensor([2]), row)
        memory[0] = row[0]
    assert memory.dtype is torch.float32
    assert memory.sum() == 16


def test_a_recurrent_layer_and_branches_compute_in_float32() -> None:
    layer = torch.nn.LSTM(8, 4, batch_first=True)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), narrow(POLICY):
        x = torch.ones(1, 3, 8) @ torch.eye(8)
        y, (h, _) = layer(x)
        chosen = torch.cond(torch.tensor(True), lambda a: a.sin(), lambda a: a.cos(), (x,))
    assert (x.dtype, y.dtype, h.dtype) == (torch.bfloat16,) * 3
    assert chosen.dtype is torch.float32


def test_what_no_dtype_mends_is_raised_as_it_was() -> None:
    with torch.no_grad(), narrow(POLICY), pytest.raises(RuntimeError, match="2x3 and 2x3"):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert not torch.is_autocast_enabled("xla")


@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_first_or_the_last_of_equal_elements(largest: bool) -> None:
    x = torch.tensor([[0.0, 1.0, 1.0, 1.0, 2.0]]) * (1 if largest else -1)
    expected = x.topk(3, largest=largest).values
    for first, wanted in ((True, [4, 1, 2]), (False, [4, 3, 2])):
        with ties_decided(first=first):
            values, places = x.topk(3, 1, largest=largest)
            along_rows = x.t().topk(3, 0, largest).indices
        assert places.tolist() == [wanted]
        assert along_rows.t().tolist() == [wanted]
        assert torch.equal(values, expected)


@pytest.mark.parametrize(
    ("function", "places"),
    [
        (lambda x: x.sort(dim=1)[1], ([0, 4, 1, 2, 3], [4, 0, 3, 2, 1])),
        (lambda x: x.argsort(1, descending=True), ([1, 2, 3, 0, 4], [3, 2, 1, 4, 0])),
        (lambda x: x.sort(dim=1, stable=True)[1], ([0, 4, 1, 2, 3], [0, 4, 1, 2, 3])),
        (lambda x: x.kthvalue(3, 1)[1], (1, 3)),
        (lambda x: x.kthvalue(2, dim=-1, keepdim=True)[1], ([0], [4])),
        (lambda x: x.median(1)[1], (1, 3)),
        (lambda x: x.mode(1)[1], (1, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_each_op_takes_the_first_or_the_last_of_equal_elements(
    function: Any, places: tuple[Any, Any], dtype: torch.dtype
) -> None:
    x = torch.tensor([[0, 1, 1, 1, 0]], dtype=dtype)
    for first, wanted in zip((True, False), places, strict=True):
        with ties_decided(first=first):
            assert function(x).tolist() == [wanted]


def test_a_nan_and_an_empty_dim_have_a_place_too() -> None:
    x = torch.tensor([[1.0, float("nan"), float("nan")]])
    with ties_decided(first=True):
        assert x.median(1).indices.tolist() == [1]
        assert torch.zeros(0, 3).median(1).indices.tolist() == []
        assert torch.tensor(2.0).kthvalue(1).indices.item() == 0
