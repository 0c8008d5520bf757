"""Runs a model eagerly on its examples, watched: the calls that `check` draws its conclusions from.

`observe(entry)` calls the entry point, twice in a row where it keeps something, then once for each decision
on a tensor that went one way only, with that decision turned around. Gives an `Observed`; the model is as
before afterwards. A path that raises when a decision is forced onto it is part of what is found.

`Watch` is a mode of torch's functions. For every result it notes the expression and the operands, so that a
value has a history; where Python takes a truth, a number, a size, an array or a text out of a tensor, it
notes an `Event` with the exact expression.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.stages import CanonicalEntry
from aotpipe.model import source_ranges
from aotpipe.model.object_graph import modules_of, roots_of
from aotpipe.model.source_ranges import Place
from aotpipe.tools.check.diagnostics import Step
from aotpipe.validate.eager import side_effects
from aotpipe.validate.eager.side_effects import Effect

Kind = Literal["truth", "number", "size", "array", "text"]

_FUNCTIONS: Final[Mapping[Kind, str]] = {
    "truth": "__bool__ is_nonzero equal allclose __contains__",
    "number": "item tolist __int__ __float__ __complex__ __index__",
    "size": "nonzero argwhere masked_select unique unique_consecutive _unique2 bincount",
    "array": "numpy __array__",
    "text": "__repr__ __format__ __str__",
}
_KINDS: Final = {name: kind for kind, names in _FUNCTIONS.items() for name in names.split()}
_SAMPLED: Final = frozenset(
    "rand randn randint randperm normal bernoulli multinomial rand_like randn_like".split()
)
_ABSENT: Final = "nothing"
_LONGEST: Final = 8
_MOST_FORCED: Final = 24
_FORCED_S: Final = 3.0


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
            shown = steps[-1].place if steps else None
            if node.place is None:
                steps.append(Step(what=node.what))
            # The last step may show a place already, as a part of its own.
            elif node.place not in seen and not (shown and shown.holds(node.place)):
                seen.add(node.place)
                steps.append(Step(what=f"`{node.place.expression or node.what}`", place=node.place))
            candidates = sorted(node.operands, key=lambda each: not each.varies)
            node = next((each for each in candidates if id(each) not in visited), None)
        return tuple(steps)


@dataclass(slots=True)
class Event:
    """Python takes something out of a tensor.

    Attributes:
        op: torch's name of the operation.
        at: What the innermost code of a model computes, as Python has it.
        place: The expression itself: of an `if`, its test.
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


class Watch(TorchFunctionMode):
    """Notes the events of a run in their order, and the outcomes of each decision.

    `named` are tensors with a name of their own: `(tensor, "parameter", "linear.weight")`; inputs vary. Each
    decision of `forced` is turned around once.
    """

    def __init__(self, named: Iterable[tuple[torch.Tensor, str, str]], forced: Sequence[Forced] = ()) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.outcomes: dict[Place, set[bool]] = {}
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
            self.events.append(event)
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
        self.outcomes.setdefault(place, set()).add(result)
        return result

    def _returned(self, tensor: torch.Tensor) -> Node | None:
        """A node for a tensor that no function of torch returned, where an array was taken out before."""
        taken = next((e for e in reversed(self.events) if e.kind == "array" and e.node.varies), None)
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
    """The expression whose truth a statement takes: of some, Python knows the whole statement only."""
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
    if name == "topk" and _has_tensor(*args[1:2], kwargs.get("k")):
        return "number"
    if name != "__getitem__":
        return None
    for part in args[1] if isinstance(args[1], (tuple, list)) else args[1:2]:
        if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8):
            return "size"
        if isinstance(part, slice) and _has_tensor(part.start, part.stop, part.step):
            return "size"
    return None


def _has_tensor(*values: Any) -> bool:
    return any(isinstance(each, torch.Tensor) for each in values)


