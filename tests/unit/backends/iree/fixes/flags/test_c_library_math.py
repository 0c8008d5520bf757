"""Float64 functions that the host's C library has."""

from __future__ import annotations

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.flags import c_library_math
from aotpipe.core.targets import Target
from tests.canaries import canary, compile_once
from tests.unit.runtime.iree.samples import lowered

_TANH = """\
func.func @forward(%a: tensor<4xf64>) -> tensor<4xf64> {
  %r = math.tanh %a : tensor<4xf64>
  return %r : tensor<4xf64>
}
"""


def test_they_are_linked() -> None:
    compiled = compiler.compile(lowered(_TANH), Target.parse("iree-cpu-host"))
    assert "against the C library" in compiled.notes[0]


@canary(c_library_math.FIX)
def test_iree_has_its_own_without() -> None:
    compile_once(lowered(_TANH), "iree-cpu-host")
