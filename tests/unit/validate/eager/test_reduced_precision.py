"""Eager under a precision policy."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aotpipe.core.precision import Precision
from aotpipe.validate.eager.reduced_precision import Narrow

POLICY = Precision("bfloat16")


def test_products_are_rounded_and_islands_are_not() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 8), torch.randn(8, 8)
    with torch.no_grad(), Narrow(POLICY):
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
    with torch.no_grad(), Narrow(POLICY):
        row = torch.ones(1, 8) @ torch.eye(8)
        memory.index_copy_(0, torch.tensor([2]), row)
        memory[0] = row[0]
    assert memory.dtype is torch.float32
    assert memory.sum() == 16


def test_a_recurrent_layer_and_branches_compute_in_float32() -> None:
    layer = torch.nn.LSTM(8, 4, batch_first=True)
    with torch.no_grad(), Narrow(POLICY):
        x = torch.ones(1, 3, 8) @ torch.eye(8)
        y, (h, _) = layer(x)
        chosen = torch.cond(torch.tensor(True), lambda a: a.sin(), lambda a: a.cos(), (x,))
    assert (x.dtype, y.dtype, h.dtype) == (torch.bfloat16,) * 3
    assert chosen.dtype is torch.float32


def test_what_no_dtype_mends_is_raised_as_it_was() -> None:
    with torch.no_grad(), Narrow(POLICY), pytest.raises(RuntimeError, match="2x3 and 2x3"):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert not torch.is_autocast_enabled("xla")
