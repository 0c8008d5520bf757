"""Programs for several devices whose kernels are linked."""

from __future__ import annotations

from aotpipe.backends.iree.fixes.flags import linked_executables
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.core.targets import Target
from aotpipe.runtime.iree import runtime
from tests.canaries import canary, compile_once
from tests.unit.runtime.iree.samples import lowered

_TWO_KERNELS = """\
func.func @forward(%a: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.matmul ins(%a, %a : tensor<8x8xf32>, tensor<8x8xf32>) outs(%init : tensor<8x8xf32>)
      -> tensor<8x8xf32>
  %row = tensor.empty() : tensor<8xf32>
  %start = linalg.fill ins(%zero : f32) outs(%row : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.reduce { arith.maximumf } ins(%p : tensor<8x8xf32>) outs(%start : tensor<8xf32>)
      dimensions = [0]
  return %p, %s : tensor<8x8xf32>, tensor<8xf32>
}
"""
_SIGNATURE = Signature(
    inputs=(TensorSpec.parse("a: float32[8, 8]"),),
    outputs=(TensorSpec.parse("p: float32[8, 8]"), TensorSpec.parse("s: float32[8]")),
)


def load_beside_cuda() -> None:
    compiled = compile_once(lowered(_TWO_KERNELS), "iree-cpu-host", beside=(Target.parse("iree-cuda-sm_80"),))
    with runtime.load(
        compiled.payload,
        signatures={"forward": _SIGNATURE},
        weights={},
        initial_state={},
        driver="local-sync",
        asserts={},
    ):
        pass


def test_they_are_loaded_by_one_of_the_devices() -> None:
    load_beside_cuda()


@canary(linked_executables.FIX)
def test_iree_loads_them_without() -> None:
    load_beside_cuda()
