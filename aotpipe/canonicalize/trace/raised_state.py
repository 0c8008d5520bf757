"""What a model keeps when a call raises: eager keeps each write that came before, and so does a program.

The flags of a program's asserts are looked at after a call, when all of it has run. `note` remembers what
the state holds at each assert, and `Call.left` gives the state that is left: where an assert fails, what it
held there. A slot that nothing writes before an assert needs no such choice: a call that fails leaves it as
it was.

A branch, and the body of a loop, do so for their own asserts (`region`), so that what they leave is what the
state was at an assert that failed in them. What a path of a branch writes before it raises is put into the
graph by a branch of its own, for which `writes_before` asks; a loop on a tensor ends at an assert that fails
(`in_loop`); a `finally` goes on from what an assert that failed before it left (`begin_finally`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import torch

from aotpipe.canonicalize.values import host_scalars, trace
from aotpipe.model import object_graph

TAKEN_BACK: Final = "state-before-raise"
"""The code of the warning that a write before an assert is taken back, where eager keeps it."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a slot holds at one moment.

    Attributes:
        value: A tensor, which may be written in place later, or something else.
        writes: How often the tensor was written by then.
        copy: A copy of the tensor, where it may be another by the time it is asked for.
    """

    value: Any
    writes: int = 0
    copy: torch.Tensor | None = None

    def is_same(self, other: Held) -> bool:
        """Whether nothing was written from one moment to the other."""
        return self.writes == other.writes and _is_same(self.value, other.value)


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(object_graph.is_same, left, right))
    return object_graph.is_same(left, right)


Slots = Mapping[str, Held]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The state of a model that is called.

    Attributes:
        start: What the slots hold when the call begins.
        read: What each slot holds now; None where that has no known form.
        tensor: The tensor that a slot would be for what it held; None where it has none.
        store: Lets a slot hold the value of a tensor from now on; tells whether it can.
        look: Makes a state that knows what is held now, once the call has ended; None where this one does.
        others: What the buffers hold now that are no slots: it is asked which are written before an assert.
        has_forms: Whether calls leave the state in one of several forms.
        only_asks: Whether nothing else is asked.
    """

    start: Slots
    read: Callable[[], Slots | None]
    tensor: Callable[[str, Held], torch.Tensor | None]
    store: Callable[[str, torch.Tensor], bool]
    look: Callable[[], Callable[[], Any] | None]
    others: Callable[[], Slots]
    has_forms: bool = False
    only_asks: bool = False


@dataclass(slots=True)
class _Region:
    """A region that runs now, or the call itself.

    Attributes:
        entry: What the slots held when it began.
        others: What the other buffers held then.
        notes: Of each assert its truth, and what the slots held there.
        copies: The last copy of each slot.
    """

    entry: Slots | None
    others: Slots = field(default_factory=dict)
    notes: list[tuple[torch.Tensor, Slots | None]] = field(default_factory=list)
    copies: dict[str, Held] = field(default_factory=dict)


@dataclass(slots=True)
class Loop:
    """What the iterations of a loop do: whether one may fail an assert, and whether one writes the state."""

    asserts: bool = False
    writes: bool = False


@dataclass(slots=True)
class _Tracking:
    """What is known of asserts and of state in a trace.

    Attributes:
        watched: The state; None where there is none.
        regions: The call, and the regions in it that run now.
        loops: The loops that run now.
        kept: The slots that a call which fails an assert may leave changed.
        others: The buffers that are no slots, and are written before an assert.
        written_before: The exceptions before which a region wrote, by identity.
        look: Makes the state that knows what was held at an assert, where this one does not.
        tried: How many bodies of a `try` with a `finally` run now, which may write after an assert.
    """

    watched: Watched | None = None
    regions: list[_Region] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    written_before: dict[int, BaseException] = field(default_factory=dict)
    look: Callable[[], Any] | None = None
    tried: int = 0


class Call:
    """A call of a model whose state is watched."""

    def __init__(self, watched: Watched, region: _Region) -> None:
        self._watched = watched
        self._notes = region.notes

    def left(self, end: Slots) -> dict[str, torch.Tensor]:
        """The slots that hold something else where an assert fails; `end` is what they hold in the end."""
        found: dict[str, torch.Tensor] = {}
        notes = _known(self._notes)
        for name, held in end.items():
            start = self._watched.start[name]
            written = any(not slots[name].is_same(start) for _, slots in notes)
            if not written and not (self._watched.has_forms and notes and not held.is_same(start)):
                continue
            if not _is_fixed(name, held, notes):
                chosen = _chosen(self._watched, name, held, notes)
                if chosen is None:
                    warn(name)
                    continue
                found[name] = chosen
            trace.part(_Tracking).kept.add(name)
        return found


