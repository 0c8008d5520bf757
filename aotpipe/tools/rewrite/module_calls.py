"""Writes `self.linear(x)` for the op that torch's own module `linear` is.

    F.linear(x, self.linear.weight, self.linear.bias)    ->  self.linear(x)
    torch.layer_norm(x, [8], self.norm.weight, ...)      ->  self.norm(x)

Only modules that compute one op from all of their parameters, whatever mode they are in, are called.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from torch import nn

from aotpipe.tools.rewrite.expressions import call
from aotpipe.tools.rewrite.torch_ops import ATEN

_TENSORS: Final[Mapping[Any, tuple[type[nn.Module], tuple[int, ...]]]] = {
    # op: the module, and where its own inputs stand among the op's arguments
    ATEN.linear.default: (nn.Linear, (0,)),
    ATEN.embedding.default: (nn.Embedding, (1,)),
    ATEN.conv1d.default: (nn.Conv1d, (0,)),
    ATEN.conv2d.default: (nn.Conv2d, (0,)),
    ATEN.conv3d.default: (nn.Conv3d, (0,)),
    ATEN.layer_norm.default: (nn.LayerNorm, (0,)),
    ATEN.group_norm.default: (nn.GroupNorm, (0,)),
    ATEN.gru_cell.default: (nn.GRUCell, (0, 1)),
}


def module_call(
    op: Any, args: Sequence[ast.expr], leaf_of: Callable[[str], tuple[str, ast.expr, nn.Module] | None]
) -> ast.expr | None:
    """The call of a module in place of an op; None where none computes it.

    Args:
        op: The op.
        args: Its positional arguments.
        leaf_of: For a parameter's expression as text: its name, its module's expression and its module.
    """
    known = _TENSORS.get(op)
    if known is None or any(index >= len(args) for index in known[1]):
        return None
    kind, inputs = known
    rest = [leaf_of(ast.unparse(each)) for index, each in enumerate(args) if index not in inputs]
    held = [each for each in rest if each is not None]
    if not held or type(held[0][2]) is not kind:
        return None
    _, owner, module = held[0]
    if any(each[2] is not module for each in held):
        return None
    if {each[0] for each in held} != {name for name, _ in module.named_parameters()}:
        return None
    if not _is_plain(module):
        return None
    return call(owner, *(args[index] for index in inputs))


def _is_plain(module: nn.Module) -> bool:
    """Whether a module does no more than its op."""
    if isinstance(module, nn.Embedding):
        return module.max_norm is None
    padding = getattr(module, "padding_mode", "zeros")
    return bool(padding == "zeros")
