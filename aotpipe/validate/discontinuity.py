"""Finds the ops of a graph that may turn a rounding error into a large one.

Those are comparisons, roundings and choices, but for those that a continuous function was decomposed to.
Where there are none, a program that differs by more than rounding is wrong; where there are, eager itself may
differ from eager, and is asked (see `reference`).
"""

from __future__ import annotations

from typing import Final

import torch
from torch._ops import OpOverload  # private, and the only way to tell an op from a Python function

from aotpipe.core.stages import Legal
from aotpipe.passes import hops
from aotpipe.validate.eager.modes import TIES

_COMPARISONS: Final = frozenset({"gt", "lt", "ge", "le", "eq", "ne", "isclose"})
_DISCONTINUOUS: Final = _COMPARISONS.union(
    ("ceil", "floor", "floor_divide", "fmod", "frac", "heaviside", "remainder", "round", "sign", "trunc"),
    ("argmax", "argmin", "argsort", "kthvalue", "median", "mode", "sort", "topk"),
    ("bucketize", "nonzero", "searchsorted"),
)
# Their decompositions compare and round, but what they choose between is the same where the choice is close.
_CONTINUOUS: Final[frozenset[str]] = frozenset().union(
    # Activations.
    ("relu", "relu6", "leaky_relu", "_prelu_kernel", "prelu", "elu", "celu", "selu", "gelu", "silu", "mish"),
    ("hardsigmoid", "hardswish", "hardtanh", "log_sigmoid_forward", "sigmoid", "softplus"),
    # Softmax and its kin.
    ("_log_softmax", "_safe_softmax", "_softmax", "logaddexp", "logsumexp", "scaled_dot_product_attention"),
    # Powers, logarithms and special functions.
    ("exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "rsqrt", "sqrt"),
    ("digamma", "erf", "erfc", "erfinv", "lgamma"),
    # Trigonometry.
    ("acosh", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh"),
    # Bounds.
    ("clamp", "clamp_max", "clamp_min"),
)
_FILLS: Final = ("aten.full", "aten.scalar_tensor")
# Integers and bools that are made of floats: a cast truncates, an index output chooses.
_MAYBE: Final = frozenset(
    {"_to_copy", "to", "max", "min", "max_pool2d_with_indices", "max_pool3d_with_indices"}
)


def has_discontinuities(legal: Legal) -> bool:
    """Whether any graph compares, rounds or chooses by computed floats."""
    graphs = (module.graph for entry in legal.entries for module in hops.walk(entry.graph))
    return any(_is_discontinuous(node) for graph in graphs for node in graph.nodes)


def _is_discontinuous(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    name = str(node.target).split(".")[1]
    # Whatever their dtype, which of equal elements these take is open: eager is asked with each choice.
    if name in TIES or _origin(node) in TIES:
        return True
    if not any(_is_float(argument.meta.get("val")) for argument in node.all_input_nodes):
        return False
    if _origin(node) in _CONTINUOUS or (name in _COMPARISONS and _is_of_exact_values(node)):
        return False
    return name in _DISCONTINUOUS or (name in _MAYBE and _gives_integers(node))


def _origin(node: torch.fx.Node) -> str:
    """The name of the op that was decomposed to this one, where that is known."""
    return str(getattr(node.meta.get("original_aten"), "__name__", "")).partition(".")[0]


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _is_of_exact_values(comparison: torch.fx.Node) -> bool:
    """Whether no rounding moves what is compared, as masks are made: `x == -inf`, `x != x`, `x - x == 0`."""
    left, right = comparison.args[:2]
    is_nothing = (
        isinstance(left, torch.fx.Node)
        and left.target is torch.ops.aten.sub.Tensor
        and left.args[0] == left.args[1]
    )
    return bool(left == right or any(map(_is_special, (left, right))) or (right == 0 and is_nothing))


def _is_special(argument: object) -> bool:
    if isinstance(argument, torch.fx.Node):
        return str(argument.target).startswith(_FILLS) and any(map(_is_special, argument.args))
    return isinstance(argument, float) and abs(argument) > 1e30


def _gives_integers(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return not _is_float(value)
    # Of several outputs the integer ones count only where somebody takes them.
    return any(
        isinstance(user.meta.get("val"), torch.Tensor) and not _is_float(user.meta["val"])
        for user in node.users
        if user.users
    )
