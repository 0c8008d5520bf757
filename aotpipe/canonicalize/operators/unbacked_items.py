"""Items of which only a run of the graph knows how many there are: the rows of `mask.nonzero()`, say.

`of(value)` gives them for what a `for` or a comprehension goes through: such a tensor, a list that grew, a
range of traced numbers; and for `enumerate`, `zip` and `reversed` of these. `comprehended` makes the list of
a comprehension over them, or of one whose test a tensor decides.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.value_ranges import bound_sympy

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import dynamic_list_methods, iterators
from aotpipe.canonicalize.operators.conditional import choose
from aotpipe.canonicalize.operators.iterators import Cursor
from aotpipe.canonicalize.trace import fixpoint, regions, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import dynamic_list, host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.trace import refusal

Pair = tuple[Callable[[], Any], Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class TensorRange:
    """`range` of traced tensors, which has at least so many numbers and at most so many.

    `sizes` are its start, stop and step where these are sizes of inputs, and numbers. `has_most` where it has
    as many numbers as there are at most, in every call.
    """

    start: Any
    stop: Any
    step: Any
    most: Any = None
    least: int = 0
    sizes: tuple[Any, Any, int] | None = None
    has_most: bool = False

    @classmethod
    def of(cls, ends: Sequence[Any]) -> TensorRange:
        """From the arguments of `range`."""
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        if not isinstance(step, int):
            step = host_scalars.item(torch_functions.as_tensor(step))
            runtime_asserts.require(step != 0, ValueError("range() arg 3 must not be zero"), holds=True)
        most = _most(start, stop, step)
        is_plain = isinstance(step, int) and step == 1 and _is_size(start) and _is_size(stop)
        least = _least_of(stop - start) if is_plain else 0
        of_inputs = isinstance(step, int) and _is_of_inputs(start) and _is_of_inputs(stop)
        sizes = (start, stop, step) if of_inputs else None
        start, stop = (
            host_scalars.item(torch_functions.as_tensor(each)) if is_varying(each) else each
            for each in (start, stop)
        )
        return cls(start, stop, step, most, least, sizes, has_most=of_inputs and most is not None)

    @property
    def iterations(self) -> Any:
        """How many numbers it has at most, where that is known before the run."""
        if self.most is not None:
            return self.most
        return _most(self.start, self.stop, self.step)

    def _note_bounds(self, number: torch.Tensor) -> None:
        """What none of its numbers is below or above, where that is known before the run."""
        if not isinstance(self.step, int):
            return
        up = self.step > 0
        if self.sizes is not None and self.step > 1:
            host_scalars.note_range(number, self.sizes)
        least = host_scalars.lower_bound(self.start if up else self.stop)
        most = host_scalars.upper_bound(self.stop if up else self.start)
        if least is not None:
            host_scalars.note_lower_bound(number, least if up else least + 1)
        if most is not None:
            host_scalars.note_upper_bound(number, most - 1 if up else most)

    def written_out(self) -> Iterator[Any]:
        """Its numbers, as many as the example has; that there is each, and no other, is a guard."""
        assert self.sizes is not None
        at, stop, step = self.sizes
        while at < stop if step > 0 else at > stop:
            yield at
            at = at + step

    def __iter__(self) -> Any:
        raise refusal(
            "a range whose length is known to a run of the graph only is used other than by a `for`",
            "loop over it with `for`, or over a range of known length with a test inside",
        )

    def parted(self) -> tuple[Any, TensorRange]:
        """The first number, and the others."""
        most = None if self.most is None else self.most - 1
        rest = TensorRange(self.start + self.step, self.stop, self.step, most, has_most=self.has_most)
        return self.start, rest

    def each(self, take: Callable[[Any], None], stopped: Callable[[], object], variables: Variables) -> None:
        """`for item in self: take(item)`, until `stopped`, as one op."""
        index: list[Any] = [self.start]
        stops: list[object] = []

        def test() -> object:
            left = _is_before(index[0], self.stop, self.step)
            stop = stopped()
            if torch_functions.is_traced(stop) or stop:
                stops.append(stop)
            if torch_functions.is_traced(stop):
                return torch_functions.predicate(left).logical_and(
                    torch_functions.predicate(stop).logical_not()
                )
            return left

        def iteration() -> None:
            at = index[0]
            if isinstance(at, torch.Tensor):
                self._note_bounds(at)
            take(at)
            index[0] = at + self.step

        iteration.__wrapped__ = take  # type: ignore[attr-defined]  # whose place in the source is the loop's

        def write(values: tuple[Any, ...]) -> None:
            index[0] = values[0]
            variables.set(values[1:])

        counted = Variables(
            lambda: (index[0], *variables.get()),
            write,
            ("the index", *variables.names),
            variables.watched,
            [at + 1 for at in variables.dead],
        )

        def runs_most() -> bool:
            return self.has_most and not stops

        regions.loop(test, iteration, counted, most=self.iterations, runs_most=runs_most)


def _is_size(value: object) -> bool:
    return isinstance(value, int | torch.SymInt)


def _is_of_inputs(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, torch.SymInt) and not free_unbacked_symbols(value))


def _least_of(size: Any) -> int:
    """The lowest value of a size in the calls that the program is for."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return (
        0
        if free_unbacked_symbols(size)
        else int(bound_sympy(size.node.expr, size.node.shape_env.var_to_range).lower)
    )


