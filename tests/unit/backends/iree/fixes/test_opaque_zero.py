"""Copies by a zero that the compiler does not know."""

from __future__ import annotations

from typing import Any

import pytest

from aotpipe.backends.iree.fixes import opaque_zero
from aotpipe.backends.iree.fixes.rewrites import Rewrite, rewritten

_MODULE = """
util.func public @f(%x: tensor<2x?x{element}>) -> tensor<2x?x{element}> {{
  %0 = util.optimization_barrier %x : tensor<2x?x{element}>
  util.return %0 : tensor<2x?x{element}>
}}
"""


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i1", "i8", "i64", "i32", "complex<f32>"])
def test_two_copies_are_of_one_zero_and_differ(element: str) -> None:
    def copy(op: Any) -> bool:
        from iree.compiler import ir

        for number in (0, 7):
            opaque_zero.define(op)
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = opaque_zero.copied(op.operands[0], number)
        return True

    rewrite = Rewrite(("util.optimization_barrier",), copy)
    changed = rewritten(_MODULE.format(element=element).encode(), [rewrite])
    assert changed is not None
    text = changed.decode()
    # The zero's own barrier is another one, which the rewrite is not of.
    assert text.count("util.global private") == 1
    assert text.count("linalg.generic") == 2
    assert "arith.constant 1 : i32" in text
    assert "arith.constant 8 : i32" in text
