"""Evaluates a legal graph on padded values: every op by its rule, or as it is where no padding reaches it.

`PaddedInterpreter(arena).run(module, values)` takes and gives arrays with plain axes, as the plain
interpreter does, so that control flow runs its subgraphs by either.

Raises `Refused` with the node, where an op that padding reaches has no rule.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from aotpipe.backends.xla import control_flow
from aotpipe.backends.xla.interpreter import Interpreter, Refused, number_of, python_function
from aotpipe.backends.xla.padding import regions
from aotpipe.backends.xla.padding.layout import Arena, Padded
from aotpipe.backends.xla.padding.rules import Call
from aotpipe.backends.xla.padding.sizes import Size, Unpaddable
from aotpipe.backends.xla.sizes import UnknownSize
from aotpipe.backends.xla.values import Out, cast, is_array
from aotpipe.passes import ops, unbacked

NO_RULE: Final = "padding would reach its results, and there is no rule that keeps it away"


class PaddedInterpreter(Interpreter):
    """Evaluates graphs, nested ones too, under one set of extents."""

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena.extents.sizes)
        self._arena = arena

    def _given(self, node: fx.Node, value: Any) -> Any:
        """An operand as its placeholder has it."""
        expected = node.meta.get("val")
        if isinstance(expected, torch.Tensor):
            return Padded(self._shaped(node, expected, value), self._arena.axes(expected))
        if isinstance(expected, torch.SymInt):
            with suppress(UnknownSize):
                return self._arena.extents.number(expected)
        return value

    def _constant(self, value: Any) -> Any:
        return self._arena.fixed(value) if is_array(value) else value

    def _out(self, value: torch.Tensor) -> Out:
        return self._arena.out(value)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Padded):
            return self._arena.plain(value).array
        return value.number if isinstance(value, Size) else value

    def _evaluate(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        try:
            return self._padded(node, known)
        except Unpaddable as error:
            raise Refused(node, str(error)) from None

    def _padded(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        args: Any = fx.map_arg(node.args, known.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, known.__getitem__)
        target = node.target
        if target is ops.ITEM:
            return self._item(node, self._plain(args[0]))
        if isinstance(target, HigherOrderOperator):
            return self._region(node, args)
        numbers = self._arena.extents.number
        args, kwargs = (fx.node.map_aggregate(each, numbers) for each in (args, kwargs))
        if not isinstance(target, OpOverload):
            return self._of_numbers(node, args)
        if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
            return self._of_size(node)
        return self._op(node, args, kwargs)

    def _of_numbers(self, node: fx.Node, args: Any) -> Any:
        """A function of Python's: of a size again a size, where its expression is known."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            with suppress(UnknownSize):
                return self._arena.extents.number(value)
        plain = [each.number if isinstance(each, Size) else each for each in args]
        return python_function(node.target)(*plain)

    def _item(self, node: fx.Node, x: Any) -> Any:
        value, number = node.meta.get("val"), number_of(node, x)
        if isinstance(value, torch.SymInt):
            self._arena.extents.learn(value, number)
            with suppress(UnknownSize):
                return self._arena.extents.number(value)
        return number

    def _of_size(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return self._arena.extents.number(value)
        return super()._of_size(node)

    def _op(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        op = self._op_of(node)
        call = Call(self._arena, node, args, kwargs, op.lower)
        if op.pad is None and call.is_reached:
            raise Refused(node, NO_RULE)
        if op.pad is None or not (unbacked.symbol_of(node) or call.is_reached):
            return self._checked(node, call.as_it_is())
        return self._checked(node, op.pad(call))

    def _typed(self, value: Any, result: Any) -> Any:
        """A result in the dtype of its fake value, whose shape it must have."""
        if not isinstance(value, torch.Tensor):
            return result
        out = self._out(value)
        found = result if isinstance(result, Padded) else Padded(result, self._arena.axes(value))
        assert tuple(found.array.shape) == out.shape, f"shape {tuple(found.array.shape)} for {out.shape}"
        assert len(found.axes) == len(out.shape), found.axes
        return Padded(cast(found.array, out.dtype), found.axes)

    def _region(self, node: fx.Node, args: Any) -> Any:
        lengths = regions.lengths(self._arena, node, args)
        plain = fx.node.map_aggregate(args, self._plain)
        with self._arena.extents.within():
            results = control_flow.LOWERINGS[node.target](self.run, *plain, **lengths)
        return [self._typed(value, each) for value, each in zip(node.meta["val"], results, strict=True)]
