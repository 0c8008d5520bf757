"""Watches an eager run of a model: each moment at which Python looks into a tensor, and where that came from.

`Watch` is a mode of torch's functions. For every result it notes the expression and the operands, so that a
value has a history; where Python takes a truth, a number, a size, an array or a text out of a tensor, it
notes an `Event` with the exact expression. Decisions can be forced the other way, to see the paths that the
example does not take.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.diagnostics import Step
from aotpipe.tools.check.source_ranges import Place

Kind = Literal["truth", "number", "size", "array", "text"]

_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("__bool__", "is_nonzero", "equal", "allclose", "__contains__"), "truth"),
    **dict.fromkeys(("item", "tolist", "__int__", "__float__", "__complex__", "__index__"), "number"),
    **dict.fromkeys(
        ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "_unique2", "bincount"),
        "size",
    ),
    **dict.fromkeys(("numpy", "__array__"), "array"),
    **dict.fromkeys(("__repr__", "__format__", "__str__"), "text"),
}
_SAMPLED: Final = frozenset(
    {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like"}
)
_LONGEST: Final = 8


@dataclass(slots=True)
class Node:
    """What a tensor came from; `varies` where it depends on an input, on state or on chance."""

    what: str
    place: Place | None = None
    operands: tuple[Node, ...] = ()
    varies: bool = False

    def history(self) -> tuple[Step, ...]:
        """The way back to what it began as, through operands that vary; each place once."""
        steps: list[Step] = []
        node: Node | None = self
        seen: set[Place] = set()
        visited: set[int] = set()
        while node is not None and len(steps) < _LONGEST and id(node) not in visited:
            visited.add(id(node))
            if node.place is None:
                steps.append(Step(what=node.what))
            elif node.place not in seen and not _says(steps, node.place):
                seen.add(node.place)
                steps.append(Step(what=f"`{node.place.expression or node.what}`", place=node.place))
            candidates = sorted(node.operands, key=lambda each: not each.varies)
            node = next((each for each in candidates if id(each) not in visited), None)
        return tuple(steps)


def _says(steps: Sequence[Step], place: Place) -> bool:
    """Whether the last step shows a place already, as a part of its own."""
    return bool(steps) and steps[-1].place is not None and steps[-1].place.holds(place)


@dataclass(slots=True)
class Event:
    """Python takes something out of a tensor.

    Attributes:
        kind: What it takes.
        op: torch's name of the operation.
        at: What the innermost code of a model computes, as Python has it.
        place: The expression itself: of an `if`, its test.
        node: The tensor's.
        value: What eager got.
        operand: The tensor, where its truth is taken.
        source: The name of the input that it is, if it is one.
    """

    kind: Kind
    op: str
    at: Place
    place: Place
    node: Node
    value: Any = None
    operand: torch.Tensor | None = None
    source: str = ""

    @property
    def line(self) -> tuple[str, int]:
        """The file and the line of the expression."""
        return self.place.path, self.place.line


@dataclass(frozen=True, slots=True)
class Forced:
    """A decision to take otherwise than eager, once."""

    place: Place
    to: bool


@dataclass(slots=True)
class Seen:
    """What a run showed: its events in their order, and the outcomes of each decision."""

    events: list[Event] = field(default_factory=list)
    outcomes: dict[Place, set[bool]] = field(default_factory=dict)


class Watch(TorchFunctionMode):
    """Notes the events of a run.

    Args:
        named: Tensors with a name of their own: `(tensor, "parameter", "linear.weight")`; inputs vary.
        forced: Decisions to turn around, each once.
    """

    def __init__(self, named: Iterable[tuple[torch.Tensor, str, str]], forced: Sequence[Forced] = ()) -> None:
        super().__init__()
        self.seen = Seen()
        self._forced = list(forced)
        self._nodes = WeakIdKeyDictionary()
        self._inputs: dict[int, str] = {}
        for tensor, kind, name in named:
            self._nodes[tensor] = Node(f"the {kind} `{name}`", varies=kind != "parameter")
            if kind == "input":
                self._inputs[id(tensor)] = name

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            result = func(*args, **kwargs)
            self._derive(result, "", None, args)
            return result
        inner = source_ranges.model_frame(sys._getframe(1))  # noqa: SLF001  # the only way to the code that calls
        place = source_ranges.of_frame(inner) if inner is not None else None
        kind = _kind(name, args, kwargs)
        if place is not None and kind is not None:
            operands = self._operands(args, kwargs)
            node = next((each for each in operands if each.varies), operands[0] if operands else Node(name))
            event = Event(kind, name, place, _tested(place, node) if kind == "truth" else place, node)
            if kind == "truth" and isinstance(args[0], torch.Tensor):
                event.operand = args[0].detach().clone()
                event.source = self._inputs.get(id(args[0]), "")
            result = func(*args, **kwargs)
            event.value = result
            self.seen.events.append(event)
            if name == "__bool__":
                return self._decided(event, result)
        else:
            result = func(*args, **kwargs)
        self._derive(result, name, place, (args, kwargs))
        return result

    def _decided(self, event: Event, result: bool) -> bool:
        place = event.place
        if not event.node.varies:
            return result
        forced = next((each for each in self._forced if each.place == place), None)
        if forced is not None:
            self._forced.remove(forced)
            result = forced.to
        self.seen.outcomes.setdefault(place, set()).add(result)
        return result

    def _returned(self, tensor: torch.Tensor) -> Node | None:
        """What a tensor came from that no function of torch gave, after one was taken out as an array."""
        taken = next((e for e in reversed(self.seen.events) if e.kind == "array" and e.node.varies), None)
        if taken is None:
            return None
        # `torch.from_numpy` is hidden from modes, and what numpy computed from this.
        node = Node(f"what Python made of `{taken.place.expression}`", None, (taken.node,), varies=True)
        self._nodes[tensor] = node
        return node

    def _operands(self, *trees: Any) -> tuple[Node, ...]:
        found: list[Node] = []
        for leaf in pytree.tree_leaves(trees):
            if isinstance(leaf, torch.Tensor):
                node: Node | None = self._nodes.get(leaf)  # type: ignore[no-untyped-call]
                node = node or self._returned(leaf)
                found += [node] if node is not None else []
            elif isinstance(leaf, slice):
                found += self._operands((leaf.start, leaf.stop, leaf.step))
        return tuple(found)

    def _derive(self, result: Any, name: str, place: Place | None, taken: Any) -> None:
        made = result if isinstance(result, (tuple, list)) else (result,)
        if name == "__setitem__" and isinstance(taken[0][0], torch.Tensor):
            made = (taken[0][0],)
        made = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        if not made:
            return
        operands = self._operands(taken)
        varies = name in _SAMPLED or any(each.varies for each in operands)
        if place is None and operands:
            node = next((each for each in operands if each.varies), operands[0])
        else:
            node = Node(name, place, operands, varies)
        for tensor in made:
            self._nodes[tensor] = node


def _tested(place: Place, node: Node) -> Place:
    """The expression whose truth a statement takes; Python has no more than the statement for some."""
    if node.place is not None and place.holds(node.place):
        return node.place
    found = next(iter(source_ranges.around(place)), None)
    if isinstance(found, ast.If | ast.While | ast.IfExp | ast.Assert):
        return source_ranges.of_node(place.path, found.test, place.function)
    return place


def _kind(name: str, args: Any, kwargs: Any) -> Kind | None:
    if name in _KINDS:
        return _KINDS[name]
    if name == "where":
        return "size" if len(args) + len(kwargs) == 1 else None
    if name == "repeat_interleave":
        known = kwargs.get("output_size") is not None
        return "size" if _has_tensor(*args[1:2], kwargs.get("repeats")) and not known else None
    if name == "__getitem__":
        return _index_kind(args[1])
    if name == "topk" and _has_tensor(*args[1:2], kwargs.get("k")):
        return "number"
    return None


def _index_kind(index: Any) -> Kind | None:
    parts = index if isinstance(index, (tuple, list)) else (index,)
    for part in parts:
        if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8):
            return "size"
        if isinstance(part, slice) and _has_tensor(part.start, part.stop, part.step):
            return "size"
    return None


def _has_tensor(*values: Any) -> bool:
    return any(isinstance(each, torch.Tensor) for each in values)
