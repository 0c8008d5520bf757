"""The forms of what a model keeps in Python: what is fixed, and what is a tensor that calls hand on.

`snapshot_of(value)` tells what a value holds now, all the way down. A form (`Node`) says the same
with a `Slot` for each tensor and number that changes; `build` makes the value of a form again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from aotpipe.model import object_graph
from aotpipe.model.object_graph import Root

NUMBERS: Final = (bool, int, float, complex)
KINDS: Final = (torch.bool, torch.int64, torch.float64, torch.complex128)
"""The dtypes of numbers, each of which holds those before it."""
Path = tuple[str, ...]


class ABSENT:
    """Stands for the value of a name that is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A value that is part of a phase's form."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and object_graph.is_same(self.value, other.value)

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that calls hand on; `number` where the model takes it for a Python number."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device
    number: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """A container, a tuple or an object; `live` is the very one that is filled for a call."""

    kind: type
    keys: tuple[Any, ...]
    children: tuple[Fixed | Slot | Tree, ...]
    live: Any = field(compare=False)


Node = Fixed | Slot | Tree


@dataclass(frozen=True, slots=True, eq=False)
class LeafSnapshot:
    """A value as it was seen, with the count of its writes."""

    value: Any
    writes: int = 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LeafSnapshot)
            and object_graph.is_same(self.value, other.value)
            and self.writes == other.writes
        )

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """A container, a tuple or an object as it was seen."""

    live: Any = field(compare=False)
    keys: tuple[Any, ...]
    children: tuple[LeafSnapshot | TreeSnapshot, ...]


@dataclass(frozen=True, slots=True)
class AbstractLeaf:
    """A tensor or a number of which only the kind is known: it was seen in a trace."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device
    number: bool


Snapshot = LeafSnapshot | TreeSnapshot


def snapshot_of(value: Any, above: tuple[int, ...] = ()) -> Snapshot:
    """What a value is now, all the way down."""
    if isinstance(value, torch.Tensor):
        return LeafSnapshot(value, object_graph.writes(value))
    if id(value) in above or not (
        object_graph.is_container(value)
        or type(value) is tuple
        or hasattr(value, "_fields")
        or object_graph.is_object(value)
    ):
        return LeafSnapshot(value)
    if isinstance(value, set):
        return TreeSnapshot(value, tuple(sorted(value, key=repr)), ())
    if isinstance(value, dict):
        keys, items = tuple(value), list(value.values())
    else:
        named = dict(object_graph.items_of(value))
        keys, items = tuple(named), list(named.values())
    return TreeSnapshot(value, keys, tuple(snapshot_of(item, (*above, id(value))) for item in items))


def snapshot_at(root: Root) -> Snapshot:
    """What a name holds now."""
    return snapshot_of(root.held.get(root.key, ABSENT))


def leaves_of(snapshot: Snapshot, path: Path) -> Iterator[tuple[Path, LeafSnapshot]]:
    """Every leaf with its path."""
    if isinstance(snapshot, LeafSnapshot):
        yield path, snapshot
    else:
        for key, child in zip(snapshot.keys, snapshot.children, strict=False):
            yield from leaves_of(child, (*path, str(key)))


def leaves_at(roots: Iterable[Root], snapshots: Iterable[Snapshot]) -> Iterator[tuple[Path, LeafSnapshot]]:
    """Every leaf under several names with its path."""
    for root, snapshot in zip(roots, snapshots, strict=True):
        yield from leaves_of(snapshot, (root.path,))


def shown(path: Path) -> str:
    """A path as a name."""
    return ".".join(path)


def dtype_of(number: Any) -> torch.dtype:
    """The dtype that holds every Python number of a kind."""
    if isinstance(number, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(number, (int, torch.SymInt)):
        return torch.int64
    return torch.float64 if isinstance(number, (float, torch.SymFloat)) else torch.complex128


def slots_of(node: Node) -> Iterator[Slot]:
    """The slots of a form."""
    if isinstance(node, Slot):
        yield node
    elif isinstance(node, Tree):
        for child in node.children:
            yield from slots_of(child)


def build(node: Node, value_of: Callable[[Slot], Any]) -> Any:
    """What a form describes, over the values of its slots; containers and objects are filled in place."""
    if isinstance(node, Fixed):
        return node.value
    if isinstance(node, Slot):
        return value_of(node)
    items = [build(child, value_of) for child in node.children]
    if isinstance(node.live, tuple):
        return node.kind(*items) if hasattr(node.live, "_fields") else node.kind(items)
    if isinstance(node.live, set):
        object_graph.refill(node.live, node.keys)
    elif isinstance(node.live, (list, deque)):
        object_graph.refill(node.live, items)
    else:
        object_graph.refill(node.live, dict(zip(node.keys, items, strict=True)))
    return node.live


def initial(snapshot: Snapshot, node: Node) -> Iterator[tuple[Slot, torch.Tensor]]:
    """The first value of each slot of a form, from what was seen before the first call."""
    if isinstance(node, Tree) and isinstance(snapshot, TreeSnapshot):
        for child, inner in zip(snapshot.children, node.children, strict=True):
            yield from initial(child, inner)
    elif isinstance(node, Slot) and isinstance(snapshot, LeafSnapshot):
        value = snapshot.value
        if isinstance(value, torch.Tensor):
            yield node, value.detach().clone()
        else:
            yield node, torch.tensor(value, dtype=node.dtype)