def _most(start: Any, stop: Any, step: Any) -> Any:
    """How many numbers a range has at most; None where only a run knows."""
    if isinstance(step, int):
        return fixpoint.most_in_range(start, stop, step)
    return abs(stop - start) if isinstance(start, int) and isinstance(stop, int) else None


def _is_before(at: Any, stop: Any, step: Any) -> Any:
    if isinstance(step, int):
        return at < stop if step > 0 else at > stop
    at, stop = host_scalars.as_int64(at), host_scalars.as_int64(stop)
    # A step of zero, which is refused, goes nowhere.
    return torch.where(step > 0, at < stop, (step < 0).logical_and(at > stop))


@dataclass(frozen=True, slots=True)
class UnbackedItems:
    """Items by their number.

    Attributes:
        count: How many there are, a traced number.
        most: How many there are at most, as an int or a SymInt; None where nothing says so.
        at: Gives the item of a number, an int or a traced one, that is less than the count.
        rows: The tensor whose rows they are, if they are.
        least: How many there are at least.
        has_most: Whether there are as many as there are at most, in every call.
    """

    count: Any
    most: Any
    at: Callable[[Any], Any]
    rows: torch.Tensor | None = None
    least: int = 0
    has_most: bool = False

    def __getitem__(self, index: Any) -> Any:
        """An element of the tuple that `unbind` gives; of a slice, others such items."""
        if self.rows is None:
            raise TypeError("what `enumerate`, `zip` and `reversed` give is not subscriptable")
        found = self.rows[index]
        return found if not isinstance(index, slice) else of(found) or found.unbind(0)

    def __iter__(self) -> NoReturn:
        raise refusal(
            "items of which only a run of the graph knows how many there are, are used other than by a `for`",
            "loop over them with `for`, or make them a tensor of a fixed size",
        )

    def parted(self) -> tuple[Any, UnbackedItems]:
        """The first item, and the others."""
        most = None if self.most is None else self.most - 1
        following = lambda number: self.at(number + 1)  # noqa: E731
        return self.at(0), UnbackedItems(self.count - 1, most, following, has_most=self.has_most)

    def each(self, take: Callable[[Any], None], stopped: Callable[[], object], variables: Variables) -> None:
        """`for item in self: take(item)`, until `stopped`, as one op."""
        numbers = TensorRange(0, self.count, 1, most=self.most, has_most=self.has_most)
        numbers.each(lambda number: take(self.at(number)), stopped, variables)


