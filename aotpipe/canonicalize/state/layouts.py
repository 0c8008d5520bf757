"""The forms of what a model keeps in Python: what is fixed, and what is a tensor that calls hand on.

`snapshot_of(value)` tells what a value holds now, all the way down. A form (`Node`) says the same with a
`Slot` for each tensor and number that changes; `build` makes the value of a form again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import torch

from aotpipe.canonicalize.values import dynamic_list, dynamic_table, element_kinds, trace
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.model import object_graph
from aotpipe.model.object_graph import Root

NUMBERS: Final = (bool, int, float, complex)


def is_number(value: object) -> bool:
    """Whether a value is a number of Python's; a member of an `IntEnum` is the member that it is."""
    return isinstance(value, NUMBERS) and not isinstance(value, Enum)


KINDS: Final = (torch.bool, torch.int64, torch.float64, torch.complex128)
"""The dtypes of numbers, each of which holds those before it."""
Path = tuple[str, ...]


class ABSENT:
    """Stands for the value of a name that is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A value as it was seen, with the count of its writes; in a form, a value that is part of it."""

    value: Any
    writes: int = 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Leaf)
            and object_graph.is_same(self.value, other.value)
            and self.writes == other.writes
        )

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that calls hand on; `number` where the model takes it for a Python number.

    Of one of several `options` it is the number. As the value of a `Leaf` it has no name: it is a tensor or a
    number of a trace, of which only the kind is known.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device
    number: bool
    name: str = ""
    options: tuple[Any, ...] = ()

    def position(self, value: object) -> int:
        """The number of an object among those that it may be; their count where it is none of them."""
        same = (at for at, each in enumerate(self.options) if object_graph.is_same(each, value))
        return next(same, len(self.options))


@dataclass(frozen=True, slots=True)
class Tree:
    """A container, a tuple or an object; `live` is the very one that is filled for a call."""

    kind: type
    keys: Collection[Any]
    children: tuple[Leaf | Slot | Tree, ...]
    live: Any = field(compare=False)

    @property
    def names(self) -> list[str]:
        """The keys as parts of a path."""
        return object_graph.names_of(self.keys)


@dataclass(frozen=True, slots=True)
class Growing(Tree):
    """A list, a deque, a dict or a set of which only a run knows the length: slots for its elements.

    The last slot is their number. `elements` is what they are, and for how many there is room.
    """

    elements: dynamic_list.Kind

    @classmethod
    def of(cls, tree: Tree, elements: dynamic_list.Kind, name: str) -> Growing:
        """What stands for a container of this name."""
        buffers = tuple(
            Slot(
                leaf.dtype,
                (elements.capacity, *map(int, leaf.shape)),
                leaf.device,
                number=False,
                name=f"{name}.{at}",
            )
            for at, leaf in enumerate(elements.computed)
        )
        count = Slot(torch.int64, (), torch.device("cpu"), number=True, name=f"{name}.count")
        keys = (*(str(at) for at in range(len(buffers))), "count")
        return cls(tree.kind, keys, (*buffers, count), tree.live, elements)

    def tensors(self, live: Any) -> list[torch.Tensor]:
        """The values of the slots for what a container holds."""
        elements = self.elements
        if not trace.is_on():
            # Nothing is asserted of what a model holds before its first call.
            elements = replace(elements, capacity=int(elements.capacity))
        found = element_kinds.fitted(segments_of(live), elements)
        return [*found.buffers, found.count]


def segments_of(live: Any) -> list[Any]:
    """The elements of a container, those of which only a run knows the number as one."""
    return list(live) if isinstance(live, list | deque) else dynamic_table.segments(live)


Node = Leaf | Slot | Tree
Snapshot = Leaf | Tree


def snapshot_of(value: Any, *, above: tuple[int, ...] = ()) -> Snapshot:
    """What a value is now."""
    if isinstance(value, torch.Tensor):
        return Leaf(value, object_graph.writes(value))
    if type(value) in (dynamic_list.DynamicList, ChosenObject):
        return Leaf(value)
    if id(value) in above or not (
        object_graph.is_container(value)
        or type(value) is tuple
        or hasattr(value, "_fields")
        or object_graph.is_object(value)
    ):
        return Leaf(value)
    if isinstance(value, set):
        return Tree(set, frozenset(value), (), value)
    held = value if isinstance(value, dict) else dict(object_graph.items_of(value))
    children = tuple(snapshot_of(item, above=(*above, id(value))) for item in held.values())
    return Tree(type(value), tuple(held), children, value)


def snapshot_at(root: Root) -> Snapshot:
    """What a name holds now."""
    return snapshot_of(root.held.get(root.key, ABSENT))


def leaves_of(node: Node, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf with its path."""
    if not isinstance(node, Tree):
        yield path, node
    else:
        for name, child in zip(node.names, node.children, strict=False):
            yield from leaves_of(child, (*path, name))


def map_leaves(
    function: Callable[[Any, Path], Leaf | Slot],
    node: Node,
    path: Path = (),
    growing: Mapping[Path, dynamic_list.Kind] = MappingProxyType({}),
) -> Any:
    """The same tree with every leaf replaced by what a function makes of the leaf and its path.

    Of a container that is `growing` its elements are slots.
    """
    if not isinstance(node, Tree):
        return function(node, path)
    if path in growing:
        return Growing.of(node, growing[path], shown(path))
    # A set has keys alone.
    children = zip(node.names, node.children, strict=False)
    made = (map_leaves(function, child, (*path, name), growing) for name, child in children)
    return replace(node, children=tuple(made))


def leaves_at(roots: Iterable[Root], snapshots: Iterable[Snapshot]) -> Iterator[tuple[Path, Leaf]]:
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
    return (leaf for _, leaf in leaves_of(node) if isinstance(leaf, Slot))


def build(node: Node, value_of: Callable[[Slot], Any]) -> Any:
    """What a form describes, over the values of its slots; containers and objects are filled in place."""
    if isinstance(node, Leaf):
        return node.value
    if isinstance(node, Slot):
        return value_of(node)
    items = [build(child, value_of) for child in node.children]
    if isinstance(node, Growing):
        found = dynamic_list.DynamicList(node.elements, items[:-1], items[-1])
        made = [found] if isinstance(node.live, list | deque) else dynamic_table.of_segment(node.live, found)
        object_graph.refill(node.live, made)
        return node.live
    if isinstance(node.live, tuple):
        return node.kind(*items) if hasattr(node.live, "_fields") else node.kind(items)
    if isinstance(node.live, set):
        object_graph.refill(node.live, node.keys)
    elif isinstance(node.live, (list, deque)):
        object_graph.refill(node.live, items)
    else:
        object_graph.refill(node.live, dict(zip(node.keys, items, strict=True)))
    return node.live


def initial(snapshot: Node, node: Node) -> Iterator[tuple[Slot, torch.Tensor]]:
    """The first value of each slot of a form, from what was seen before the first call."""
    if isinstance(node, Growing):
        yield from (
            (slot, value) for slot, value in zip(slots_of(node), node.tensors(node.live), strict=True)
        )
    elif isinstance(node, Tree) and isinstance(snapshot, Tree):
        for child, inner in zip(snapshot.children, node.children, strict=True):
            yield from initial(child, inner)
    elif isinstance(node, Slot) and isinstance(snapshot, Leaf):
        value = snapshot.value
        if isinstance(value, torch.Tensor):
            yield node, value.detach().clone()
        else:
            value = node.position(value) if node.options else value
            yield node, torch.tensor(value, dtype=node.dtype)