@contextmanager
def watching(watched: Watched) -> Iterator[Call]:
    """Note what a state holds at each assert of a call."""
    tracking = trace.part(_Tracking)
    region = _Region(watched.start, watched.others())
    # Regions around belong to what calls the model in each of its forms.
    with trace.assigned(tracking, watched=watched, regions=[region], loops=[], tried=0):
        yield Call(watched, region)


def kept() -> set[str]:
    """The slots that a call which fails an assert may leave changed."""
    return set(trace.part(_Tracking).kept)


def others() -> set[str]:
    """The buffers that are no slots, and may be changed by a call which fails an assert."""
    return set(trace.part(_Tracking).others)


def unknown() -> Any:
    """The state that knows what the call held at an assert; None where the one that is watched does."""
    look = trace.part(_Tracking).look
    return None if look is None else look()


def is_unknown() -> bool:
    """Whether the call that was traced held something at an assert that the state does not know."""
    return trace.part(_Tracking).look is not None


def note(truth: torch.Tensor) -> bool:
    """Remember what the state holds at an assert; tells whether a call that fails it may leave another."""
    tracking = trace.part(_Tracking)
    watched = tracking.watched
    if watched is None:
        return bool(tracking.kept)
    region = tracking.regions[-1]
    slots = _read(tracking, watched)
    tracking.others |= _written(region.others, watched.others())
    if watched.only_asks:
        return False
    if slots is None:
        region.notes.append((truth, None))
        return False
    region.notes.append((truth, _copied(tracking, slots)))
    return tracking.tried > 0 or bool(_written(watched.start, slots))


@contextmanager
def region() -> Iterator[None]:
    """Run a region, and let it leave the state as it was at an assert that fails in it."""
    tracking = trace.part(_Tracking)
    watched = tracking.watched
    if watched is None:
        yield
        return
    own = _Region(watched.read(), watched.others())
    try:
        with trace.pushed(tracking.regions, own):
            yield
            end = watched.read()
            if tracking.loops:
                loop = tracking.loops[-1]
                loop.asserts |= bool(own.notes)
                loop.writes |= own.entry is None or end is None or bool(_written(own.entry, end))
                loop.writes |= bool(_written(own.others, watched.others()))
            if own.notes and end is not None:
                end = _copied(tracking, end)
    except Exception as error:
        now = _read(tracking, watched)
        names = _written(own.others, watched.others())
        tracking.others |= names
        if names or (own.entry is not None and now is not None and _written(own.entry, now)):
            tracking.written_before[id(error)] = error
        raise
    if own.notes:
        _settle(watched, own.notes, end)


def _read(tracking: _Tracking, watched: Watched) -> Slots | None:
    """What the slots hold where something raises."""
    tracking.look = tracking.look or watched.look()
    return watched.read()


@dataclass(frozen=True, slots=True)
class Tried:
    """Where the body of a `try` that has a `finally` began: the region, and how many asserts it had made."""

    region: _Region
    count: int


def begin_try() -> Tried | None:
    """Begin the body of a `try` whose `finally` runs after an assert that fails in it, too."""
    tracking = trace.part(_Tracking)
    if not follows():
        return None
    tracking.tried += 1
    return Tried(tracking.regions[-1], len(tracking.regions[-1].notes))


def leave_try(tried: Tried | None) -> None:
    """End the body of such a `try`; what it raises may leave it without a `finally` that is told."""
    if tried is not None:
        trace.part(_Tracking).tried -= 1


def begin_finally(tried: Tried | None, *, reads: bool) -> None:
    """Let the state be what an assert that fails in the body leaves, and the `finally` go on from there.

    `reads`: the `finally` reads variables of the function that the body assigns.
    """
    leave_try(tried)
    tracking = trace.part(_Tracking)
    watched = tracking.watched
    if tried is None or watched is None or not (notes := tried.region.notes[tried.count :]):
        return
    end = watched.read()
    if end is not None and not reads:
        _settle(watched, notes, _copied(tracking, end))
    else:
        warn("the state")


def end_finally(tried: Tried | None) -> None:
    """What the state is now is what an assert that failed in the body leaves."""
    tracking = trace.part(_Tracking)
    if tried is None or tracking.watched is None or not tried.region.notes[tried.count :]:
        return
    now = tracking.watched.read()
    slots = None if now is None else _copied(tracking, now)
    notes = tried.region.notes
    notes[tried.count :] = [(truth, slots) for truth, _ in notes[tried.count :]]


