"""Lists whose length is known to a run of the graph only.

Where a branch or a loop on a tensor appends to a list, a graph holds it as buffers with room for as many
elements as there may be, and a count. The user's list then holds one `DynamicList` in the place of these
elements; what eager appends afterwards stands behind it until the next branch or iteration ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import host_scalars, object_fields, trace
from aotpipe.canonicalize.values.abstract_values import Leaf
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.structures import OptionalNode, is_leaf
from aotpipe.canonicalize.values.trace import refusal


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

    @property
    def holds_containers(self) -> bool:
        """Whether its elements, or what they hold, can be changed in place."""
        return _holds_containers(self.spec)


def _holds_containers(spec: pytree.TreeSpec) -> bool:
    if spec.is_leaf():
        return False
    is_frozen = getattr(getattr(spec.type, "__dataclass_params__", None), "frozen", False)
    # What tells a named tuple is its class, as torch's trees have it.
    is_named = isinstance(spec.context, type) and issubclass(spec.context, tuple)
    is_fixed = is_frozen or is_named or spec.type in (tuple, torch.Size, OptionalNode)
    return not is_fixed or any(map(_holds_containers, spec.children()))


class DynamicList:
    """The elements of a list, as buffers with room and a count.

    Attributes:
        buffers: For each computed leaf, its values along the first dim; zeros behind the last.
        count: How many elements there are, a traced number.
        is_full: Whether there are as many as it has room for, in every call.
        shared_buffers: The buffers, by identity, of the lists that in eager have elements of this one.
    """

    def __init__(
        self, kind: Kind, buffers: Sequence[torch.Tensor], count: torch.Tensor, *, is_full: bool = False
    ) -> None:
        self.kind = kind
        self.buffers = tuple(buffers)
        self.count = count
        self.is_full = is_full
        self.shared_buffers = {id(each): each for each in self.buffers}
        trace.watch_calls()

    def sharing(self, others: Iterable[DynamicList]) -> Self:
        """It, with elements that are those of other lists, too."""
        if self.kind.holds_containers:
            for each in others:
                self.shared_buffers |= each.shared_buffers
        return self

    def filled(self, buffer: torch.Tensor) -> torch.Tensor:
        """The rows of one of its buffers that hold elements."""
        if self.is_full:
            return buffer
        length = host_scalars.as_symbol(self.count)
        if isinstance(length, torch.SymInt):
            # What is stacked has as many rows as `len` says, where torch would take another size.
            torch._check(length >= 0)  # type: ignore[no-untyped-call]  # noqa: SLF001  # torch wants to be told
            torch._check(length <= buffer.shape[0])  # type: ignore[no-untyped-call]  # noqa: SLF001
        return buffer[:length]

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


def dynamic_lists(value: object) -> Iterator[DynamicList]:
    """The parts of a list or a dict of which a run knows the number of elements."""
    if isinstance(value, list | tuple | deque | dict):
        held = dict.values(value) if isinstance(value, dict) else value
        yield from (each for each in held if type(each) is DynamicList)


def note_shared(values: Sequence[object], *paths: Sequence[object]) -> None:
    """Remember that variables' lists may have the elements that they had on the paths to a place."""
    for value, *others in zip(values, *paths, strict=True):
        made = [each for each in leaves(value) if type(each) is DynamicList]
        if any(each.kind.holds_containers for each in made):
            before = [each for other in others for each in leaves(other) if type(each) is DynamicList]
            for each in made:
                each.sharing(before)


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


def beside(flags: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """Flags of elements, in a shape that broadcasts to those of a buffer."""
    return flags.reshape(-1, *[1] * (buffer.dim() - 1))
