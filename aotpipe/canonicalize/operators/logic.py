"""Python's `and`, `or`, `not`, chains of comparisons, `any` and `all` of traced values.

An operand of which only a run knows whether Python comes to it stands in a branch of the graph, unless all it
does is to give a value: then it is computed in any case, which takes less time than a branch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import GeneratorType
from typing import Any, Final

import torch

from aotpipe.canonicalize.operators import dynamic_list_methods, iterators, unbacked_items
from aotpipe.canonicalize.operators.conditional import choose
from aotpipe.canonicalize.trace import decisions, dry_run, regions, runtime_asserts, torch_functions
from aotpipe.canonicalize.trace.torch_functions import is_staged, predicate, truth_of
from aotpipe.canonicalize.values import dynamic_list, host_scalars, optional_values
from aotpipe.canonicalize.values.abstract_values import Incompatible, Variables, join_values
from aotpipe.canonicalize.values.trace import refusal

Function = Callable[..., Any]
_MOST: Final = 1000


def _joined(left: Any, right: Any, *, all_of: bool, truth: bool = False) -> Any:
    """`left and right` where it is `all_of` them, else `left or right`, both computed; or its `truth`."""
    if truth or (_is_truth(left) and _is_truth(right)):
        join = torch.logical_and if all_of else torch.logical_or
        return join(predicate(left), truth_of(right))
    return _selected(left, right, left) if all_of else _selected(left, _where_true(left), right)


def _where_true(value: Any) -> Any:
    """A value where it counts as true: there it is no None."""
    return value.payload_of_optional if isinstance(value, optional_values.OptionalValue) else value


def _is_truth(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool and not value.dim()
    return isinstance(value, bool | torch.SymBool)


def _selected(test: Any, then: Any, other: Any) -> Any:
    try:
        abstract = join_values([then, other])
    except Incompatible:
        return choose(test, lambda: then, lambda: other)  # on paths of its own, where they can be
    chosen = iter(
        torch.where(predicate(test), a, b)
        for a, b in zip(abstract.tensors(then), abstract.tensors(other), strict=True)
    )
    return abstract.value(lambda: next(chosen))


def _short_circuit(*operands: Callable[[], Any], truth: bool = False, all_of: bool) -> Any:
    """`and` of operands where `all_of` them count, else `or`; `truth`: it is asked for nothing else."""
    first, *others = operands
    value = torch_functions.asked(first()) if truth else first()
    with ExitStack() as reached:
        for operand in others:
            if is_staged(value):
                decisions.expression("logic")
                if not dry_run.only_computes(operand):
                    found = _where_reached(value, operand, truth=truth, holds=all_of)
                    # What the operand itself implies is known inside of its branch alone.
                    value = optional_values.imply(found, value, value, all_of=all_of)
                    continue
                reached.enter_context(optional_values.assuming(value, holds=all_of))
                right = torch_functions.asked(operand()) if truth else operand()
                if truth and not is_staged(right) and bool(right) is not all_of:
                    return not all_of
                joined = _joined(value, right, all_of=all_of, truth=truth)
                value = optional_values.imply(joined, value, right, all_of=all_of)
            elif bool(value) is not all_of:
                return value
            else:
                value = torch_functions.asked(operand()) if truth else operand()
    return value


# Each operand is computed only where it is reached.
and_ = partial(_short_circuit, all_of=True)
or_ = partial(_short_circuit, all_of=False)


def _where_reached(value: Any, operand: Callable[[], Any], *, truth: bool, holds: bool) -> Any:
    """`value and operand()` where it `holds`, else `value or operand()`, with the operand in a branch."""

    def plain() -> Any:
        return truth_of(value) if truth else value if holds else _where_true(value)

    def reached() -> Any:
        return truth_of(torch_functions.asked(operand())) if truth else operand()

    if not holds:
        return choose(value, plain, reached)
    found = choose(value, reached, plain)
    host_scalars.note_implied(found, value)
    return found


def not_(value: Any) -> Any:
    """`not value`."""
    value = torch_functions.asked(value)
    if not is_staged(value):
        return not value
    decisions.expression("logic")
    return optional_values.imply(predicate(value).logical_not(), value, negated=True)


def compare(first: Callable[[], Any], *rest: Callable[..., Any]) -> Any:
    """`a < b < c`: by turns the test of two values and the next value."""
    return _compared(first(), rest)


def _compared(left: Any, rest: Sequence[Callable[..., Any]]) -> Any:
    test, following, *others = rest
    right = following()
    found = test(left, right)
    return and_(lambda: found, lambda: _compared(right, others)) if others else found


class Elements(Iterator[Any]):
    """A generator expression; `any`, `all` and `next` compute an element of it where they come to it.

    `elementwise` gives of each item of the `source` what computes its test and what computes its element;
    `is_tested` tells whether there are tests.
    """

    def __init__(
        self, items: Iterable[Any], plain: Function, elementwise: Function, *, is_tested: bool
    ) -> None:
        self.is_tested = is_tested
        self.source = iter(items)
        self._plain = plain
        self._elementwise = elementwise
        self._elements: Iterator[Any] | None = None

    def __next__(self) -> Any:
        return next(self.generator())

    def generator(self) -> Iterator[Any]:
        """Python's own generator of the elements."""
        if self._elements is None:
            self._elements = iter(self._plain(self.source))
        return self._elements

    def listed(self) -> list[Any]:
        """All elements that are left; where a tensor decides which, a list that grows."""
        if self._elements is not None:
            return list(self._elements)
        return unbacked_items.comprehended(self.source, self._plain, self._elementwise, tested=self.is_tested)

    def first(self, *default: Any) -> Any:
        """`next(self, *default)`."""
        for wanted, element in self.each():
            if is_staged(test := wanted()):
                left = [(lambda: test, element), *itertools.islice(self.each(), _MOST)]
                iterators.note_left(self.source)
                if len(left) > _MOST:
                    raise refusal(
                        f"a tensor decides on more than {_MOST} elements of a generator", "use a loop"
                    )
                self._elements = _unknown()
                return _first_of(left, default)
            if test:
                return element()
        if default:
            return default[0]
        raise runtime_asserts.raised(StopIteration)

    def pairs(self) -> Iterable[tuple[Function, Function]]:
        """What `each` yields, as a list where its items are known and end."""
        if isinstance(self.source, GeneratorType):
            return self.each()
        found = list(itertools.islice(self.each(), _MOST))
        return found if len(found) < _MOST else itertools.chain(found, self.each())

    def each(self) -> Iterator[tuple[Function, Function]]:
        """Yield what computes the test and the element of each item that is left."""
        if self._elements is not None:
            yield from _computed(self._elements)
        else:
            for item in self.source:
                yield from self._elementwise([item])


