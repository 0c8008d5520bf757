"""How far a predicate was from the other outcome, as a number with a gradient.

`distance(frame, predicate, wanted)` is 0 where the predicate is what is wanted, and otherwise grows with how
far what it compares is from that: the branch distance of search-based testing, with torch's autograd through
the ops before it. `a and b` adds the distances of both, `a or b` takes the smaller one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.fx import Node

from aotpipe.passes.ops import name_of
from aotpipe.validate.coverage.interpreter import Frame

Pair = Callable[[Any, Any], torch.Tensor]


def _positive(difference: torch.Tensor) -> torch.Tensor:
    return torch.where(difference > 0, difference, torch.zeros_like(difference))


def _above(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """What `left > right` lacks; equal numbers lack a little."""
    lacking = _positive(right - left)
    return lacking + torch.where(left > right, 0.0, _LITTLE * (1 + right.abs().detach()))


_LITTLE: Final = 1e-6
_LACKING: Final[Mapping[str, tuple[Pair, Pair]]] = {
    # name: (what is lacking for it to hold, what for it not to hold)
    "gt": (_above, lambda a, b: _positive(a - b)),
    "ge": (lambda a, b: _positive(b - a), lambda a, b: _above(b, a)),
    "lt": (lambda a, b: _above(b, a), lambda a, b: _positive(b - a)),
    "le": (lambda a, b: _positive(a - b), _above),
    "eq": (lambda a, b: (a - b).abs(), lambda a, b: (a == b).to(a.dtype)),
    "ne": (lambda a, b: (a == b).to(a.dtype), lambda a, b: (a - b).abs()),
}
_AND: Final = frozenset({"logical_and", "bitwise_and", "__and__", "and_"})
_OR: Final = frozenset({"logical_or", "bitwise_or", "__or__", "or_"})
_NOT: Final = frozenset({"logical_not", "bitwise_not", "not_"})
_ALIKE: Final = frozenset({"clone", "to", "_to_copy", "detach", "contiguous", "item", "_local_scalar_dense"})
_REARRANGED: Final = frozenset({"view", "reshape", "squeeze", "unsqueeze", "select", "slice", "expand"})
_DEEPEST: Final = 64


def distance(frame: Frame, predicate: Any, wanted: bool) -> torch.Tensor:
    """The distance of a predicate from an outcome, a 0-d tensor."""
    found = _distance(frame, predicate, wanted, _DEEPEST)
    # Of a predicate of one element there is one.
    return found.sum()


def _distance(frame: Frame, predicate: Any, wanted: bool, depth: int) -> torch.Tensor:
    value = frame.value(predicate)
    if not isinstance(predicate, Node) or depth == 0:
        return _leaf(value, wanted)
    if predicate.op == "placeholder":
        found = frame.outer.get(predicate)
        return _distance(*found, wanted, depth - 1) if found else _leaf(value, wanted)
    if predicate.op != "call_function":
        return _leaf(value, wanted)
    args: Any = predicate.args
    if predicate.target is operator.getitem and args[0] in frame.inner:
        inner, returned = frame.inner[args[0]]
        return _distance(inner, returned[args[1]], wanted, depth - 1)
    name = name_of(predicate)
    below: Callable[[Any, bool], torch.Tensor] = lambda each, holds: _distance(frame, each, holds, depth - 1)  # noqa: E731
    if name in _LACKING:
        left, right = (_number(frame, each) for each in args[:2])
        return _LACKING[name][not wanted](left, right)
    if name in _AND or name in _OR:
        both = [below(each, wanted) for each in args[:2]]
        return both[0] + both[1] if (name in _AND) == wanted else torch.minimum(both[0], both[1])
    if name in _NOT:
        return below(args[0], not wanted)
    if name in ("any", "all") and isinstance(args[0], Node):
        each = below(args[0], wanted)
        dims = args[1:] if len(args) > 1 else ()
        return _over(each, dims, (name == "all") == wanted)
    if name in _ALIKE and _is_flag(frame.value(args[0])):
        return below(args[0], wanted)
    if name in _REARRANGED and _is_flag(value):
        each, given = below(args[0], wanted), frame.value(args[0])
        if each.shape == given.shape:
            return predicate.target(each, *map(frame.value, args[1:]))  # type: ignore[no-any-return,operator]
    return _leaf(value, wanted)


def _over(each: torch.Tensor, dims: Any, adds: bool) -> torch.Tensor:
    if not each.numel():
        return each.sum()
    if dims:
        return each.sum(*dims) if adds else each.amin(*dims)
    return each.sum() if adds else each.min()


def _leaf(value: Any, wanted: bool) -> torch.Tensor:
    tensor = torch.as_tensor(value)
    if tensor.dtype is not torch.bool and not wanted and not tensor.is_complex():
        return tensor.abs().to(torch.get_default_dtype()) if not tensor.is_floating_point() else tensor.abs()
    return (tensor.bool() != wanted).to(torch.get_default_dtype())


def _number(frame: Frame, argument: Any) -> torch.Tensor:
    """A number as a tensor, with its gradient where it is an element of one."""
    while name_of(argument) in ("item", "_local_scalar_dense"):
        argument = argument.args[0]
    tensor = torch.as_tensor(frame.value(argument))
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype is torch.bool)
