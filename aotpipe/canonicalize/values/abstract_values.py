"""What a variable holds, as the leaves that a graph can compute and the structure around them.

`join_values(values)` finds for the values that a variable has on several paths one structure whose leaves are
tensors where the paths differ: numbers become 0-d tensors, which promote as Python numbers do, dtypes are
promoted, and a variable without a value takes zeros, which nothing reads (`rewrite.definite_assignment`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, NoReturn

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import (
    chosen_object,
    host_scalars,
    object_fields,
    structures,
    tensor_subclasses,
    trace,
)
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.structures import is_leaf
from aotpipe.canonicalize.values.tensor_subclasses import Subclass


class Undefined:
    """A variable that has no value yet; using it raises what Python would."""

    __slots__ = ()

    def _raise(self, *_: object, **__: object) -> NoReturn:
        raise UnboundLocalError("a variable has no value on the path that was taken")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __len__ = __iter__ = __getitem__ = __call__ = _raise
    __float__ = __int__ = __index__ = __neg__ = __matmul__ = __rmatmul__ = __setitem__ = _raise


UNDEFINED: Final = Undefined()


_NO_DIMS_HINT: Final = (
    "give it the same dims on every path: `torch.zeros_like(x)` for `torch.tensor(0.0)`, `s.expand_as(x)` "
    "for `s`; a number (`0.0`) takes the place of any shape"
)


class Incompatible(Exception):
    """The values of a variable have no common abstract value; the message completes "NAME ..."."""

    def __init__(
        self, message: str, *, hint: str = "give it one form on every path", code: str = "paths-differ"
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


LONGER_HINT: Final = (
    "in a loop, append the parts to a list and `torch.cat` it afterwards; elsewhere, pad to the largest size "
    "and keep a mask"
)


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a region assigns.

    Attributes:
        get, set: Read and write them all.
        watched: Gives the names and values of what else the region may change in place.
        dead: The places of those that nothing reads afterwards, nor the next iteration of a loop.
        is_unread: Whether nothing reads afterwards what a container holds.
        changed: The containers that the region changes in place, of which some of the variables are contents.
    """

    get: Callable[[], tuple[Any, ...]]
    set: Callable[[tuple[Any, ...]], None]
    names: Sequence[str]
    watched: Callable[[], Sequence[tuple[str, object]]]
    dead: Collection[int] = ()
    is_unread: Callable[[object], bool] | None = None
    changed: Sequence[Any] = ()

    @classmethod
    def of_list(
        cls, cell: list[Any], *names: str, watched: Callable[[], Sequence[tuple[str, object]]] = tuple
    ) -> Variables:
        """The elements of a list."""
        return cls(lambda: tuple(cell), lambda values: cell.__setitem__(slice(None), values), names, watched)

    def with_item(self, cell: list[Any], name: str) -> Variables:
        """These, and the one element of a list."""

        def set_(values: tuple[Any, ...]) -> None:
            self.set(values[:-1])
            cell[0] = values[-1]

        return Variables(lambda: (*self.get(), cell[0]), set_, (*self.names, name), self.watched, self.dead)

    def live(self) -> tuple[Any, ...]:
        """Read those that something reads; the others have no value."""
        return tuple(UNDEFINED if at in self.dead else value for at, value in enumerate(self.get()))


