"""Lists whose length is known to a run of the graph only.

Where a branch or a loop on a tensor appends to a list, a graph holds it as buffers with room for as many
elements as there may be, and a count. The user's list then holds one `DynamicList` in the place of these
elements; what eager appends afterwards stands behind it until the next branch or iteration ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, Self

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import abstract_values, host_scalars, object_fields, structures, trace
from aotpipe.canonicalize.values.abstract_values import (
    UNDEFINED,
    AbstractValue,
    Incompatible,
    Leaf,
    Undefined,
    is_same,
)
from aotpipe.canonicalize.values.chosen_object import ChosenObject, is_object
from aotpipe.canonicalize.values.structures import is_leaf
from aotpipe.canonicalize.values.trace import refusal


class OtherStructures(Incompatible):
    """Elements are tuples of other lengths, dicts of other keys or objects of other classes."""


def sym_max(left: Any, right: Any) -> Any:
    """The larger of two sizes: one of them, where that is known of all the sizes that they may have."""
    if statically_known_true(left >= right):
        return left
    return right if statically_known_true(right >= left) else _sym_max(left, right)


# torch gives it no types.
_sym_max: Final[Callable[[Any, Any], Any]] = torch.sym_max


class Assumed(int):
    """A room for elements that nothing proves to be enough: the program asserts that it is."""

    said: str

    def __new__(cls, room: int, said: str) -> Self:
        """Take what an assert says."""
        made = super().__new__(cls, room)
        made.said = said
        return made


@dataclass(frozen=True, slots=True)
class Kind:
    """What a growing list holds.

    Attributes:
        capacity: How many elements it may have: an int or a SymInt.
        leaves: Of an element: a `Leaf` where the graph computes it, else its value.
    """

    capacity: Any
    spec: pytree.TreeSpec
    leaves: tuple[object, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._key == other._key

    def __hash__(self) -> int:
        return hash(str(self.capacity))

    @property
    def _key(self) -> tuple[object, ...]:
        forms = (leaf.form if isinstance(leaf, Leaf) else leaf for leaf in self.leaves)
        return (str(self.capacity), self.spec, tuple(forms))

    @property
    def computed(self) -> list[Leaf]:
        """The leaves that the graph computes."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Leaf)]


