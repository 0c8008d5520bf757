"""Items of which only a run of the graph knows how many there are: the rows of `mask.nonzero()`, say.

`of(value)` gives them for what a `for` or a comprehension goes through: such a tensor, a list that grew, a
range of traced numbers; and for `enumerate`, `zip` and `reversed` of these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from aotpipe.canonicalize.operators import dynamic_getitem, dynamic_list_methods, dynamic_range
from aotpipe.canonicalize.operators.dynamic_range import TensorRange
from aotpipe.canonicalize.trace import indexing, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import dynamic_list, host_scalars
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.refusals import refusal


@dataclass(frozen=True, slots=True)
class UnbackedItems:
    """Items by their number.

    Attributes:
        count: How many there are, a traced number.
        most: How many there are at most, as an int or a SymInt; None where nothing says so.
        at: Gives the item of a number, an int or a traced one, that is less than the count.
    """

    count: Any
    most: Any
    at: Callable[[Any], Any]

    def __iter__(self) -> NoReturn:
        """They are not written out."""
        raise refusal(
            "items of which only a run of the graph knows how many there are, are used other than by a `for`",
            "loop over them with `for`, or make them a tensor of a fixed size",
        )

    def each(self, take: Callable[[Any], None], stopped: Callable[[], object], variables: Variables) -> None:
        """`for item in self: take(item)`, until `stopped`, as one op."""
        iterations = TensorRange(0, self.count, 1, most=self.most)
        dynamic_range.counted(iterations, lambda number: take(self.at(number)), stopped, variables)


def of(value: Any) -> UnbackedItems | None:
    """The items of a value, if only a run knows how many there are."""
    if isinstance(value, UnbackedItems):
        return value
    if isinstance(value, TensorRange):
        return _of_range(value)
    if isinstance(value, list) and dynamic_list.is_dynamic_list(value):
        found = dynamic_list_methods.whole(value)
        return UnbackedItems(
            found.count, found.kind.capacity, functools.partial(dynamic_list_methods.item, found)
        )
    if isinstance(value, torch.Tensor) and value.dim() and torch_functions.is_traced(value.shape[0]):
        return _of_tensor(value)
    return None


def _of_tensor(tensor: torch.Tensor) -> UnbackedItems:
    size = tensor.shape[0]
    count = host_scalars.item(torch_functions.as_tensor(size))
    return UnbackedItems(
        count, host_scalars.most(size), lambda number: indexing.get(tensor, _position(number))
    )


def _of_range(numbers_: TensorRange) -> UnbackedItems:
    start, stop, step = numbers_.start, numbers_.stop, numbers_.step
    away = stop - start if step > 0 else start - stop
    most = numbers_.iterations
    size = (away + (abs(step) - 1)) // abs(step)
    return UnbackedItems(size.clamp_min(0), most, lambda number: start + number * step)


def _position(number: Any) -> torch.Tensor:
    return number if isinstance(number, torch.Tensor) else torch.full((), number, dtype=torch.int64)


def enumerated(items: Any, start: Any = 0) -> Any:
    """`enumerate(items, start)`."""
    found = of(items)
    if found is None:
        return enumerate(items, start)
    return UnbackedItems(found.count, found.most, lambda number: (number + start, found.at(number)))


def turned(items: Any) -> Any:
    """`reversed(items)`."""
    found = of(items)
    if found is None:
        return reversed(items)
    return UnbackedItems(found.count, found.most, lambda number: found.at(found.count - 1 - number))


def zipped(*values: Any, strict: bool = False) -> Any:
    """`zip(*values)`."""
    found = [of(value) for value in values]
    if not any(found):
        return zip(*values, strict=strict)
    parts = [each or _of_known(value) for each, value in zip(found, values, strict=True)]
    count = parts[0].count
    for part in parts[1:]:
        if strict:
            runtime_asserts.add_assert(
                torch_functions.predicate(count == part.count), "ValueError: zip() arguments differ in length"
            )
        count = _least(count, part.count)
    tops = [part.most for part in parts if isinstance(part.most, int)]
    most = min(tops) if tops else next((part.most for part in parts if part.most is not None), None)
    return UnbackedItems(count, most, lambda number: tuple(part.at(number) for part in parts))


def _least(left: Any, right: Any) -> Any:
    if left is right:
        return left
    if not isinstance(left, torch.Tensor):
        left, right = right, left
    return left.clamp_max(right) if not isinstance(right, torch.Tensor) else torch.minimum(left, right)


def _of_known(value: Any) -> UnbackedItems:
    """Items of a known number, beside others of which only a run knows how many there are."""
    if isinstance(value, range):
        return UnbackedItems(len(value), len(value), lambda number: value.start + number * value.step)
    if isinstance(value, torch.Tensor) and value.dim():
        size = value.shape[0]
        return UnbackedItems(size, size, lambda number: indexing.get(value, _position(number)))
    if isinstance(value, Sequence | torch.nn.ModuleList) and dynamic_getitem.is_indexed(value):
        size = len(value)
        return UnbackedItems(size, size, lambda number: dynamic_getitem.get(value, _position(number)))
    raise refusal(
        f"zip takes a {type(value).__name__} beside items of which only a run knows how many there are",
        "give it a list or a tensor",
    )


__all__ = ["UnbackedItems", "enumerated", "of", "turned", "zipped"]