@contextmanager
def unnoted() -> Iterator[None]:
    """Forget what is noted of the asserts that are made inside: they come to nothing, or are made again."""
    tracking = trace.part(_Tracking)
    if tracking.watched is None:
        yield
        return
    with trace.pushed(tracking.regions, _Region(None, tracking.regions[-1].others)):
        yield


def notes_begun() -> Callable[[], None]:
    """What forgets the asserts that are noted from now on."""
    regions = trace.part(_Tracking).regions
    notes = regions[-1].notes if regions else []
    count = len(notes)

    def forget() -> None:
        del notes[count:]

    return forget


def writes_before(error: BaseException) -> bool:
    """Whether a region wrote to the state before it raised an exception."""
    return id(error) in trace.part(_Tracking).written_before


def in_loop() -> AbstractContextManager[Loop]:
    """See what the iterations of a loop that runs inside do."""
    return trace.pushed(trace.part(_Tracking).loops, Loop())


def is_written() -> bool:
    """Whether the state may be another now than when the call began."""
    tracking = trace.part(_Tracking)
    if tracking.watched is None or tracking.watched.only_asks:
        return False
    now = tracking.watched.read()
    return len(tracking.regions) > 1 or now is None or bool(_written(tracking.watched.start, now))


def follows() -> bool:
    """Whether there is a state whose writes before an assert are kept."""
    watched = trace.part(_Tracking).watched
    return watched is not None and not watched.only_asks


def _written(before: Slots, now: Slots) -> set[str]:
    return {name for name, held in now.items() if not held.is_same(before[name])}


def _copied(tracking: _Tracking, slots: Slots) -> Slots:
    """What slots hold, with copies of the tensors that may be written later."""
    watched, own = tracking.watched, tracking.regions[-1]
    assert watched is not None, "only a state that is watched is read"
    found: dict[str, Held] = {}
    for name, held in slots.items():
        value = held.value
        # In a region an operand stands for a tensor from outside, whose writes are counted anew.
        is_first = len(tracking.regions) == 1 and held.is_same(watched.start[name])
        if is_first or not isinstance(value, torch.Tensor) or host_scalars.is_host_scalar(value):
            found[name] = held
            continue
        last = own.copies.get(name)
        if last is None or not last.is_same(held):
            last = own.copies[name] = replace(held, copy=value.clone())
        found[name] = last
    return found


def _settle(watched: Watched, notes: Sequence[tuple[torch.Tensor, Slots | None]], end: Slots | None) -> None:
    known = _known(notes)
    for name, held in (end or {}).items():
        if _is_fixed(name, held, known):
            continue
        chosen = _chosen(watched, name, held, known)
        if chosen is not None and all(slots[name].value is held.value for _, slots in known):
            held.value.copy_(chosen)  # it is written in place, and may have other names
        elif chosen is None or not watched.store(name, chosen):
            warn(name)


def _known(notes: Sequence[tuple[torch.Tensor, Slots | None]]) -> list[tuple[torch.Tensor, Slots]]:
    if any(slots is None for _, slots in notes):
        warn("the state")
    return [(truth, slots) for truth, slots in notes if slots is not None]


def _is_fixed(name: str, end: Held, notes: Sequence[tuple[torch.Tensor, Slots]]) -> bool:
    """Whether nothing is written to a slot after the first assert."""
    return all(slots[name].is_same(end) for _, slots in notes)


def _chosen(
    watched: Watched, name: str, end: Held, notes: Sequence[tuple[torch.Tensor, Slots]]
) -> torch.Tensor | None:
    """What a slot holds at the first assert that fails, or in the end; None where it has no tensor."""
    # Asserts with nothing written between them make one choice.
    groups: list[tuple[Held, list[torch.Tensor]]] = [(end, [])]
    for truth, slots in reversed(notes):
        if slots[name].is_same(groups[-1][0]):
            groups[-1][1].append(truth)
        else:
            groups.append((slots[name], [truth]))
    value = watched.tensor(name, end)
    for held, truths in groups[1:]:
        other = watched.tensor(name, held)
        if value is None or other is None:
            return None
        value = torch.where(reduce(torch.logical_and, truths), value, other)
    return value


def warn(name: str) -> None:
    """Say that a write before an assert is taken back where it fails."""
    said = (
        f"`{name}` is written before something raises: a call that raises takes it back, and eager does not"
    )
    trace.note("warning", TAKEN_BACK, said)