def is_varying(value: object) -> bool:
    """Whether a value is traced, or a size that varies between calls."""
    return isinstance(value, torch.SymInt | torch.SymFloat) or torch_functions.is_traced(value)


def of(value: Any) -> UnbackedItems | None:
    """The items of a value, if only a run knows how many there are."""
    if isinstance(value, UnbackedItems):
        return value
    if isinstance(value, TensorRange):
        start, step = value.start, value.step
        if not isinstance(step, int):
            raise refusal(
                "a list is made of a range that has a tensor as its step",
                "loop over it with `for`, or give a step that is a number",
            )
        away = value.stop - start if step > 0 else start - value.stop
        size = (away + (abs(step) - 1)) // abs(step)
        at_step = lambda number: start + number * step  # noqa: E731
        return UnbackedItems(size.clamp_min(0), value.iterations, at_step, has_most=value.has_most)
    if isinstance(value, list | deque) and dynamic_list.is_dynamic_list(value):
        found = dynamic_list_methods.whole(value)

        def at(number: Any) -> Any:
            element = dynamic_list_methods.at_position(found, host_scalars.as_int64(number))
            effects.note_element(element)
            return element

        return UnbackedItems(found.count, found.kind.capacity, at, has_most=found.is_full)
    if isinstance(value, torch.Tensor) and value.dim() and isinstance(size := value.shape[0], torch.SymInt):
        count = host_scalars.item(torch_functions.as_tensor(size))
        is_known = not torch_functions.is_traced(size)
        most = size if is_known else host_scalars.most(size)
        return UnbackedItems(count, most, partial(_row, value), value, _least_of(size), has_most=is_known)
    return None


def _row(tensor: torch.Tensor, number: Any) -> Any:
    return torch_functions.get_item(tensor, host_scalars.as_int64(number))


def enumerated(items: Any, start: Any = 0) -> Any:
    """`enumerate(items, start)`."""
    found = of(items)
    if found is None:
        return enumerate(items, start)
    items = lambda number: (number + start, found.at(number))  # noqa: E731
    return UnbackedItems(found.count, found.most, items, least=found.least, has_most=found.has_most)


def reversed_(items: Any) -> Any:
    """`reversed(items)`."""
    found = of(items)
    if found is None:
        return reversed(items)
    backwards = lambda number: found.at(found.count - 1 - number)  # noqa: E731
    return UnbackedItems(found.count, found.most, backwards, has_most=found.has_most)


def zipped(*values: Any, strict: bool = False) -> Any:
    """`zip(*values)`."""
    found = [of(value) for value in values]
    if not any(found):
        return zip(*values, strict=strict)
    parts = [each or _of_known(value) for each, value in zip(found, values, strict=True)]
    count = parts[0].count
    for part in parts[1:]:
        if strict:
            runtime_asserts.require(
                count == part.count, ValueError("zip() arguments differ in length"), holds=True
            )
        count = _least(count, part.count)
    tops = [part.most for part in parts if isinstance(part.most, int)]
    most = min(tops) if tops else next((part.most for part in parts if part.most is not None), None)
    least = min(part.least for part in parts)
    has_most = all(part.has_most and str(part.most) == str(most) for part in parts)
    items = lambda number: tuple(part.at(number) for part in parts)  # noqa: E731
    return UnbackedItems(count, most, items, least=least, has_most=has_most)


def zipped_longest(values: Sequence[Any], fill: Any) -> UnbackedItems:
    """`itertools.zip_longest(*values, fillvalue=fill)`, where a tensor decides how many of one there are."""
    parts = [of(value) or _of_known(value) for value in values]
    tops = [part.most for part in parts]
    most = max(tops) if all(isinstance(top, int) for top in tops) else None
    counts = [host_scalars.as_int64(part.count) for part in parts]
    count = host_scalars.as_host_scalar(torch.stack(counts).amax(0))

    def item(part: UnbackedItems, number: Any) -> Any:
        return choose(number < part.count, lambda: part.at(number), lambda: fill)

    return UnbackedItems(count, most, lambda number: tuple(item(part, number) for part in parts))


