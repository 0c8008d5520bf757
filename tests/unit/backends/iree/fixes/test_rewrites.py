"""Rewrites of modules by the compiler's bindings."""

from __future__ import annotations

from typing import Any

from aotpipe.backends.iree.fixes.rewrites import Rewrite, fusion_barrier, replace_uses, rewritten
from tests.programs.mlir_text import ops_at

_MODULE = b"""
util.func public @f(%x: tensor<2x?xf32>, %n: index) -> tensor<2x?xf32> {
  %0 = arith.negf %x : tensor<2x?xf32> loc("model.py":3:0)
  %1 = arith.addf %0, %0 : tensor<2x?xf32>
  util.return %1 : tensor<2x?xf32>
}
"""


def test_a_module_that_names_none_of_the_ops_or_does_not_parse_stays() -> None:
    def refuse(op: Any) -> bool:
        raise AssertionError(op)

    assert rewritten(_MODULE, [Rewrite(("arith.mulf",), refuse)]) is None
    assert rewritten(b"nonsense arith.mulf", [Rewrite(("arith.mulf",), refuse)]) is None
    assert rewritten(_MODULE, [Rewrite(("arith.negf",), lambda op: False)]) is None


def test_what_reads_a_value_reads_it_behind_a_barrier_with_its_sizes() -> None:
    def bar(op: Any) -> bool:
        size = op.parent.regions[0].blocks[0].arguments[1]
        replace_uses(op.result, lambda: fusion_barrier(op.result, [size]))
        return True

    changed = rewritten(_MODULE, [Rewrite(("arith.negf",), bar)])
    assert changed is not None
    assert [line.partition(" loc")[0] for line in ops_at(changed, '"model.py":3:0')] == [
        "%0 = arith.negf %arg0 : tensor<2x?xf32>",
        "%1 = util.optimization_barrier %0 : tensor<2x?xf32>",
        "%2 = flow.tensor.tie_shape %1 : tensor<2x?xf32>{%arg1}",
    ]
    assert b"%3 = arith.addf %2, %2" in changed
