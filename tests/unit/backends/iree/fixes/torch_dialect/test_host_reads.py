"""Numbers are loaded where kernels wrote them, for devices that share the host's memory."""

from __future__ import annotations

import pytest
import torch
from iree.compiler import ir

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import host_reads
from aotpipe.backends.iree.lower import importer
from aotpipe.core.fixes import active
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.programs import through
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


class KeyCache(torch.nn.Module):
    """Two caches are written at a place that a tensor may set back."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = [torch.zeros(4, 2), torch.zeros(4, 2)]
        self.pos = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys, values = self.cache
        keys[self.pos] = x
        values[self.pos] = x * 2
        self.pos += 1
        found = (keys[: self.pos] @ x).softmax(0) @ values[: self.pos]
        if self.pos == 4 or found.sum() < 0:
            self.pos = 0
        return found


def test_a_module_that_the_compiler_cannot_schedule_is_compiled_without() -> None:
    calls = [(torch.tensor(row),) for row in ([1.0, 2.0], [-1.0, 2.0], [3.0, 3.0], [-3.0, -1.0])]
    program = through.legal(KeyCache(), calls[0])
    payload = compiler.compile(importer.lower(program), Target.parse("iree-cpu-host")).payload
    model = KeyCache()
    with through.load_payload(program, payload, "local-sync") as runner:
        for call in calls:
            through.compare(runner, program, model, call)
