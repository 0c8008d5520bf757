"""Types and casts at a region's border."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from iree.compiler import ir

from aotpipe.backends.iree.lower.region_borders import ControlFlowError, builtin_type, convert, join


@pytest.fixture(autouse=True)
def _context() -> Iterator[None]:
    with ir.Context(), ir.Location.unknown():
        yield


@pytest.mark.parametrize(
    ("torch_type", "builtin"),
    [
        ("!torch.vtensor<[?,3],f32>", "tensor<?x3xf32>"),
        ("!torch.vtensor<[],si64>", "tensor<i64>"),
        ("!torch.vtensor<[2],ui8>", "tensor<2xi8>"),
        ("!torch.vtensor<[2],i1>", "tensor<2xi1>"),
        ("!torch.vtensor<[0,4],complex<f32>>", "tensor<0x4xcomplex<f32>>"),
        ("!torch.int", "i64"),
        ("!torch.float", "f64"),
        ("!torch.bool", "i1"),
        ("tensor<2xf32>", "tensor<2xf32>"),
    ],
)
def test_a_torch_type_has_a_builtin_type(torch_type: str, builtin: str) -> None:
    assert str(builtin_type(ir.Type.parse(torch_type))) == builtin


def test_a_border_knows_the_dims_that_all_sides_know() -> None:
    left, right = ir.Type.parse("!torch.vtensor<[4,3],f32>"), ir.Type.parse("!torch.vtensor<[?,3],f32>")
    assert list(map(str, join({0, 1}, [left, left], [right, left]))) == ["tensor<?x3xf32>", "tensor<4x3xf32>"]
    assert join({1}, [left, None], [right, None]) == [None, None]


@pytest.mark.parametrize("other", ["!torch.vtensor<[4],f32>", "!torch.vtensor<[4,3],f16>", "!torch.int"])
def test_sides_that_differ_in_more_than_dims_are_refused(other: str) -> None:
    with pytest.raises(ControlFlowError, match="here and"):
        join({0}, [ir.Type.parse("!torch.vtensor<[4,3],f32>")], [ir.Type.parse(other)])


def test_a_conversion_casts_dims_between_the_builtin_types() -> None:
    module = ir.Module.parse("func.func @f(%x: tensor<4x3xf32>) { return }")
    block = module.body.operations[0].regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block):
        wanted = ir.Type.parse("!torch.vtensor<[?,3],f32>")
        assert convert(block.arguments[0], wanted).type == wanted
    names = [op.operation.name for op in block.operations]
    assert names == ["tensor.cast", "torch_c.from_builtin_tensor", "func.return"]