@dataclass(slots=True)
class Observed:
    """What eager runs of one entry point showed.

    Attributes:
        events: The events of all runs, one per place and kind.
        outcomes: Of each decision on a tensor, in unforced runs.
        changed: Attribute path -> its values before and after each call, for those that calls change.
        raised: The decisions that raised when they were forced, with the error.
    """

    first: list[Event] = field(default_factory=list)
    events: dict[tuple[Place, str], Event] = field(default_factory=dict)
    outcomes: dict[Place, set[bool]] = field(default_factory=dict)
    effects: dict[tuple[str, Place], Effect] = field(default_factory=dict)
    reached: dict[CodeType, Mapping[str, Any]] = field(default_factory=dict)
    changed: dict[str, tuple[object, ...]] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    raised: dict[Place, Exception] = field(default_factory=dict)


def observe(entry: CanonicalEntry) -> Observed:
    """Call an entry point on its examples, watched."""
    found = Observed()
    with example_call.unchanged(entry.module) as before, torch.random.fork_rng(devices=[]):
        states = [_attributes(entry.module)]
        changed: dict[str, None] = {}
        found.owners = {id(one): path for path, one in entry.module.named_modules()}
        for path, value in states[0].items():
            if isinstance(value, side_effects.CONTAINERS):
                found.owners.setdefault(id(value), path)
        # A second call tells how the values of an attribute go on, where a first one changed any.
        for number in range(2 if entry.state is not None else 1):
            watch, _ = _run(entry, found)
            if not number:
                found.first = list(watch.events)
            states.append(_attributes(entry.module))
            changed |= {root.path: None for root in before.changed() if not root.is_buffer}
        found.changed = {path: tuple(state.get(path, _ABSENT) for state in states) for path in changed}
    _explore(entry, found)
    return found


def _explore(entry: CanonicalEntry, found: Observed) -> None:
    """Turn decisions around, until every one went both ways or time is up."""
    start = time.perf_counter()
    # The decisions that have to be forced to come to a place at all.
    ways: dict[Place, tuple[Forced, ...]] = dict.fromkeys(found.outcomes, ())
    outcomes = {place: set(values) for place, values in found.outcomes.items()}
    tried: set[Forced] = set()
    while len(tried) < _MOST_FORCED and time.perf_counter() - start < _FORCED_S:
        turned = (Forced(place, not next(iter(went))) for place, went in outcomes.items() if len(went) == 1)
        last = next((each for each in turned if each not in tried), None)
        if last is None:
            return
        tried.add(last)
        way = (*ways[last.place], last)
        with example_call.unchanged(entry.module), torch.random.fork_rng(devices=[]):
            watch, error = _run(entry, found, way)
        if error is not None:
            found.raised[last.place] = error
        for each, values in watch.outcomes.items():
            ways.setdefault(each, way)
            outcomes.setdefault(each, set()).update(values)


def _run(
    entry: CanonicalEntry, found: Observed, forced: Sequence[Forced] = ()
) -> tuple[Watch, Exception | None]:
    args, kwargs = pytrees.clone_tensors((entry.entry.args, dict(entry.entry.kwargs)))
    watch = Watch(_named(entry, args, kwargs), forced)
    error = None
    with torch.no_grad(), uncompiled(), side_effects.recording() as seen:
        try:
            with watch:
                entry.module(*args, **kwargs)
        except Exception as raised:
            if not forced:
                raise
            error = raised
    found.effects.update({(each.kind, each.place): each for each in reversed(seen.effects)})
    found.reached.update(seen.reached)
    for event in watch.events:
        known = found.events.get((event.place, event.kind))
        if known is None or (event.node.varies and not known.node.varies):
            found.events[event.place, event.kind] = event
    for place, values in watch.outcomes.items() if not forced else ():
        found.outcomes.setdefault(place, set()).update(values)
    return watch, error


def _named(
    entry: CanonicalEntry, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, str, str]]:
    yield from ((tensor, "parameter", name) for name, tensor in entry.module.named_parameters())
    yield from ((tensor, "buffer", name) for name, tensor in entry.module.named_buffers())
    flat = [leaf for value in (*args, *kwargs.values()) for _, leaf in pytrees.leaves(value)]
    for name, leaf in zip(entry.input_names, flat, strict=False):
        if isinstance(leaf, torch.Tensor):
            yield leaf, "input", name


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Every attribute of the modules that is neither parameter, buffer nor submodule, by path."""
    roots = roots_of(modules_of(module))
    return {root.path: root.held[root.key] for root in roots if not root.is_buffer}