def unwrap_present(values: Any) -> Any:
    """Values with what is known to be there in place of what may be None."""
    return pytree.tree_map(
        lambda leaf: (
            unwrap_present(leaf.payload_of_optional)
            if isinstance(leaf, OptionalValue) and leaf.is_optional_present
            else leaf
        ),
        values,
        is_leaf=is_leaf,
    )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor of a graph in place of a leaf: its dtype, and the shape that a number takes.

    `number` is a tensor that stands for a Python number: it is never written in place. `optional` has a flag
    before it, that tells whether it is there or None. `filled` is a tensor with dims that is a number on some
    path, and filled with it there. `promoted` is of another dtype on some path. `cut` is a dim of which only
    a run knows the size: the shape has the most there, and the size goes with the tensor. Of one of several
    objects, the `options`, it is the number. `subclass` is that of tensors which it is of on every path.
    """

    dtype: torch.dtype
    shape: tuple[int | torch.SymInt, ...]
    device: torch.device
    number: bool
    optional: bool = False
    filled: bool = False
    promoted: bool = False
    cut: int | None = None
    options: tuple[Any, ...] = ()
    subclass: Subclass | None = None

    @property
    def form(self) -> tuple[object, ...]:
        """Equal for leaves whose tensors are of one kind; comparing sizes themselves would guard on them."""
        return (
            self.dtype,
            tuple(map(str, self.shape)),
            self.number,
            self.optional,
            self.cut,
            self.options,
            self.subclass,
        )

    def of(self, value: object) -> list[torch.Tensor]:
        """A leaf's value as that tensor, after its flag and before its size if it has these."""
        if not self.optional:
            return self._sized(value)
        if isinstance(value, OptionalValue):
            return [value.flag_of_optional, *self._sized(value.payload_of_optional)]
        present = not isinstance(value, Undefined) and value is not None
        flag = torch.full((), present, dtype=torch.bool, device=self.device)
        return [flag, *self._sized(value if present else UNDEFINED)]

    def taken(self, next_tensor: Callable[[], torch.Tensor]) -> Any:
        """The leaf's value, from the tensors that `of` gave."""
        flag = next_tensor() if self.optional else None
        tensor = host_scalars.as_host_scalar(next_tensor()) if self.number else next_tensor()
        if self.cut is not None:
            size = host_scalars.as_symbol(host_scalars.as_host_scalar(next_tensor()))
            for holds in (size >= 0, size <= self.shape[self.cut]):
                torch._check(holds)  # type: ignore[no-untyped-call]  # noqa: SLF001  # torch wants to be told
            tensor = tensor.narrow(self.cut, 0, size)
        tensor = tensor if self.subclass is None else self.subclass.of(tensor)
        value = ChosenObject(self.options, tensor) if self.options else tensor
        return value if flag is None else OptionalValue(flag, value)

    def stand_ins(self) -> list[torch.Tensor]:
        """Tensors of the kinds that `of` gives."""
        flag = [torch.empty((), dtype=torch.bool, device=self.device)] if self.optional else []
        size = [] if self.cut is None else [torch.empty((), dtype=torch.int64)]
        return [*flag, torch.empty(self.shape, dtype=self.dtype, device=self.device), *size]

    def _sized(self, value: object) -> list[torch.Tensor]:
        if self.cut is None:
            return [self._tensor(value)]
        if not isinstance(value, torch.Tensor) or value.dim() != len(self.shape):
            capacity: Any = self.shape[self.cut]
            return [self._tensor(value), torch.full((), capacity, dtype=torch.int64)]
        value = tensor_subclasses.plain(value)
        size: Any = value.shape[self.cut]
        behind = [0, 0] * (value.dim() - 1 - self.cut)
        cast = value if value.dtype == self.dtype else value.to(self.dtype)
        padded = torch.constant_pad_nd(cast, [*behind, 0, self.shape[self.cut] - size])
        return [padded, torch.full((), size, dtype=torch.int64)]

    def _tensor(self, value: object) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            value = tensor_subclasses.plain(value)
            cast = value if value.dtype == self.dtype else value.to(self.dtype)
            return cast if cast.dim() == len(self.shape) else cast.expand(self.shape)
        if isinstance(value, Undefined):
            return torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        number: Any = value
        if self.options:
            if type(value) is ChosenObject:
                return value.number_in(self._number_of)
            number = self._number_of(value)
        full: torch.Tensor = torch.full(self.shape, number, dtype=self.dtype, device=self.device)
        return full

    def _number_of(self, value: object) -> int:
        return next(number for number, each in enumerate(self.options) if is_same(each, value))