def _least(left: Any, right: Any) -> Any:
    if left is right:
        return left
    if not isinstance(left, torch.Tensor):
        left, right = right, left
    return left.clamp_max(right) if not isinstance(right, torch.Tensor) else torch.minimum(left, right)


def _of_known(value: Any) -> UnbackedItems:
    """Items whose number is known, for a `zip` with items whose number only a run knows."""
    if isinstance(value, range):
        return UnbackedItems(
            len(value),
            len(value),
            lambda number: value.start + number * value.step,
            least=len(value),
            has_most=True,
        )
    if isinstance(value, torch.Tensor) and value.dim():
        size = value.shape[0]
        is_known = not torch_functions.is_traced(size)
        return UnbackedItems(size, size, partial(_row, value), least=_least_of(size), has_most=is_known)
    if isinstance(value, Sequence | torch.nn.ModuleList) and dynamic_list_methods.is_indexed(value):
        size = len(value)
        return UnbackedItems(
            size,
            size,
            lambda number: dynamic_list_methods.get_element(value, host_scalars.as_int64(number)),
            least=size,
            has_most=True,
        )
    raise refusal(
        f"zip takes a {type(value).__name__} beside items of which only a run knows how many there are",
        "give it a list or a tensor",
    )


def comprehended(
    items: Any,
    plain: Callable[[Iterable[Any]], list[Any]],
    elementwise: Callable[[Iterable[Any]], list[Pair]],
    *,
    tested: bool,
) -> list[Any]:
    """The list that a comprehension makes, where a graph is traced.

    `plain` makes the list of any items, `elementwise` the tests and the elements of any items.
    """
    found = items if isinstance(items, Cursor) and items.is_dynamic else of(items)
    if found is None and not tested:
        return plain(items)
    held: list[list[Any]] = [[]]
    # What an element is computed of may be changed by that.
    variables = Variables.of_list(held, "elements", watched=lambda: (("elements", elementwise),))

    def append(element: Any) -> None:
        held[0] = [*held[0], element]

    def take(item: Any) -> None:
        ((test, element),) = elementwise((item,))
        truth = test()
        if torch_functions.is_traced(truth):
            regions.branch(truth, lambda: append(element()), lambda: None, variables)
        elif truth:
            append(element())

    if found is not None:
        found.each(take, lambda: False, variables)
        if found is items and isinstance(found, UnbackedItems):
            iterators.note_ended(items)
    else:
        for item in items:
            take(item)
    return held[0]


def mapped(function: Callable[[Any], Any], items: Any) -> list[Any]:
    """`[function(item) for item in items]` of items of which only a run knows how many there are."""

    def elements(found: Iterable[Any]) -> list[Pair]:
        return [(lambda: True, partial(trace.operators().call, function, each)) for each in found]

    return comprehended(items, list, elements, tested=False)


def listed(value: Any = ()) -> list[Any]:
    """`list(value)`."""
    if isinstance(value, Cursor):
        return value.taken()
    found = of(value)
    if found is None or isinstance(value, list | deque):
        return list(value)

    def as_they_are(items: Iterable[Any]) -> list[Pair]:
        return [(lambda: True, lambda each=each: each) for each in items]  # type: ignore[misc]

    return comprehended(found, list, as_they_are, tested=False)


def method(function: Any) -> Callable[[], Any] | None:
    """What stands for `numel` of a shape, and for `tolist` of as many numbers as only a run knows."""
    tensor = getattr(function, "__self__", None)
    if isinstance(tensor, torch.Size) and getattr(function, "__name__", "") == "numel":
        return partial(math.prod, tensor)  # torch's own fixes the sizes
    if getattr(function, "__name__", "") != "tolist" or not isinstance(tensor, torch.Tensor):
        return None
    found = of(tensor)
    if found is None or tensor.dim() != 1:
        return None
    return lambda: listed(replace(found, at=lambda number: host_scalars.item(found.at(number)), rows=None))
