"""Fake quantization, in eager and in programs of both compilers."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops of PT2E

from tests.programs import on_xla
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import decomposed


class Quantized(torch.nn.Module):
    """By numbers, by tensors with the switch that QAT has, and for each channel."""

    def __init__(self, *, is_on: bool = True, zero: torch.dtype = torch.int32) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.1]))
        self.register_buffer("zero_point", torch.tensor([3], dtype=torch.int32))
        self.register_buffer("is_on", torch.tensor([is_on]).to(torch.uint8))
        self.register_buffer("scales", torch.tensor([0.1, 0.02, 0.3]))
        self.register_buffer("zero_points", torch.tensor([3, -1, 0]).to(zero))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_tensors = torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        return (
            torch.fake_quantize_per_tensor_affine(x, 0.05, 2, -128, 127),
            torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, 0, 255),
            *by_tensors(x, self.scale, self.zero_point, self.is_on, 0, 15),
            torch.fake_quantize_per_channel_affine(x, self.scales, self.zero_points, 1, -8, 7),
            *torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.3, 0, -4, 3),
        )


def values() -> torch.Tensor:
    """Halves of a step among them, which are rounded to even, and what is clamped on each side."""
    torch.manual_seed(0)
    x = 5 * torch.randn(4, 3, 16)
    x[0, 0, :8] = torch.arange(-4, 4) * 0.05 + 0.025
    return x


@pytest.mark.parametrize(
    ("dtype", "zero", "is_on"),
    sweep(product([torch.float32, torch.float64], [torch.int32, torch.float32], [True, False]), quick=2),
)
def test_equal_to_eager(dtype: torch.dtype, zero: torch.dtype, is_on: bool) -> None:
    model, x = Quantized(is_on=is_on, zero=zero).eval(), values().to(dtype)
    program = decomposed(model, (x,))
    assert not [node for node in program.graph.nodes if "fake_quantize" in str(node.target)]
    for got, want in zip(program.module()(x), model(x), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_programs() -> None:
    check(Quantized().eval(), (values(),))
    on_xla.check(Quantized(is_on=False).eval(), (values(),))


quantized = torch.ops.quantized_decomposed


class Converted(torch.nn.Module):
    """What PT2E makes of a layer: integers of activations and weights, by numbers and by tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (8, 16), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) / 100 + 0.01)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("scale", torch.tensor([0.04]))
        self.register_buffer("zero", torch.tensor([5]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        few = quantized.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        x = quantized.dequantize_per_tensor(few, 0.05, 3, -128, 127, torch.int8)
        weight = quantized.dequantize_per_channel(
            self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
        )
        y = torch.nn.functional.linear(x, weight)
        bytes_ = quantized.quantize_per_tensor.tensor(y, self.scale, self.zero, 0, 255, torch.uint8)
        y = quantized.dequantize_per_tensor.tensor(bytes_, self.scale, self.zero, 0, 255, torch.uint8)
        each = quantized.quantize_per_channel(y, self.scales, self.zeros, 1, -128, 127, torch.int8)
        return few, bytes_, each, y


def test_what_pt2e_writes_is_in_programs_of_xla() -> None:
    torch.manual_seed(0)
    on_xla.check(Converted().eval(), (3 * torch.randn(4, 16),))