@dataclass(frozen=True, slots=True)
class AbstractValue:
    """A variable's structure; its leaves are a `Leaf` where a graph computes them, else their value.

    `may_lack`: parts of it may be None (`structures.OptionalNode`). `fitted` brings a value into that
    structure, where it may have another one, and `made` gives the value of that structure.
    """

    spec: pytree.TreeSpec
    leaves: tuple[object, ...]
    may_lack: bool = False
    fitted: Callable[[Any], Any] | None = None
    made: Callable[[Any], Any] | None = None

    @property
    def computed(self) -> list[Leaf]:
        """The leaves that the graph computes."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Leaf)]

    @property
    def is_constant(self) -> bool:
        """Whether no leaf is computed by the graph."""
        return not self.computed

    def tensors(self, value: Any) -> list[torch.Tensor]:
        """The graph's part of a value of this abstract value."""
        return [tensor for leaf, each in self.parts(value) for tensor in leaf.of(each)]

    def parts(self, value: object) -> list[tuple[Leaf, object]]:
        """The leaves that the graph computes, each with its part of a value of this abstract value."""
        given = self.places(self.fitted(value) if self.fitted and not isinstance(value, Undefined) else value)
        return [(leaf, each) for leaf, each in zip(self.leaves, given, strict=True) if isinstance(leaf, Leaf)]

    def places(self, value: object) -> list[Any]:
        """What a value of that structure has in the places of the leaves."""
        if isinstance(value, Undefined):
            return [UNDEFINED] * len(self.leaves)
        if self.may_lack:
            return structures.aligned(structures.flatten(value, of_leaves=False), self.spec, UNDEFINED)
        return pytree.tree_leaves(value, is_leaf)

    def value(self, next_tensor: Callable[[], torch.Tensor]) -> Any:
        """The value with the graph's part taken from tensors, in turn."""
        made = [leaf.taken(next_tensor) if isinstance(leaf, Leaf) else leaf for leaf in self.leaves]
        whole = UNDEFINED if self.leaves == (UNDEFINED,) else pytree.tree_unflatten(made, self.spec)
        return self.made(whole) if self.made else whole

    def stand_ins(self) -> list[torch.Tensor]:
        """Tensors of the kinds that `tensors` gives."""
        return [tensor for leaf in self.computed for tensor in leaf.stand_ins()]


FLAG: Final = Leaf(torch.bool, (), torch.device("cpu"), number=True)
"""Whether a part of a structure is there, or None."""


def join_values(values: Sequence[object]) -> AbstractValue:
    """The abstract value that all of a variable's values fit.

    Raises:
        Incompatible: There is none.
    """
    known = [value for value in values if not isinstance(value, Undefined)]
    if not known:
        return AbstractValue(pytree.tree_structure(0), (UNDEFINED,))
    missing = len(known) < len(values)
    rows = [structures.flatten(value, of_leaves=False) for value in known]
    spec = structures.unified(rows, of_leaves=False)
    if spec is None:
        first = rows[0][1]
        other = next((value for value, (_, each) in zip(known, rows, strict=True) if each != first), known[0])
        raise _of_other_structures(known[0], other)
    for inner in () if spec.is_leaf() else spec.children():
        if (kind := structures.open_beside_none(inner)) is not None:
            # Each test of one would be a path of its own, and so would each phase of a state that holds it.
            raise Incompatible(f"is None on one path and a {kind.__name__} on another")
    columns = zip(*(structures.aligned(row, spec, UNDEFINED) for row in rows), strict=True)
    pairs = zip(structures.roles(spec), columns, strict=True)
    leaves = tuple(_join_column(role, column, missing=missing) for role, column in pairs)
    return AbstractValue(spec, leaves, may_lack=structures.may_lack(spec))


def _join_column(role: structures.Role, column: Sequence[Any], *, missing: bool) -> object:
    if role == "flag":
        return FLAG
    if role == "plain":
        return join_leaves(column, missing=missing, computed=False)
    return join_leaves([leaf for leaf in column if not isinstance(leaf, Undefined)])


