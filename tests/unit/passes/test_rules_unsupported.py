"""What has no lowering is found in all subgraphs, with its reason, count and line."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.errors import UnsupportedOps
from aotpipe.passes.rules import unsupported
from tests.unit.passes.legal import legal, model
from tests.unit.passes.ranges.programs import Program, aten


def test_rows_are_sorted_and_counted() -> None:
    program = Program()
    x = program.input((3, 3), dtype=torch.float32)
    for _ in range(2):
        program.call(aten._linalg_eigh.default, x)
    program.call(aten.rand.default, [2])
    program.call(aten.relu.default, x)
    found = unsupported(program.module, legalization())
    assert [(row.name, row.count) for row in found] == [
        ("aten._linalg_eigh.default", 2),
        ("aten.rand.default", 1),
    ]
    assert "random" in found[1].reason
    assert found[0].where is None


@pytest.mark.parametrize("dtype", [torch.uint64, torch.uint16])
def test_a_dtype_without_a_lowering(dtype: torch.dtype) -> None:
    program = Program()
    program.call(aten.full.default, [2], 1, dtype=dtype)
    (row,) = unsupported(program.module, legalization())
    assert str(dtype).removeprefix("torch.") in row.reason


def test_an_op_of_a_branch_is_found_with_its_line() -> None:
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.linalg.eig(x)[0].real * 1, lambda x: x[0] * 1, (x,))

    with pytest.raises(UnsupportedOps, match="linalg_eig") as caught:
        legal(model(forward), [torch.ones(2, 2)])
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_rules_unsupported.py")


def test_reasons_of_factors() -> None:
    program = Program()
    x = program.input((3, 3), dtype=torch.float64)
    program.call(aten._linalg_eigh.default, x)
    reasons = {row.name: row.reason for row in unsupported(program.module, legalization())}
    assert "factors a matrix" in reasons["aten._linalg_eigh.default"]


def test_strides_beyond_the_operand() -> None:
    def strided(self, x, n):
        return x.as_strided((n.item(),), (1,))

    with pytest.raises(UnsupportedOps, match="strides that are not known"):
        legal(model(strided), [torch.randn(4), torch.tensor(3)])


def test_windows_of_integers_whose_size_varies() -> None:
    batch = torch.export.Dim("rows", min=4, max=64)

    def pooled(self, x):
        return torch.nn.functional.max_pool2d(x, 2)

    x = torch.ones(1, 1, 8, 8, dtype=torch.int64)
    with pytest.raises(UnsupportedOps, match="cast to float"):
        legal(model(pooled), [x], dynamic_shapes={"x": {2: batch}})
