"""Makes a model with some lines replayed: there, Python gets what eager got, in place of traced tensors.

A build stops at the first obstacle. To find those behind it, `with_replay(entry, events)` gives an entry
point that computes as before but for these events: a number, an array, a text or a tensor of unknown size is
eager's own, and a tensor whose truth decides is a constant, so that the export goes on with eager's path.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree  # torch.export's own flattening; see pytrees

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.stages import CanonicalEntry
from aotpipe.model.source import signature_of
from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.data_dependence import Event
from aotpipe.tools.check.source_ranges import Place

_Key = tuple[Place, str]


def with_replay(entry: CanonicalEntry, events: Sequence[Event]) -> CanonicalEntry:
    """The entry point with eager's values at the places of these events, in their order."""
    if not events:
        return entry
    inputs = {event.source: event.operand for event in events if event.kind == "truth" and event.source}
    call = entry.module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = iter(entry.input_names)

        def known(leaf: Any) -> Any:
            name = next(given, "")
            return _constant(inputs[name]) if name in inputs else leaf

        args, kwargs = pytrees.map_leaves(known, (args, kwargs))
        with _Replay(_recorded(events)):
            return call(*args, **kwargs)

    forward.__signature__ = signature_of(call)  # type: ignore[attr-defined]
    forward.__wrapped__ = call  # type: ignore[attr-defined]
    return replace(entry, module=_view(entry.module, forward))


def _view(module: nn.Module, forward: Any) -> nn.Module:
    """A module of the same attributes with another forward."""

    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001  # `forward` is bound already
        return forward(*args, **kwargs)

    parameters = signature_of(forward).parameters.values()
    itself = inspect.Parameter("__self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = inspect.Signature([itself, *parameters])  # type: ignore[attr-defined]
    method.__wrapped__ = forward  # type: ignore[attr-defined]
    # One __dict__: what the model sets on itself is seen, and put back, here too.
    hidden = "forward" in module.__dict__
    made: Any = property(lambda self: method.__get__(self)) if hidden else method
    view = cast("nn.Module", object.__new__(type(type(module).__name__, (nn.Module,), {"forward": made})))
    object.__setattr__(view, "__dict__", module.__dict__)
    return view


def _recorded(events: Iterable[Event]) -> Mapping[_Key, list[Any]]:
    """What the function at a place gave, each time: the one that takes, or the one whose result decides."""
    found: dict[_Key, list[Any]] = {}
    for event in events:
        found.setdefault((event.at, event.op), []).append(event.value)
        if event.op == "tolist":
            # A traced tensor has a tolist of its own, made of the items.
            found.setdefault((event.at, "item"), []).extend(pytree.tree_leaves(event.value))
        if event.kind == "truth" and event.node.place is not None:
            found.setdefault((event.node.place, event.node.what), []).append(event.operand)
    return found


def _constant(value: Any) -> Any:
    """A tensor as one that is made while the model is traced: torch keeps the value of such a one."""
    if isinstance(value, torch.Tensor):
        return torch.tensor(value.tolist(), dtype=value.dtype).reshape(value.shape)
    return value


class _Replay(TorchFunctionMode):
    def __init__(self, recorded: Mapping[_Key, list[Any]]) -> None:
        super().__init__()
        self._recorded = recorded
        self._names = frozenset(name for _, name in recorded)
        self._next: dict[_Key, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self._names:
            inner = source_ranges.model_frame(sys._getframe(1))  # noqa: SLF001  # the code that calls
            key = (source_ranges.of_frame(inner), name) if inner is not None else None
            values = self._recorded.get(key) if key is not None else None
            if values and key is not None:
                index = self._next.get(key, 0)
                self._next[key] = index + 1
                return _constant(values[min(index, len(values) - 1)])
        return func(*args, **(kwargs or {}))
