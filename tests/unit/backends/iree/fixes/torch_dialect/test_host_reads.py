"""Numbers are loaded where kernels wrote them, for devices that share the host's memory."""

from __future__ import annotations

import pytest
from iree.compiler import ir

from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import host_reads
from aotpipe.core.fixes import active
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.programs.mlir_text import ops_at
from tests.unit.runtime.iree.samples import lowered

MODULE = b"""
#loc = loc("model.py":3:0)
func.func @f(%x: tensor<i64>, %y: tensor<1x1xi1>, %z: tensor<2xi64>, %w: tensor<f32>) -> (i64, i1, i64, f32) {
  %c0 = arith.constant 0 : index
  %extracted = tensor.extract %x[] : tensor<i64> loc(#loc)
  %extracted_0 = tensor.extract %y[%c0, %c0] : tensor<1x1xi1>
  %extracted_1 = tensor.extract %z[%c0] : tensor<2xi64>
  %extracted_2 = tensor.extract %w[] : tensor<f32>
  return %extracted, %extracted_0, %extracted_1, %extracted_2 : i64, i1, i64, f32
}
"""


def test_tensors_of_one_whole_number_or_bool_are_loaded() -> None:
    made = rewritten(MODULE, [host_reads.FIX.apply])
    assert made is not None
    with ir.Context(), ir.Location.unknown():
        assert ir.Module.parse(made.decode()).operation.verify()
    assert made.count(b"hal.buffer.load") == made.count(b"hal.tensor.export") == 2
    assert made.count(b"tensor.extract ") == 2
    assert any("hal.buffer.load" in line for line in ops_at(made, '"model.py":3:0'))


def test_what_was_rewritten_stays_as_it_is() -> None:
    made = rewritten(MODULE, [host_reads.FIX.apply])
    assert made is not None
    assert rewritten(made, [host_reads.FIX.apply]) is None


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["iree-cpu-host"], True),
        (["iree-cpu-aarch64"], True),
        (["iree-vmvx"], True),
        (["iree-cuda-sm_80"], False),
        (["iree-vulkan"], False),
        (["iree-cpu-host", "iree-vulkan"], False),
    ],
)
def test_a_gpus_memory_is_not_the_hosts(targets: list[str], expected: bool) -> None:
    stage = "aotpipe.backends.iree.fixes.torch_dialect"
    assert (host_reads.FIX in active(stage, [Target.parse(target) for target in targets])) == expected


_LOOP = b"""
func.func @forward(%x: tensor<f32>) -> tensor<f32> {
  %one = arith.constant dense<1.0> : tensor<f32>
  %limit = arith.constant dense<9.0> : tensor<f32>
  %r = scf.while (%a = %x) : (tensor<f32>) -> tensor<f32> {
    %below = arith.cmpf olt, %a, %limit : tensor<f32>
    %goes = tensor.extract %below[] : tensor<i1>
    scf.condition(%goes) %a : tensor<f32>
  } do {
  ^bb0(%b: tensor<f32>):
    %next = arith.addf %b, %one : tensor<f32>
    scf.yield %next : tensor<f32>
  }
  return %r : tensor<f32>
}
"""


def copies() -> int:
    schedule = compile_once(lowered(_LOOP.decode()), "iree-cpu-host").schedule
    assert schedule is not None
    return schedule.copies


def test_only_the_loops_carry_is_copied() -> None:
    assert copies() == 1


@canary(host_reads.FIX)
def test_iree_copies_nothing_else_without() -> None:
    assert copies() == 1
