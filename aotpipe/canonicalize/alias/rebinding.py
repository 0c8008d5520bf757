"""Keeps the names of one tensor alike where a graph has made a copy of it.

After a branch or a loop a variable holds a tensor of the graph's own, where eager may have given it another
name of a tensor from before; what a traced index gives is a copy, where eager gives a view:
`note(pair)` remembers the two. As long as nobody writes to either in place nobody can tell. A write to one of
them is repeated on the others, if somebody still holds those. Where that takes more than is followed, the
write asks for it and is refused; where it cannot be, it is refused for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotpipe.canonicalize.alias import effects, tensor_storage
from aotpipe.canonicalize.alias.tensor_storage import AliasSet, storage_of
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import refusal


@dataclass(frozen=True, slots=True)
class Pair:
    """A copy and what eager would have made it a view of.

    Attributes:
        copy, original: The two.
        to_copy, to_original: Repeat a write on the other one; None where that cannot be.
    """

    copy: torch.Tensor
    original: torch.Tensor
    to_copy: Callable[[], object] | None = None
    to_original: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class _Other:
    """Another name of a tensor that is written in place.

    Attributes:
        repeat: What repeats a write on it, if anything does.
        is_unfollowed: Whether something would if names were followed exactly.
    """

    tensor: torch.Tensor
    repeat: Callable[[], object] | None
    is_unfollowed: bool = False


@dataclass(slots=True)
class _Copies:
    """The copies of a trace.

    Attributes:
        outside: How many of them are of what is around the branch or the loop that is traced.
    """

    pairs: list[Pair] = field(default_factory=list)
    outside: int = 0
    is_repeating: bool = False


@contextmanager
def inner() -> Iterator[None]:
    """Trace a branch or a loop, and forget what is noted inside."""
    copies = trace.part(_Copies)
    count = len(copies.pairs)
    with tensor_storage.scope(), trace.assigned(copies, outside=count):
        try:
            yield
        finally:
            del copies.pairs[count:]


def told() -> AbstractContextManager[None]:
    """Inside, a write to a tensor is one to all of its names already."""
    return trace.assigned(trace.part(_Copies), is_repeating=True)


def note(pair: Pair) -> None:
    """Remember a copy."""
    trace.part(_Copies).pairs.append(pair)


def alias_set(tensor: torch.Tensor) -> AliasSet | None:
    """What is known of a tensor's memory; what this region notes of copies makes it a part of theirs."""
    return alias_sets([tensor])[id(tensor)]


def alias_sets(tensors: Iterable[torch.Tensor]) -> dict[int, AliasSet | None]:
    """`alias_set` of each of some tensors, by its identity."""
    tensors = list(tensors)
    found = {id(tensor): tensor_storage.of(tensor) for tensor in tensors}
    copies = trace.part(_Copies)
    if len(copies.pairs) == copies.outside:
        return found
    # A function may note a pair for each read of a list: each is looked at once, and not for each tensor.
    near: dict[int, list[torch.Tensor]] = {}
    for pair in copies.pairs[copies.outside :]:
        for one, other in ((pair.copy, pair.original), (pair.original, pair.copy)):
            if tensor_storage.of(other) is not None:
                near.setdefault(tensor_storage.owner_of(one), []).append(other)

    def paired(each: torch.Tensor) -> Iterable[torch.Tensor]:
        return near.get(tensor_storage.owner_of(each), ())

    for tensor in tensors:
        if (known := found[id(tensor)]) is not None:
            sets = map(tensor_storage.of, _closure(tensor, paired))
            numbers = frozenset(number for each in sets if each is not None for number in each.numbers)
            partial = known.partial | (numbers - known.numbers)
            found[id(tensor)] = replace(known, numbers=numbers, partial=partial)
    return found


def refuse_lost(tensor: torch.Tensor) -> None:
    """Refuse to write in place what another name would lose.

    Raises:
        ExportFailed: Another name would.
    """
    if trace.part(_Copies).is_repeating:
        return
    lost = [other for other in _reached(tensor) if other.repeat is None]
    if lost:
        if all(other.is_unfollowed for other in lost):
            trace.current().needs.add("exact_aliases")
        raise refusal(
            "a tensor is written in place that may have a second name, by a branch or a loop on a tensor",
            "assign a new value (`y = y + 1` for `y += 1`), or clone it before",
            "written-in-place",
        )


