"""`and`, `or`, `not`, comparisons, `is`, `in` and conditional expressions, of plain and of traced values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from aotpipe.canonicalize.operators import builtin_calls
from aotpipe.canonicalize.operators.conditional import choose
from aotpipe.canonicalize.operators.unbacked_items import TensorRange
from aotpipe.canonicalize.trace import decisions, dry_run, torch_functions
from aotpipe.canonicalize.trace.torch_functions import is_staged, predicate
from aotpipe.canonicalize.values import optional_values
from aotpipe.canonicalize.values.abstract_values import Incompatible, join_values
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.refusals import refusal
from aotpipe.canonicalize.values.trace import is_on


def _joined(left: Any, right: Any, *, all_of: bool, truth: bool = False) -> Any:
    """`left and right` where it is `all_of` them, else `left or right`, both computed; or its `truth`."""
    if truth or (_is_truth(left) and _is_truth(right)):
        join = torch.logical_and if all_of else torch.logical_or
        return join(predicate(left), _truth(right))
    return _selected(left, right, left) if all_of else _selected(left, left, right)


def _is_truth(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool and not value.dim()
    return isinstance(value, bool | torch.SymBool)


def _truth(value: Any) -> torch.Tensor:
    if torch_functions.is_traced(value):
        return predicate(value)
    return torch.full((), bool(value), dtype=torch.bool)


def _selected(test: Any, then: Any, other: Any) -> Any:
    try:
        abstract = join_values([then, other])
    except Incompatible as error:
        raise refusal(
            f"the value of `and` or `or` {error}", "compare the values with zero first", error.code
        ) from None
    chosen = iter(
        torch.where(predicate(test), a, b)
        for a, b in zip(abstract.tensors(then), abstract.tensors(other), strict=True)
    )
    return abstract.value(lambda: next(chosen))


def and_(*operands: Callable[[], Any], truth: bool = False) -> Any:
    """`a and b and ...`, each computed only where it is reached; `truth`: it is asked for nothing else."""
    return _short_circuit(operands, truth=truth, all_of=True)


def or_(*operands: Callable[[], Any], truth: bool = False) -> Any:
    """`a or b or ...`, as `and_`."""
    return _short_circuit(operands, truth=truth, all_of=False)


def _short_circuit(operands: Sequence[Callable[[], Any]], *, truth: bool, all_of: bool) -> Any:
    """`and` of operands where `all_of` them count, else `or`."""
    value = operands[0]()
    with ExitStack() as reached:
        for operand in operands[1:]:
            if is_staged(value):
                decisions.expression("logic")
                if dry_run.constrains_sizes(operand):
                    value = _where_reached(value, operand, truth=truth, holds=all_of)
                    continue
                reached.enter_context(optional_values.assuming(value, holds=all_of))
                right = operand()
                joined = _joined(value, right, all_of=all_of, truth=truth)
                value = optional_values.imply(joined, value, right, all_of=all_of)
            elif bool(value) is not all_of:
                return value
            else:
                value = operand()
    return value


def _where_reached(value: Any, operand: Callable[[], Any], *, truth: bool, holds: bool) -> Any:
    """`value and operand()` where it `holds`, else `value or operand()`, with the operand in a branch."""

    def plain() -> Any:
        return _truth(value) if truth else value

    def reached() -> Any:
        return _truth(operand()) if truth else operand()

    return choose(value, reached, plain) if holds else choose(value, plain, reached)


def not_(value: Any) -> Any:
    """`not value`."""
    if not is_staged(value):
        return not value
    decisions.expression("logic")
    return optional_values.imply(predicate(value).logical_not(), value, negated=True)


def compare(first: Callable[[], Any], *rest: Callable[..., Any]) -> Any:
    """`a < b < c`: by turns the test of two values and the next value."""
    left = first()
    result: Any = True
    for test, following in zip(rest[::2], rest[1::2], strict=True):
        right = following()
        found = test(left, right)
        if is_staged(result):
            decisions.expression("logic")
            result = _joined(result, found, all_of=True)
        else:
            result = found
            if not is_staged(found) and not found:
                return found
        left = right
    return result


def is_(left: Any, right: Any) -> Any:
    """`left is right`; whether a value is None may be traced."""
    optional = _against_none(left, right)
    if optional is None:
        return left is right
    return not optional.is_present and optional_values.presence(optional, wanted=False)


def is_not(left: Any, right: Any) -> Any:
    """`left is not right`."""
    optional = _against_none(left, right)
    if optional is None:
        return left is not right
    return optional.is_present or optional_values.presence(optional, wanted=True)


def _against_none(left: Any, right: Any) -> OptionalValue | None:
    for value, other in ((left, right), (right, left)):
        if isinstance(value, OptionalValue) and other is None:
            return value
    return None


def in_(item: Any, items: Any) -> Any:
    """`item in items`."""
    if isinstance(items, optional_values.Partial | optional_values.Keys) and not is_staged(item):
        return (items.of if isinstance(items, optional_values.Keys) else items).has(item)
    if isinstance(items, dict):
        items = items.keys() if is_staged(item) else items
    if not is_on() or isinstance(items, torch.Tensor | str | TensorRange):
        return item in items
    if is_staged(item) or (isinstance(items, list | tuple) and any(map(is_staged, items))):
        return builtin_calls.any_(item is each or item == each for each in items)
    return item in items


def not_in(item: Any, items: Any) -> Any:
    """`item not in items`."""
    return not_(in_(item, items))
