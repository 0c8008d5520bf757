"""What is in a list, a tuple, a dict or a ModuleList at a place that only a run knows.

Tensors and numbers of one form are stacked, and the place is taken out. Of modules and functions comes one
that calls the right one, by branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import rebinding
from aotpipe.canonicalize.operators import conditional
from aotpipe.canonicalize.trace import decisions, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import dynamic_list, host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import Incompatible
from aotpipe.canonicalize.values.refusals import refusal

_HINT = "give its elements one form, stack them, and index the tensor"


def is_indexed(value: Any) -> bool:
    """Whether a value is one whose elements may be chosen so."""
    return type(value) in (list, tuple, dict, torch.nn.ModuleList) and len(value) > 0


def get(value: Any, index: Any) -> Any:
    """`value[index]`, `index` a traced number."""
    number = host_scalars.item(torch_functions.as_tensor(index))
    if number.dtype.is_floating_point and not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} indices must be integers or slices")
    decisions.expression("index")
    if isinstance(value, dict):
        items, position = list(value.values()), _of_key(list(value), number)
    else:
        items, number = list(value), number.to(torch.int64)
        position = torch.where(number < 0, number + len(items), number)
        inside = (position >= 0).logical_and(position < len(items))
        runtime_asserts.add_assert(inside, "IndexError: list index out of range")
        position = position.clamp(0, len(items) - 1)
    if all(callable(each) and not isinstance(each, torch.Tensor) for each in items):
        return lambda *args, **kwargs: _called(items, position, args, kwargs)
    return _element(items, position)


def _of_key(keys: Sequence[Any], number: torch.Tensor) -> torch.Tensor:
    if not all(isinstance(key, int) for key in keys):
        raise refusal("a dict whose keys are no numbers is asked for one that a tensor decides", _HINT)
    found = torch.tensor(keys) == number
    runtime_asserts.add_assert(found.any(), "KeyError")
    return found.to(torch.int64).argmax()


def _element(items: Sequence[Any], position: torch.Tensor) -> Any:
    try:
        abstract = dynamic_list.abstract_list([list(items), [*items, items[0]]], len(items) + 1)
    except Incompatible as error:
        raise refusal(f"a list is indexed by what a tensor decides, and {error}", _HINT, error.code) from None
    if abstract is None or abstract.fitted is None:
        raise refusal("a list is indexed by what a tensor decides, and its elements are no tensors", _HINT)
    (found,) = abstract.fitted(list(items))
    held = [leaf for leaf in pytree.tree_leaves(list(items)) if isinstance(leaf, torch.Tensor)]

    def taken(buffer: torch.Tensor) -> torch.Tensor:
        element = buffer.index_select(0, position.reshape(1)).squeeze(0)
        # In eager it is one of them.
        for each in held:
            rebinding.note(rebinding.Pair(element, each))
        return element

    return found.element(taken)


def _called(items: Sequence[Callable[..., Any]], position: torch.Tensor, args: Any, kwargs: Any) -> Any:
    def pick(low: int, high: int) -> Any:
        if high - low == 1:
            return trace.operators().call(items[low], *args, **kwargs)
        middle = (low + high) // 2
        return conditional.choose(position < middle, lambda: pick(low, middle), lambda: pick(middle, high))

    return pick(0, len(items))


__all__ = ["get", "is_indexed"]
