"""Float64 whatever the code names."""

from __future__ import annotations

import pytest
import torch

from aotpipe.validate.eager.float64 import CannotWiden, Widen, widened


def test_a_cast_to_a_narrow_dtype_stays_wide() -> None:
    x = torch.tensor([1.0], dtype=torch.float64) / 3
    with Widen():
        assert (x.float() * 3 - 1).abs().item() < 1e-15
        assert x.to(torch.bfloat16).dtype == torch.float64


def test_factories_and_integer_division_are_wide() -> None:
    with Widen():
        assert torch.zeros(2).dtype == torch.float64
        assert torch.zeros(2, dtype=torch.float16).dtype == torch.float64
        assert (torch.tensor(1) / 3).dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_a_narrow_constant_meets_wide_weights() -> None:
    constant = torch.eye(2)
    weight = torch.ones(2, 2, dtype=torch.float64)
    with Widen():
        assert (constant @ weight).dtype == torch.float64


def test_branches_and_loop_bodies_are_wide() -> None:
    x = torch.ones(2, dtype=torch.float64)
    with torch.compiler.set_stance("force_eager"), Widen():
        y = torch.cond(x.sum() > 0, lambda a: a.float() / 3, lambda a: a.clone(), (x,))
    assert y.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_the_default_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), Widen():
        _ = 1 / 0
    assert torch.get_default_dtype() == torch.float32


def test_integers_and_bools_are_left_alone() -> None:
    for dtype in (torch.int64, torch.uint8, torch.bool):
        assert widened(torch.ones(2, dtype=dtype)).dtype == dtype
    assert widened(torch.ones(2, dtype=torch.complex64)).dtype == torch.complex128


def test_bits_of_a_float_cannot_be_widened() -> None:
    with pytest.raises(CannotWiden), Widen():
        torch.ones(2).view(torch.int32)


def test_a_kernel_without_float64_is_computed_in_float32() -> None:
    library = torch.library.Library("aotpipe_test", "FRAGMENT")
    library.define("single(Tensor x) -> Tensor")

    def single(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise RuntimeError("expected float32")
        return x / 3

    library.impl("single", single, "CPU")
    with Widen():
        y = torch.ops.aotpipe_test.single(torch.ones(1, dtype=torch.float64))
    assert y.dtype == torch.float64
    assert y.item() == pytest.approx(1 / 3, rel=1e-6)