class DynamicList:
    """The elements of a list, as buffers with room and a count.

    Attributes:
        buffers: For each computed leaf, its values along the first dim; zeros behind the last.
        count: How many elements there are, a traced number.
        is_full: Whether there are as many as it has room for, in every call.
    """

    def __init__(
        self, kind: Kind, buffers: Sequence[torch.Tensor], count: torch.Tensor, *, is_full: bool = False
    ) -> None:
        self.kind = kind
        self.buffers = tuple(buffers)
        self.count = count
        self.is_full = is_full
        trace.watch_calls()

    def filled(self, buffer: torch.Tensor) -> torch.Tensor:
        """The rows of one of its buffers that hold elements."""
        return buffer if self.is_full else buffer[: self.count]

    def element(self, pick: Any) -> Any:
        """An element, where `pick` takes it out of a buffer."""
        found = iter(self.buffers)
        made: list[Any] = []
        for leaf in self.kind.leaves:
            part: Any = pick(next(found)) if isinstance(leaf, Leaf) else leaf
            if isinstance(leaf, Leaf) and leaf.number:
                part = host_scalars.as_host_scalar(part.clone())
            made.append(ChosenObject(leaf.options, part) if isinstance(leaf, Leaf) and leaf.options else part)
        object_fields.register_classes(self.kind.spec)
        return pytree.tree_unflatten(made, self.kind.spec)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return trace.operators().call_with_list(func, args, kwargs or {})

    def _refuse(self, *_: object, **__: object) -> Any:
        raise refusal(
            "a list whose length a tensor decides is used in a way that no graph can",
            "stack it, index it, loop over it with `for`, or ask for its length",
            "list-grows",
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __iter__ = __call__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __getitem__ = __len__ = __int__ = __float__ = __index__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


def _flatten(value: DynamicList) -> tuple[list[Any], Kind]:
    return [*value.buffers, value.count], value.kind


def _unflatten(children: Any, kind: Kind) -> DynamicList:
    *buffers, count = children
    return DynamicList(kind, buffers, count)


pytree.register_pytree_node(DynamicList, _flatten, _unflatten, serialized_type_name="aotpipe.Growing")


def is_dynamic_list(value: object) -> bool:
    """Whether a value is a list, or a deque, whose length is known to a run only."""
    return (
        isinstance(value, list | deque)
        and type(value) in (list, deque)
        and any(type(each) is DynamicList for each in value)
    )


def holds_dynamic_list(value: object) -> bool:
    """Whether a value is such a list, or has one in its lists, tuples and dicts."""
    return any(type(each) is DynamicList for each in leaves(value))


def leaves(value: object) -> list[Any]:
    """The leaves of a value, where a value that may be None is one, and so are elements of a dynamic list."""
    found = pytree.tree_leaves(value, lambda each: is_leaf(each) or type(each) is DynamicList)
    return [inner for each in found for inner in _inside(each)]


def _inside(leaf: Any) -> Iterable[Any]:
    """What torch takes for one leaf: a set and a `Counter` hold others."""
    if type(leaf) is set:
        return leaf
    return leaves(dict(leaf)) if type(leaf) is Counter else (leaf,)


def is_filled(items: Sequence[Any]) -> torch.Tensor:
    """Whether such a list has an element, as a traced bool."""
    if any(type(each) is not DynamicList for each in items):
        return torch.full((), True)
    flags = [each.count > 0 for each in items]
    return flags[0] if len(flags) == 1 else torch.stack(flags).any()


def slots(items: Sequence[Any]) -> Any:
    """How many elements a list may have: an int or a SymInt."""
    return sum(each.kind.capacity if type(each) is DynamicList else 1 for each in items)


def abstract_list(paths: Sequence[object], capacity: Any) -> AbstractValue | None:
    """The abstract value of a list that has other lengths on other paths; None for any other variable.

    Its capacity is the most that it has on a path where None is given.

    Raises:
        Incompatible: Its elements have no common abstract value.
    """
    known: list[list[Any]] = [each for each in paths if type(each) is list]
    if not known or len(known) < sum(not isinstance(each, abstract_values.Undefined) for each in paths):
        return None
    if len({len(each) for each in known}) == 1 and not any(map(is_dynamic_list, known)):
        return None
    return abstract_of_segments(known, capacity)[0]


def abstract_of_segments(known: Sequence[Sequence[Any]], capacity: Any) -> tuple[AbstractValue, Kind]:
    """The abstract value of what has these elements on different paths, and the kind of all elements.

    Raises:
        Incompatible: They have no common abstract value.
    """
    if capacity is None:
        capacity = reduce(sym_max, map(slots, known))
    kind = _kind([segment for each in known for segment in each], capacity)
    count = Leaf(torch.int64, (), torch.device("cpu"), number=True)
    room = int(capacity) if isinstance(capacity, Assumed) else capacity
    # Of objects, a buffer has their numbers: it is none of them itself.
    rows = (replace(each, shape=(room, *each.shape), number=False, options=()) for each in kind.computed)
    leaves = (*rows, count)
    spec = pytree.tree_structure([DynamicList(kind, [0] * len(kind.computed), 0)])  # type: ignore[list-item, arg-type]
    return AbstractValue(spec, leaves, fitted=lambda items: [fitted(items, kind)]), kind


def _kind(segments: Sequence[Any], capacity: Any) -> Kind:
    object_fields.register(list(segments))
    rows = [
        (each.kind.leaves, each.kind.spec)
        if type(each) is DynamicList
        else structures.flatten(each, of_leaves=True)
        for each in segments
    ]
    spec = structures.unified(rows, of_leaves=True)
    if spec is None:
        hint = _LENGTHS_HINT if _differ_in_length([spec for _, spec in rows]) else _FORM_HINT
        raise OtherStructures("holds elements of different structures", hint=hint, code="")
    columns = zip(*(structures.aligned(row, spec, UNDEFINED) for row in rows), strict=True)
    return Kind(capacity, spec, tuple(map(_column, structures.roles(spec), columns)))


_FORM_HINT: Final = "give its elements one form: numbers or tensors in the same places"
_LENGTHS_HINT: Final = (
    "put pairs into one list in place of lists (`pairs.append((key, value))`), or pad to one length with a "
    "number that nothing else has"
)


def _differ_in_length(specs: Sequence[pytree.TreeSpec]) -> bool:
    """Whether the first thing in which structures differ is how long a list or a tuple is."""
    first = specs[0]
    if any(spec.type is not first.type for spec in specs):
        return False
    if any(spec.num_children != first.num_children for spec in specs):
        return first.type in (list, tuple)
    columns = zip(*(spec.children() for spec in specs), strict=True)
    return any(_differ_in_length(column) for column in columns if any(spec != column[0] for spec in column))


def _column(role: structures.Role, column: Sequence[Any]) -> object:
    if role == "flag":
        return abstract_values.FLAG
    leaves = [leaf for leaf in column if not isinstance(leaf, Undefined)]
    held = [leaf for leaf in leaves if isinstance(leaf, Leaf)]
    plain = [leaf for leaf in leaves if not isinstance(leaf, Leaf)]
    if plain:
        try:
            found = abstract_values.join_leaves(plain)
        except Incompatible as error:
            raise Incompatible(f"holds an element that {error}", hint=error.hint) from None
        # Of a variable with other values on other paths, a tensor without dims fills one that has some; of a
        # list it is an element with a shape of its own.
        if isinstance(found, Leaf) and (found.cut is not None or found.filled):
            raise Incompatible("holds tensors of different shapes", code="")
        if not isinstance(found, Leaf):
            if not held:
                return found
            if not held[0].options or not is_object(found):
                raise Incompatible("holds elements of different kinds", code="")
            found = replace(held[0], options=(found,))
        held.append(found)
    first = held[0]
    for other in held[1:]:
        if tuple(map(str, other.shape)) != tuple(map(str, first.shape)):
            raise Incompatible("holds tensors of different shapes", code="")
        if bool(other.options) is not bool(first.options):
            raise Incompatible("holds elements of different kinds", code="")
        more = [each for each in other.options if not any(is_same(each, own) for own in first.options)]
        first = replace(first, options=(*first.options, *more))
        dtype = host_scalars.promoted(first.dtype, other.dtype)
        promoted = first.promoted or other.promoted or first.dtype != other.dtype
        first = replace(first, dtype=dtype, number=first.number and other.number, promoted=promoted)
    if first.promoted:
        note_promoted("an element of a list", first.dtype)
    return first


def note_promoted(what: str, dtype: torch.dtype) -> None:
    """Say that a value which a tensor chooses among several has one dtype whichever it is."""
    trace.note(
        "warning",
        "dtype-promoted",
        f"{what} has another dtype than the others: in the program it is {dtype} whichever is chosen",
    )


def fitted(items: Sequence[Any], kind: Kind) -> DynamicList:
    """The elements of a list as one `DynamicList` of a kind that has room for them."""
    capacity = int(kind.capacity) if isinstance(kind.capacity, Assumed) else kind.capacity
    split = next((at for at, each in enumerate(items) if type(each) is DynamicList), len(items))
    count: Any = split
    start = [_leaves(each, kind) for each in items[:split]]
    at = [index for index, leaf in enumerate(kind.leaves) if isinstance(leaf, Leaf)]
    buffers = [
        _filled(leaf, [_tensor(leaf, row[index]) for row in start], capacity)
        for index, leaf in zip(at, kind.computed, strict=True)
    ]
    places = torch.arange(capacity)
    for each in items[split:]:
        if type(each) is not DynamicList:
            row = _leaves(each, kind)
            new = [_tensor(leaf, row[index]) for index, leaf in zip(at, kind.computed, strict=True)]
            buffers = [
                torch.where(beside(places == count, buffer), value, buffer)
                for buffer, value in zip(buffers, new, strict=True)
            ]
            count = count + 1
        elif isinstance(count, int) and count == 0:
            buffers = [_grown(given, capacity, each.kind.capacity) for given in _of_kind(each, kind)]
            count = each.count
        else:
            buffers = [
                _joined(buffer, given, places - count, each.kind.capacity)
                for buffer, given in zip(buffers, _of_kind(each, kind), strict=True)
            ]
            count = count + each.count
    if isinstance(count, int):
        count = host_scalars.as_host_scalar(torch.full((), count, dtype=torch.int64))
    if isinstance(kind.capacity, Assumed):
        trace.operators().add_assert(count <= capacity, kind.capacity.said)
    return DynamicList(kind, buffers, count)


def _leaves(element: Any, kind: Kind) -> list[Any]:
    """The leaves of an element, where those of a kind are."""
    return structures.aligned(structures.flatten(element, of_leaves=True), kind.spec, UNDEFINED)


def _of_kind(found: DynamicList, kind: Kind) -> list[torch.Tensor]:
    """The buffers of a dynamic list, for a kind that has its own leaves or wider ones."""
    buffers = iter(found.buffers)
    own = [_Row(leaf, next(buffers)) if isinstance(leaf, Leaf) else leaf for leaf in found.kind.leaves]
    places = structures.aligned((own, found.kind.spec), kind.spec, UNDEFINED)
    return [
        _wider(leaf, each, found.kind.capacity)
        for leaf, each in zip(kind.leaves, places, strict=True)
        if isinstance(leaf, Leaf)
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    """A leaf of a dynamic list, and its buffer."""

    leaf: Leaf
    buffer: torch.Tensor


def _wider(leaf: Leaf, found: Any, capacity: Any) -> torch.Tensor:
    """The buffer of a leaf for one that has its values, or the same value for each element."""
    if not isinstance(found, _Row):
        return _tensor(leaf, found).expand((capacity, *leaf.shape)).to(leaf.dtype)
    if found.leaf.options != leaf.options:
        numbers = torch.stack([_tensor(leaf, each) for each in found.leaf.options])
        return numbers[found.buffer].to(leaf.dtype)
    return found.buffer.to(leaf.dtype)


def _tensor(leaf: Leaf, value: object) -> torch.Tensor:
    (tensor,) = leaf.of(value)
    return tensor


def _filled(leaf: Leaf, rows: Sequence[torch.Tensor], capacity: Any) -> torch.Tensor:
    if not rows:
        return torch.zeros((capacity, *leaf.shape), dtype=leaf.dtype, device=leaf.device)
    return _grown(torch.stack(list(rows)), capacity, len(rows))


def _grown(buffer: torch.Tensor, capacity: Any, held: Any) -> torch.Tensor:
    if str(capacity) == str(held):
        return buffer
    if statically_known_true(capacity < held):
        # A branch in the last iteration that there can be has room for one more.
        return buffer[:capacity]
    rest = torch.zeros((capacity - held, *buffer.shape[1:]), dtype=buffer.dtype, device=buffer.device)
    return torch.cat([buffer, rest])


def _joined(buffer: torch.Tensor, given: torch.Tensor, places: torch.Tensor, capacity: Any) -> torch.Tensor:
    """Append elements to those of a buffer; `places` counts from the end of the buffer's own."""
    moved = given.index_select(0, places.clamp(0, capacity - 1))
    return torch.where(beside((places >= 0) & (places < capacity), buffer), moved, buffer)


def beside(flags: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """Flags of elements, in a shape that broadcasts to those of a buffer."""
    return flags.reshape(-1, *[1] * (buffer.dim() - 1))
