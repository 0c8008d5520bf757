"""One call of an op as the rules see it: its arguments by name, and their intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from aotpipe.passes import ops
from aotpipe.passes.ranges.intervals import Bound, Interval, Space
from aotpipe.passes.scalars import value_of

Of = Callable[[Any], Interval]
"""The interval of an argument: a node or a number."""


class Call:
    """One call of an op.

    Attributes:
        value: The fake value of the result.
        arguments: By their name in the op's schema, defaults included; empty for a Python function.
    """

    def __init__(self, node: Node, space: Space, of: Of) -> None:
        self.node = node
        self.space = space
        self.of = of
        self.value = node.meta.get("val")
        schema = ops.schema(node)
        declared = schema.arguments if schema else ()
        given = dict(zip([argument.name for argument in declared], node.args, strict=False))
        self.arguments: dict[str, Any] = {
            **{argument.name: argument.default_value for argument in declared},
            **given,
            **node.kwargs,
        }

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def interval(self, name: str) -> Interval:
        """The interval of a named argument."""
        return self.of(self.arguments[name])

    @property
    def source(self) -> Any:
        """The first argument."""
        return self.node.args[0]

    @property
    def is_float(self) -> bool:
        """Whether the result holds floats."""
        return holds_floats(self.value)

    def size(self, argument: Any, dim: int | None) -> Bound:
        """A dim's size, 1 for a 0-d tensor; the number of elements for None."""
        value = value_of(argument)
        if dim is None:
            return as_bound(value.numel())
        return as_bound(value.shape[dim]) if value.dim() else 1


Rule = Callable[[Call], Interval]
"""Gives the interval of a call's result."""


def as_bound(size: Any) -> Bound:
    """A size or number as an interval's end."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def holds_floats(value: object) -> bool:
    """Whether a value is, or holds, floats or complex numbers."""
    if isinstance(value, torch.Tensor):
        return value.dtype.is_floating_point or value.dtype.is_complex
    return isinstance(value, float | complex | torch.SymFloat)
