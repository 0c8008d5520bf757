"""Quotients that are rounded to integers or compared, which XLA must not compute by a reciprocal.

XLA's algebraic simplifier makes `a * (1 / b)` of `a / b` where `b` is a constant or is spread over `a`. A
third of the quotients are then off by one unit in the last place: `(x / 49).int()` of 49 is 0. That is within
what parity allows where nothing rounds. Where something does, the division becomes `aten.true_divide`, which
is lowered with a barrier before its divisor.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops

_ATEN: Final = torch.ops.aten
_EXACT: Final = {_ATEN.div.Tensor: _ATEN.true_divide.Tensor, _ATEN.div.Scalar: _ATEN.true_divide.Scalar}
_ROUNDING: Final = frozenset(
    "floor ceil trunc round frac eq ne lt le gt ge argmax argmin sort argsort topk searchsorted bucketize "
    "floor_divide remainder fmod".split()
)
_HANDING_ON: Final = frozenset(
    "view reshape expand permute squeeze unsqueeze slice select clone alias neg abs clamp cat".split()
)


def mark(entry: LegalEntry) -> None:
    """Make the divisions of floats exact whose quotients are rounded or compared next."""
    for graph in hops.walk(entry.graph):
        for node in graph.graph.nodes:
            if node.target in _EXACT and node.meta["val"].is_floating_point() and _is_rounded(node):
                node.target = _EXACT[node.target]


def _is_rounded(node: Node) -> bool:
    seen, left = {node}, [node]
    while left:
        for user in left.pop().users:
            if not isinstance(user.target, ops.OpOverload) or user in seen:
                continue
            seen.add(user)
            name, value = ops.name_of(user), user.meta.get("val")
            if name in _ROUNDING:
                return True
            if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
                return True  # a conversion
            if name in _HANDING_ON:
                left.append(user)
    return False
