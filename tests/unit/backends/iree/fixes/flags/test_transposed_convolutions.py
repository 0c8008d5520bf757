"""Convolutions of transposed tensors that ROCm's code generator refuses as matrix products."""

from __future__ import annotations

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.flags import transposed_convolutions
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.unit.runtime.iree.samples import lowered

_CONVOLUTION = """\
func.func @forward(%x: tensor<24x24x3x24xf32>, %filter: tensor<28x3x3x3xf32>) -> tensor<24x28x22x22xf32> {
  %zero = arith.constant 0.0 : f32
  %turned = tensor.empty() : tensor<24x3x24x24xf32>
  %image = linalg.transpose ins(%x : tensor<24x24x3x24xf32>) outs(%turned : tensor<24x3x24x24xf32>)
    permutation = [0, 2, 3, 1]
  %empty = tensor.empty() : tensor<24x28x22x22xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<24x28x22x22xf32>) -> tensor<24x28x22x22xf32>
  %result = linalg.conv_2d_nchw_fchw
    ins(%image, %filter : tensor<24x3x24x24xf32>, tensor<28x3x3x3xf32>)
    outs(%init : tensor<24x28x22x22xf32>) -> tensor<24x28x22x22xf32>
  return %result : tensor<24x28x22x22xf32>
}
"""


def test_rocm_convolves_a_transposed_tensor() -> None:
    compiled = compiler.compile(
        lowered(_CONVOLUTION), Target.parse("iree-rocm-gfx942"), extra_flags=("--iree-input-type=none",)
    )
    assert "with direct convolutions" in compiled.notes[0]


@canary(transposed_convolutions.FIX)
def test_iree_makes_a_matrix_product_of_it() -> None:
    compile_once(lowered(_CONVOLUTION), "iree-rocm-gfx942", ("--iree-input-type=none",))
