"""What IREE has no lowering for, of an op, a dtype or a function of sizes."""

from __future__ import annotations

import math
import operator

import pytest
import torch

from aotpipe.backends.iree import unsupported
from tests.unit.passes.ranges.programs import Program, aten


@pytest.mark.parametrize(
    ("op", "dtype", "reason"),
    [
        (aten.relu.default, torch.float32, ""),
        (aten.tanh.default, torch.float64, "float64"),
        (aten.relu.default, torch.uint16, "uint16"),
        (aten.erfinv.default, torch.float32, "no lowering"),
        (aten.linalg_qr.default, torch.float32, "factors a matrix"),
    ],
)
def test_ops(op: object, dtype: torch.dtype, reason: str) -> None:
    program = Program()
    program.call(op, program.input((2, 2), dtype=dtype))
    [node] = (each for each in program.module.graph.nodes if each.op == "call_function")
    assert reason in unsupported.refusal(node)
    assert bool(unsupported.refusal(node)) == bool(reason)


def test_functions_of_sizes() -> None:
    assert not unsupported.size_refusal(operator.getitem)
    assert not unsupported.size_refusal(operator.add)
    assert "sizes" in unsupported.size_refusal(math.gcd)