def repeat(tensor: torch.Tensor) -> None:
    """After a write to a tensor, repeat it on its other names."""
    if not trace.part(_Copies).is_repeating:
        with told():
            for other in list(_reached(tensor)):
                if other.repeat is not None:
                    other.repeat()


def _reached(tensor: torch.Tensor) -> Iterator[_Other]:
    """Yield the other names that must see a write to a tensor, nearest first."""
    done, left = {tensor_storage.owner_of(tensor)}, [tensor]
    held: set[int] | None = None
    while left:
        for other in _others(left.pop(0)):
            owner = tensor_storage.owner_of(other.tensor)
            if owner in done:
                continue
            held = effects.held_storages() if held is None else held
            if _matters(other.tensor, done, held):
                yield other
                done.add(owner)
                left.append(other.tensor)


def _matters(tensor: torch.Tensor, done: set[int], held: set[int]) -> bool:
    """Whether somebody holds a tensor of this memory, or another name of it."""
    names = _closure(tensor, lambda each: (other.tensor for other in _others(each)), done)
    # Variables hold a tensor from outside of a region; what an op takes in it is an operand.
    return any(not held.isdisjoint((storage_of(each), tensor_storage.owner_of(each))) for each in names)


def _closure(
    tensor: torch.Tensor, near: Callable[[torch.Tensor], Iterable[torch.Tensor]], done: Iterable[int] = ()
) -> Iterator[torch.Tensor]:
    """Yield a tensor and what it comes to by steps, one of each memory that is not `done`."""
    seen, left = {*done, tensor_storage.owner_of(tensor)}, [tensor]
    while left:
        yield (each := left.pop())
        for other in near(each):
            owner = tensor_storage.owner_of(other)
            if owner not in seen:
                seen.add(owner)
                left.append(other)


def _others(tensor: torch.Tensor) -> Iterator[_Other]:
    """The other names of a tensor: those in the same memory, and copies of views."""
    own = tensor_storage.of(tensor)
    if own is None:
        return
    for other in tensor_storage.others(own):
        yield _named_too(own, other)
    for pair, paired in _paired(tensor, trace.part(_Copies).pairs):
        yield _Other(paired, pair.to_original if paired is pair.original else pair.to_copy)


def _named_too(own: AliasSet, other: AliasSet) -> _Other:
    """The other tensor that may share the memory, with what repeats a write on it."""
    if own.numbers & other.numbers & (own.partial | other.partial) or own.tensor.shape != other.tensor.shape:
        return _Other(other.tensor, None)
    if isinstance(own.known, int) and isinstance(other.known, int):
        return _Other(other.tensor, lambda: other.tensor.copy_(own.tensor))
    if own.known is None or other.known is None:
        return _Other(other.tensor, None, is_unfollowed=True)

    def repeat() -> None:
        are_one: Any = own.known == other.known
        other.tensor.copy_(torch.where(are_one, own.tensor, other.tensor))

    return _Other(other.tensor, repeat)


def _paired(tensor: torch.Tensor, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, torch.Tensor]]:
    owner = tensor_storage.owner_of(tensor)
    for pair in pairs:
        if tensor_storage.owner_of(pair.copy) == owner:
            yield pair, pair.original
        elif tensor_storage.owner_of(pair.original) == owner:
            yield pair, pair.copy


def written(func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """The tensor that a call of a torch function writes in place; the name of the function tells."""
    name = getattr(func, "__name__", "")
    in_place = name == "__setitem__" or (
        name.startswith("__i") and name not in {"__invert__", "__int__", "__index__"}
    )
    in_place = in_place or (name.endswith("_") and not name.endswith("__")) or bool(kwargs.get("inplace"))
    target = kwargs.get("out") if not in_place else next(iter(args), kwargs.get("input"))
    return target if isinstance(target, torch.Tensor) else None