def _first_of(pairs: Iterable[tuple[Function, Function]], default: tuple[Any, ...]) -> Any:
    """The element of the first pair whose test holds: branches one after another, not one in another."""
    held: list[Any] = [default[0] if default else None, False]
    variables = Variables.of_list(held, "the first element", "whether there is one")

    def take(element: Function) -> None:
        held[:] = element(), True

    for wanted, element in pairs:
        test = and_(lambda: not_(held[1]), wanted, truth=True)
        if is_staged(test):
            regions.branch(test, partial(take, element), lambda: None, variables)
        elif test:
            take(element)
    value, is_found = held
    if not default:
        runtime_asserts.require(truth_of(is_found), StopIteration(), holds=True)
    is_there = isinstance(value, optional_values.OptionalValue) and not default
    return value.payload_of_optional if is_there else value


def _unknown() -> Iterator[Any]:
    raise refusal(
        "a generator is used on after a tensor decided which element was its first",
        "make a list of it, and take its items by a number that counts",
    )
    yield


def _computed(values: Iterable[Any]) -> Iterator[tuple[Function, Function]]:
    for value in values:
        yield lambda: True, partial(_same, value)


def _same(value: Any) -> Any:
    return value


def folded(values: Iterable[Any], *, decides: bool) -> Any:
    """`any(values)` where a true element decides, else `all(values)`."""
    if dynamic_list.is_dynamic_list(values):
        return dynamic_list_methods.folded(values, decides=decides)
    found: Any = not decides
    for wanted, element in values.each() if isinstance(values, Elements) else _computed(values):
        value = _counted(wanted, element, decides=decides)
        if torch_functions.is_traced(found):
            found = _short_circuit(partial(_same, found), value, truth=True, all_of=not decides)
            continue
        found = torch_functions.asked(value())
        if torch_functions.is_traced(found):
            found = predicate(found)
        elif bool(found) is decides:
            return decides
    if not torch_functions.is_traced(found):
        return not decides
    iterators.note_left(values.source if isinstance(values, Elements) else values)
    return found


def _counted(wanted: Function, element: Function, *, decides: bool) -> Function:
    """What computes an element as `any` or `all` counts it: one that is not wanted decides nothing."""
    # A closure: what an operand changes is found by the variables that it holds.
    if decides:
        return lambda: and_(wanted, element)
    return lambda: or_(lambda: not_(wanted()), element)
