"""Runs a model eagerly on its examples, watched: the calls that `check` draws its conclusions from.

`observe(entry)` calls the entry point, twice in a row where it keeps something, then once for each decision
on a tensor that went one way only, with that decision turned around. Gives an `Observed`; the model is as
before afterwards. A path that raises when a decision is forced onto it is part of what is found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.eager_hops import uncompiled
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.stages import CanonicalEntry
from aotpipe.model.object_graph import OWN
from aotpipe.tools.check import side_effects
from aotpipe.tools.check.data_dependence import Event, Forced, Watch
from aotpipe.tools.check.side_effects import Effect
from aotpipe.tools.check.source_ranges import Place

_MOST_FORCED: Final = 24
_FORCED_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Raised:
    """What a path raised that eager does not take: the decision that was forced to lead there."""

    place: Place
    error: Exception


@dataclass(slots=True)
class Observed:
    """What eager runs of one entry point showed.

    Attributes:
        first: The events of the first call, in order.
        events: The events of all runs, one per place and kind.
        outcomes: Of each decision on a tensor, in unforced runs.
        changed: Attribute path -> its values before and after each call, for those that calls change.
        raised: Forced paths that raised.
    """

    first: list[Event] = field(default_factory=list)
    events: dict[tuple[Place, str], Event] = field(default_factory=dict)
    outcomes: dict[Place, set[bool]] = field(default_factory=dict)
    effects: dict[tuple[str, Place], Effect] = field(default_factory=dict)
    reached: dict[CodeType, Mapping[str, Any]] = field(default_factory=dict)
    changed: dict[str, tuple[object, ...]] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    raised: list[Raised] = field(default_factory=list)


def observe(entry: CanonicalEntry) -> Observed:
    """Call an entry point on its examples, watched."""
    found = Observed()
    with example_call.unchanged(entry.module), torch.random.fork_rng(devices=[]):
        states = [_state(entry.module)]
        found.owners = _owners(entry.module)
        # A second call tells how the values of an attribute go on, where a first one changed any.
        for number in range(2 if entry.state is not None else 1):
            watch, _ = _run(entry, found)
            if not number:
                found.first = list(watch.seen.events)
            _note(found, watch)
            states.append(_state(entry.module))
        found.changed = {
            path: tuple(state.get(path, _ABSENT) for state in states)
            for path in {path: None for state in states for path in state}
            if len({repr(state.get(path, _ABSENT)) for state in states}) > 1
        }
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
            found.raised.append(Raised(last.place, error))
        _note(found, watch, forced=True)
        for each, values in watch.seen.outcomes.items():
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
    return watch, error


def _note(found: Observed, watch: Watch, *, forced: bool = False) -> None:
    for event in watch.seen.events:
        known = found.events.get((event.place, event.kind))
        if known is None or (event.node.varies and not known.node.varies):
            found.events[event.place, event.kind] = event
    if not forced:
        for place, values in watch.seen.outcomes.items():
            found.outcomes.setdefault(place, set()).update(values)


def _named(
    entry: CanonicalEntry, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, str, str]]:
    yield from ((tensor, "parameter", name) for name, tensor in entry.module.named_parameters())
    yield from ((tensor, "buffer", name) for name, tensor in entry.module.named_buffers())
    flat = [leaf for value in (*args, *kwargs.values()) for _, leaf in pytrees.leaves(value)]
    for name, leaf in zip(entry.input_names, flat, strict=False):
        if isinstance(leaf, torch.Tensor):
            yield leaf, "input", name


# The state of Python.

_ABSENT: Final = "nothing"


def _state(module: nn.Module) -> dict[str, object]:
    """A summary of every attribute of the modules that is neither parameter, buffer nor submodule."""
    return {path: _summary(value, 3) for path, value in _attributes(module)}


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for path, one in module.named_modules():
        for name, value in vars(one).items():
            if name not in OWN and not name.startswith(("_forward", "_backward", "_state_dict", "_load")):
                yield f"{path}.{name}" if path else name, value


def _summary(value: Any, depth: int) -> object:
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)}, {id(value)} {value._version}"  # noqa: SLF001  # counts writes
    if isinstance(value, bool | int | float | complex | str | bytes | type(None)):
        return value
    if isinstance(value, nn.Module) or not depth:
        return id(value)
    if isinstance(value, dict):
        return tuple((str(key), _summary(each, depth - 1)) for key, each in list(value.items())[:100])
    if isinstance(value, (list, tuple, set)) or type(value).__name__ == "deque":
        return (len(value), *(_summary(each, depth - 1) for each in list(value)[:100]))
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and type(value).__module__.partition(".")[0] not in ("torch", "builtins"):
        return (id(value), *((key, _summary(each, depth - 1)) for key, each in own.items()))
    return id(value)


def _owners(module: nn.Module) -> dict[int, str]:
    """The attribute path of each module and container, by identity."""
    found = {id(one): path for path, one in module.named_modules()}
    for path, value in _attributes(module):
        if isinstance(value, side_effects.CONTAINERS):
            found.setdefault(id(value), path)
    return found
