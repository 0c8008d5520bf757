"""What legalization does for StableHLO, which XLA takes, and IREE where it is asked to.

The ops that `backends.xla.ops` lowers stay as they are; IREE compiles the same programs, so the passes that
work around its faults run on them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from aotpipe.backends.xla import exact_quotients, ops
from aotpipe.passes import decompositions
from aotpipe.passes.decompositions import blas, losses, pointwise
from aotpipe.passes.ops import tensors
from aotpipe.passes.rules import NO_LOWERING, REASONS, LegalizationRules


def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    lowered = ops.table()
    own = {op: entry for op, entry in decompositions.table().items() if op not in lowered}
    # IREE's importer has an integer product for those of the quantizer, StableHLO has none.
    return {
        **own,
        **decompositions.of_libraries({**blas.LIBRARIES, **losses.LIBRARIES, **pointwise.LIBRARIES}),
    }


def _refusal(node: Node) -> str:
    assert isinstance(node.target, OpOverload)
    if any(value.dtype == torch.complex32 for value in tensors(node)):
        return f"{NO_LOWERING} for complex32"
    return "" if node.target in ops.table() else REASONS.get(node.target, NO_LOWERING)


RULES: Final = LegalizationRules(
    dialect="stablehlo",
    decompositions=_decompositions,
    refusal=_refusal,
    needs_bounded_sizes=True,
    entry_passes=(exact_quotients.mark,),
)