def _of_other_structures(one: Any, other: Any) -> Incompatible:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() != other.keys():
        keys = sorted(map(repr, one.keys() ^ other.keys()))
        hint = "give the key on every path: a tensor of zeros where it has no value, and a flag beside it"
        return Incompatible(f"is a dict with the key {', '.join(keys)} on some paths only", hint=hint)
    code = "list-grows" if type(one) is type(other) is tuple else "paths-differ"
    return Incompatible(f"is {_kind(one)} on one path and {_kind(other)} on another", code=code)


def _held(value: Any) -> Any:
    return value.payload_of_optional if isinstance(value, OptionalValue) else value


def join_leaves(leaves: Sequence[Any], *, missing: bool = True, computed: bool = True) -> object:
    """The leaf that all of these fit: a `Leaf`, or a value that is no graph's.

    `missing` says that a path has none, `computed` that the graph is to compute even equal numbers.

    Raises:
        Incompatible: There is none.
    """
    first = leaves[0]
    if (special := _join_special(leaves)) is not None:
        return special
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    # A constant is computed too where a flag goes with it.
    is_computed = computed and all(map(_is_of_a_graph, leaves))
    if not is_computed and not tensors and all(is_same(leaf, first) for leaf in leaves[1:]):
        return first
    if all(leaf is first for leaf in leaves[1:]) and not missing:
        return first
    for leaf in leaves:
        if not _is_of_a_graph(leaf):
            raise _of_no_graph(leaf, next(each for each in leaves if not is_same(each, leaf)))
    typed = [leaf for leaf in tensors if not host_scalars.is_host_scalar(leaf)]
    # A number fills the place of a tensor that has dims. A tensor without dims has another sum and count.
    tensors = typed if any(leaf.dim() for leaf in typed) else tensors
    shape, cut = _join_shapes(tensors)
    dtype = _join_dtypes(leaves, tensors, typed)
    return Leaf(
        dtype,
        shape,
        tensors[0].device if tensors else torch.device("cpu"),
        number=host_scalars.are_host_scalars(leaves),
        filled=0 < len(tensors) < len(leaves) and tensors[0].dim() > 0,
        promoted=any(tensor.dtype != dtype for tensor in typed) if typed else has_ranks(leaves),
        cut=cut,
        subclass=_join_subclasses(leaves),
    )


def _join_subclasses(leaves: Sequence[Any]) -> Subclass | None:
    """The subclass of tensors that all are of; numbers and plain tensors have other operators."""
    found = [tensor_subclasses.subclass_of(leaf) for leaf in leaves if not isinstance(leaf, Undefined)]
    other = next((each for each in found if each != found[0]), found[0]) if found else None
    if not found or other == found[0]:
        return other
    one, two = (str(each or "a plain tensor") for each in (found[0], other))
    raise Incompatible(f"is {one} on one path and {two} on another", hint="give it one class: `.as_subclass`")


def _join_special(leaves: Sequence[Any]) -> Leaf | None:
    return _join_objects(leaves) or _join_optional(leaves)


def _join_objects(leaves: Sequence[Any]) -> Leaf | None:
    """The leaf of several objects, of which a run knows which one it is; None for anything else."""
    options = chosen_object.options(leaves, is_same)
    if options is None or (len(options) == 1 and type(leaves[0]) is not ChosenObject):
        return None
    return Leaf(torch.int64, (), torch.device("cpu"), number=True, options=options)


def _of_no_graph(leaf: object, other: object) -> Incompatible:
    said = f"is {_kind(leaf)} on one path and {_kind(other)} on another"
    if type(leaf) is type(other) and object_fields.is_open(leaf):
        trace.current().needs.add("joins_objects")
    if dataclasses.is_dataclass(leaf) and type(leaf) is type(other):
        hint = f"declare it `@dataclass(frozen=True)`, or set the fields of one {type(leaf).__name__}"
        return Incompatible(f"is one {type(leaf).__name__} on one path and another one on another", hint=hint)
    return Incompatible(said)


