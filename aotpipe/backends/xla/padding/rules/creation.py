"""Tensors from nothing: larger than they need be."""

from __future__ import annotations

from typing import Any, Final

import torch

from aotpipe.backends.xla.padding.rules.call import Call, Lowering

aten = torch.ops.aten


def created(call: Call, lower: Lowering) -> Any:
    """What is there at a place does not depend on the size."""
    return call.as_it_is(lower)


RULES: Final[dict[Any, Any]] = dict.fromkeys(
    (
        aten.arange.start_step,
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.eye.default,
        aten.eye.m,
        aten.fill.Scalar,
        aten.fill.Tensor,
        aten.full.default,
        aten.full_like.default,
        aten.new_zeros.default,
        aten.ones.default,
        aten.ones_like.default,
        aten.scalar_tensor.default,
        aten.zeros.default,
        aten.zeros_like.default,
    ),
    created,
)
