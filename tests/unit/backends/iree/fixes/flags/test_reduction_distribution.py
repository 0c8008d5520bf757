"""Reductions that CUDA's code generator cannot distribute."""

from __future__ import annotations

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.flags import reduction_distribution
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.unit.runtime.iree.samples import lowered

_WIDENED_SUM = """\
func.func @forward(%a: tensor<480xi32>) -> tensor<i64> {
  %zero = arith.constant 0 : i64
  %limit = arith.constant 479 : i64
  %empty = tensor.empty() : tensor<i64>
  %init = linalg.fill ins(%zero : i64) outs(%empty : tensor<i64>) -> tensor<i64>
  %sum = linalg.reduce ins(%a : tensor<480xi32>) outs(%init : tensor<i64>) dimensions = [0]
    (%x: i32, %y: i64) {
      %wide = arith.extsi %x : i32 to i64
      %fits = arith.cmpi sle, %wide, %limit : i64
      %one = arith.extui %fits : i1 to i64
      %next = arith.addi %one, %y : i64
      linalg.yield %next : i64
    }
  return %sum : tensor<i64>
}
"""


def test_cuda_counts_integers_that_become_wider() -> None:
    compiled = compiler.compile(
        lowered(_WIDENED_SUM), Target.parse("iree-cuda-sm_80"), extra_flags=("--iree-input-type=none",)
    )
    assert "without reductions over distributed vectors" in compiled.notes[0]


@canary(reduction_distribution.FIX)
def test_iree_distributes_them_without() -> None:
    compile_once(lowered(_WIDENED_SUM), "iree-cuda-sm_80", ("--iree-input-type=none",))
