"""Modules are read as text and as portable bytecode."""

from __future__ import annotations

import pytest
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.ir import MLIRError

from aotpipe.backends.xla.mesh import context, parsed

TEXT = b"func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"


def test_text_and_bytecode_give_the_same_module() -> None:
    module = parsed(TEXT)
    text = str(module)  # before it is written, which changes it
    with module.context:
        data = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)
    assert bytes(data).startswith(b"ML\xefR")
    assert str(parsed(bytes(data))) == text


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(MLIRError, match="nonsense"):
        parsed(b"nonsense")


def test_each_context_is_a_new_one() -> None:
    assert context() != context()