def _join_optional(leaves: Sequence[Any]) -> Leaf | None:
    """The leaf of values of which some are None or may be; None where none of them is."""
    there = [_held(leaf) for leaf in leaves if leaf is not None]
    if not there or not (len(there) < len(leaves) or any(isinstance(leaf, OptionalValue) for leaf in leaves)):
        return None
    found = join_leaves(there) if all(map(_is_of_a_graph, there)) else None
    if not isinstance(found, Leaf):
        other = next(leaf for leaf in leaves if leaf is not None)
        raise Incompatible(f"is None on one path and {_kind(other)} on another")
    return replace(found, optional=True)


def _join_shapes(tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], int | None]:
    """The shape that all tensors fit, and the dim in which they differ: there it has the greatest size."""
    shape = tuple(tensors[0].shape) if tensors else ()
    shapes = {tuple(map(str, tensor.shape)) for tensor in tensors}
    if len(shapes) < 2:
        return shape, None
    cut = _other_dim(shapes)
    sizes = [] if cut is None else [host_scalars.most(tensor.shape[cut]) for tensor in tensors]
    known = [size for size in sizes if size is not None]
    if cut is None or len(known) < len(sizes):
        listed = " and ".join(f"({', '.join(sizes)})" for sizes in sorted(shapes))
        said = f"has the shapes {listed} on different paths"
        if "()" in listed:
            raise Incompatible(said, hint=_NO_DIMS_HINT)
        raise Incompatible(said) if cut is None else Incompatible(said, hint=LONGER_HINT)
    return (*shape[:cut], max(known), *shape[cut + 1 :]), cut


def _join_dtypes(
    leaves: Sequence[Any], tensors: Sequence[torch.Tensor], typed: Sequence[torch.Tensor]
) -> torch.dtype:
    """The dtype that the tensors promote to; a number takes it where it can hold the number's kind."""
    dtype = reduce(_promoted, (tensor.dtype for tensor in typed or tensors)) if tensors else torch.bool
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) and host_scalars.rank(_dtype(leaf)) > (
            host_scalars.rank(dtype) if tensors else -1
        ):
            dtype = _promoted(dtype, _dtype(leaf))
    return dtype


def _other_dim(shapes: Collection[tuple[str, ...]]) -> int | None:
    if len(set(map(len, shapes))) > 1:
        return None
    found = [at for at, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    return found[0] if len(found) == 1 else None


def has_ranks(numbered: Sequence[Any]) -> bool:
    """Whether numbers are of several kinds, other than the 0 that a sum begins with."""
    begun = (leaf for leaf in numbered if isinstance(leaf, torch.Tensor) or type(leaf) is not int or leaf)
    return len({host_scalars.rank(_dtype(leaf)) for leaf in begun}) > 1


def _promoted(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    try:
        return host_scalars.promoted(left, right)
    except KeyError:
        raise Incompatible(f"is {left} on one path and {right} on another") from None


def _is_of_a_graph(value: object) -> bool:
    return isinstance(
        value, torch.Tensor | bool | int | float | complex | torch.SymInt | torch.SymFloat | torch.SymBool
    )


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    if isinstance(value, int | torch.SymInt):
        return torch.int64
    return torch.get_default_dtype() if isinstance(value, float | torch.SymFloat) else torch.complex64


def is_same(left: object, right: object) -> bool:
    """Whether two leaves are one, or equal: kinds of tensors, or values that no graph computes."""
    if left is right:
        return True
    if isinstance(left, Leaf) and isinstance(right, Leaf):
        return left.form == right.form
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor) or type(left) is not type(right):
        return False
    if isinstance(left, torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(left) == str(right)
    if object_fields.can_be_changed(left):
        return False  # of two that are equal, a change of one is none of the other
    try:
        return bool(left == right)
    except Exception:  # noqa: BLE001 a class may refuse to be compared
        return False


def _kind(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, str | int | float | bool):
        return repr(value)
    return f"a {type(value).__name__}"
