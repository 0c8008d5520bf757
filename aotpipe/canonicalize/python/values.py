"""What a variable holds, as the leaves that a graph can compute and the structure around them.

`meet(values)` finds for the values that a variable has on several paths one structure whose leaves are
tensors where the paths differ: numbers become 0-d tensors, which promote as Python numbers do, dtypes are
promoted, and a variable without a value takes zeros, which nothing reads that eager would run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, Final, NoReturn

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

Number = bool | int | float | complex


class Undefined:
    """A variable that has no value yet; using it raises what Python would."""

    __slots__ = ()

    def _raise(self, *_: object, **__: object) -> NoReturn:
        raise UnboundLocalError("a variable has no value on the path that was taken")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __len__ = __iter__ = __getitem__ = __call__ = _raise
    __float__ = __int__ = __index__ = __neg__ = __matmul__ = __rmatmul__ = __setitem__ = _raise


UNDEFINED: Final = Undefined()


class Unlike(Exception):
    """The values of a variable have no common form; the message completes "NAME ..."."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a region assigns.

    Attributes:
        get, set: Read and write them all.
        names: Of each.
        watched: Gives the names and values of what else the region may change in place.
    """

    get: Callable[[], tuple[Any, ...]]
    set: Callable[[tuple[Any, ...]], None]
    names: Sequence[str]
    watched: Callable[[], Sequence[tuple[str, object]]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor of a graph in place of a leaf: its dtype, and the shape that a number takes.

    `number` is a tensor that stands for a Python number: it is never written in place.
    """

    dtype: torch.dtype
    shape: tuple[int | torch.SymInt, ...]
    device: torch.device
    number: bool

    def of(self, value: object) -> torch.Tensor:
        """A leaf's value as that tensor."""
        if isinstance(value, torch.Tensor):
            return value if value.dtype == self.dtype else value.to(self.dtype)
        if isinstance(value, Undefined):
            return torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        number: Any = value
        full: torch.Tensor = torch.full(self.shape, number, dtype=self.dtype, device=self.device)
        return full


@dataclass(frozen=True, slots=True)
class Form:
    """A variable's structure; its leaves are a `Leaf` where a graph computes them, else their value."""

    spec: pytree.TreeSpec
    leaves: tuple[object, ...]

    def tensors(self, value: object) -> list[torch.Tensor]:
        """The graph's part of a value of this form."""
        given = (
            [UNDEFINED] * len(self.leaves)
            if isinstance(value, Undefined)
            else pytree.tree_leaves(value, is_leaf)
        )
        return [
            leaf.of(each) for leaf, each in zip(self.leaves, given, strict=True) if isinstance(leaf, Leaf)
        ]

    def value(self, tensors: Callable[[], torch.Tensor]) -> Any:
        """The value with the graph's part taken from `tensors`, in turn."""
        made = [_taken(leaf, tensors()) if isinstance(leaf, Leaf) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(made, self.spec)


# Tensors that stand for Python numbers, by identity; kept alive, so that no other takes it.
_numbers: dict[int, torch.Tensor] = {}


def is_number(value: object) -> bool:
    """Whether a tensor stands for a Python number."""
    return id(value) in _numbers


def _taken(leaf: Leaf, tensor: torch.Tensor) -> torch.Tensor:
    if leaf.number:
        _numbers[id(tensor)] = tensor
    return tensor


def note_number(result: object, inputs: Iterable[object]) -> None:
    """What is computed of numbers alone is a number."""
    if isinstance(result, torch.Tensor) and not result.dim():
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        if tensors and all(map(is_number, tensors)):
            _numbers[id(result)] = result


class _Numbers(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _numbers and isinstance(result, torch.Tensor):
            note_number(result, pytree.tree_leaves((args, kwargs)))
        return result


@contextmanager
def numbers_stay() -> Iterator[None]:
    """Follow the tensors that stand for Python numbers."""
    try:
        with _Numbers():
            yield
    finally:
        _numbers.clear()


def is_leaf(value: object) -> bool:
    """What is no structure: torch takes None for an empty one."""
    return value is None


def meet(values: Sequence[object]) -> Form:
    """The form that all of a variable's values fit.

    Raises:
        Unlike: There is none.
    """
    known = [value for value in values if not isinstance(value, Undefined)]
    if not known:
        return Form(pytree.tree_structure(0), (UNDEFINED,))
    flat = [pytree.tree_flatten(value, is_leaf) for value in known]
    spec = flat[0][1]
    if any(other != spec for _, other in flat[1:]):
        raise Unlike(f"is {_kind(known[0])} on one path and {_kind(known[-1])} on another")
    missing = len(known) < len(values)
    leaves = tuple(_meet(column, missing) for column in zip(*(leaves for leaves, _ in flat), strict=True))
    return Form(spec, leaves)


def _meet(leaves: Sequence[Any], missing: bool) -> object:
    first = leaves[0]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors and all(_is_same(leaf, first) for leaf in leaves[1:]):
        return first
    if all(leaf is first for leaf in leaves[1:]) and not missing:
        return first
    for leaf in leaves:
        if not isinstance(
            leaf, torch.Tensor | bool | int | float | complex | torch.SymInt | torch.SymFloat | torch.SymBool
        ):
            other = next(each for each in leaves if not _is_same(each, leaf))
            raise Unlike(f"is {_kind(leaf)} on one path and {_kind(other)} on another")
    shapes = {tuple(map(str, tensor.shape)) for tensor in tensors}
    if len(shapes) > 1:
        shown = " and ".join(f"({', '.join(shape)})" for shape in sorted(shapes))
        raise Unlike(f"has the shapes {shown} on different paths")
    if tensors and len(tensors) < len(leaves) and tensors[0].dim():
        raise Unlike("is a number on one path and a tensor of several elements on another")
    shape = tuple(tensors[0].shape) if tensors else ()
    device = tensors[0].device if tensors else torch.device("cpu")
    dtype = reduce(_promoted, (tensor.dtype for tensor in tensors)) if tensors else torch.bool
    for leaf in leaves:
        # A number takes the tensors' dtype where that can hold its kind.
        if not isinstance(leaf, torch.Tensor) and _rank(_dtype(leaf)) > (_rank(dtype) if tensors else -1):
            dtype = _promoted(dtype, _dtype(leaf))
    return Leaf(
        dtype,
        shape,
        device,
        number=all(not isinstance(leaf, torch.Tensor) or is_number(leaf) for leaf in leaves),
    )


# Computed once: while torch.export traces, a call of torch.promote_types would become a part of the graph.
_PROMOTED: Final = {
    (left, right): torch.promote_types(left, right)
    for left, right in product(
        [
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.complex128,
        ],
        repeat=2,
    )
}


def _promoted(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    if left == right:
        return left
    if (left, right) not in _PROMOTED:
        raise Unlike(f"is {left} on one path and {right} on another")
    return _PROMOTED[left, right]


def _rank(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)


def _plain(number: Any) -> Number:
    if isinstance(number, torch.SymInt):
        return 1
    if isinstance(number, torch.SymFloat):
        return 1.0
    return True if isinstance(number, torch.SymBool) else number


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, torch.Tensor):
        return value.dtype
    value = _plain(value)
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    return torch.get_default_dtype() if isinstance(value, float) else torch.complex64


def _is_same(left: object, right: object) -> bool:
    if left is right:
        return True
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor) or type(left) is not type(right):
        return False
    if isinstance(left, torch.SymInt | torch.SymFloat | torch.SymBool):
        return str(left) == str(right)
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
