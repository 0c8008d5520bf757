"""A text's function is emitted among other ops, its executables once."""

from __future__ import annotations

from iree.compiler import ir

from aotpipe.backends.iree.kernels.inlining import inlined

TEXT = """
flow.executable private @empty {
}
util.func private @call(%x: tensor<2xf32>) -> tensor<2xf32> {
  %found = arith.addf %x, %x : tensor<2xf32>
  util.return %found : tensor<2xf32>
}
"""
AROUND = """
func.func @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
"""


def test_a_text_is_emitted_where_ops_are_inserted() -> None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(AROUND)
        [function] = module.body.operations
        block = function.regions[0].blocks[0]
        [end] = block.operations
        with ir.InsertionPoint(end):
            value = block.arguments[0]
            for _ in range(2):
                value = inlined(TEXT, [value])
            end.operands[0] = value
        module.operation.verify()
        names = [op.operation.name for op in module.body.operations]
        assert names == ["flow.executable", "func.func"]
        assert [op.operation.name for op in block.operations] == ["arith.addf", "arith.addf", "func.return"]
        assert end.operands[0].owner.operands[0].owner == next(iter(block.operations)).operation
