"""Tensors become views, of which no two are one."""

from __future__ import annotations

from iree.compiler import ir

from aotpipe.backends.iree.carries import ViewBorder, distinct

MODULE = """
func.func @f(%x: !torch.vtensor<[4],f32>, %n: i64) {
  %none = torch.constant.none
  %a = torch.aten.sin %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %b = torch.aten.sin %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %c = torch.aten.cos %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %d = torch.aten.clone %a, %none : !torch.vtensor<[4],f32>, !torch.none -> !torch.vtensor<[4],f32>
  %0 = torch_c.to_builtin_tensor %a : !torch.vtensor<[4],f32> -> tensor<4xf32>
  %1 = torch_c.to_builtin_tensor %b : !torch.vtensor<[4],f32> -> tensor<4xf32>
  %2 = torch_c.to_builtin_tensor %c : !torch.vtensor<[4],f32> -> tensor<4xf32>
  %3 = torch_c.to_builtin_tensor %d : !torch.vtensor<[4],f32> -> tensor<4xf32>
  return
}
"""


def test_values_computed_alike_are_told_apart() -> None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(MODULE)
        block = module.body.operations[0].regions[0].blocks[0]
        values = [op.result for op in block.operations if op.operation.name == "torch_c.to_builtin_tensor"]
        with ir.InsertionPoint.at_block_terminator(block):
            made = distinct(values)
        assert [new == old for new, old in zip(made, values, strict=True)] == [True, False, True, False]
        assert module.operation.verify()


def test_tensors_cross_as_views_and_numbers_as_they_are() -> None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%x: tensor<?x3xf32>, %n: i64) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        tensor, number = block.arguments
        border = ViewBorder()
        with ir.InsertionPoint.at_block_terminator(block):
            view, same = border.pack([tensor, number])
            assert str(view.type) == "!hal.buffer_view" == str(border.packed_type(tensor.type))
            assert same == number
            assert border.unpack(view, tensor.type, lambda: [None, None]).type == tensor.type
            assert border.unpack(same, number.type, list) == number
        assert module.operation.verify()
        assert "hal.buffer_view.dim" in str(module)
