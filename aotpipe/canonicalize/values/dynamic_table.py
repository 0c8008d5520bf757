"""Dicts and sets of which only a run of the graph knows the keys.

The keys lie in a `DynamicList` in the order in which they came, a dict's each in a tuple with its value. The
user's set holds this one object in the place of these keys, and the user's dict holds it under `TABLE`. What
code that is not rewritten adds afterwards stands behind it, as in a list that grows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values.abstract_values import AbstractValue, Undefined
from aotpipe.canonicalize.values.dynamic_list import DynamicList
from aotpipe.canonicalize.values.element_kinds import abstract_of_segments, fitted
from aotpipe.canonicalize.values.structures import is_leaf


class _Table:
    """The key of a dict under which its other keys lie."""

    def __repr__(self) -> str:
        return "the keys that a tensor decides"


TABLE: Final = _Table()
DICTS: Final = (dict, defaultdict, OrderedDict, Counter)


def is_dynamic_table(value: object) -> bool:
    """Whether a value is a dict or a set whose keys are known to a run only."""
    if type(value) is set:
        return any(type(each) is DynamicList for each in value)
    return isinstance(value, dict) and type(value) in DICTS and TABLE in value


def segments(value: Any) -> list[Any]:
    """What a dict or a set holds: a dynamic list of keys, then single ones; a dict's with values."""
    if type(value) is set:
        return sorted(value, key=lambda each: type(each) is not DynamicList)
    held = dict(value)
    many = held.pop(TABLE, None)
    return [*([] if many is None else [many]), *held.items()]


def as_list(value: Any) -> Any:
    """The segments of a dict or a set that is one of a run; any other value is itself."""
    return segments(value) if is_dynamic_table(value) else value


def is_key(value: object) -> bool:
    """Whether a graph can hold a value as a key: a number, or a tuple of numbers."""
    if isinstance(value, tuple):
        return all(map(is_key, value))
    return isinstance(value, int | float | torch.SymInt | torch.Tensor)


def of_segment(like: Any, found: DynamicList) -> Any:
    """A dict or a set of the type of another one, with these keys."""
    if type(like) is set:
        return {found}
    made = defaultdict(like.default_factory) if type(like) is defaultdict else type(like)()
    made[TABLE] = found
    return made


def abstract_table(paths: Sequence[object], capacity: Any, *, trips: Any = None) -> AbstractValue | None:
    """The abstract value of a dict or a set that has other keys on other paths; None for any other variable.

    Its capacity is the most keys that it has on a path where None is given; `trips` is as in
    `element_kinds.abstract_list`.

    Raises:
        Incompatible: Its keys or its values have no common abstract value.
    """
    known: list[Any] = [each for each in paths if not isinstance(each, Undefined)]
    if not known or type(known[0]) not in (set, *DICTS):
        return None
    first = known[0]
    if any(type(each) is not type(first) for each in known) or not _varies(known):
        return None
    columns = [[] if isinstance(each, Undefined) else segments(each) for each in paths]
    abstract, kind = abstract_of_segments(columns, capacity, trips=trips)
    make: Callable[[Any], Any] = lambda items: of_segment(first, items[0])  # noqa: E731
    return replace(abstract, fitted=lambda value: [fitted(segments(value), kind)], made=make)


def _varies(known: Sequence[Any]) -> bool:
    if any(map(is_dynamic_table, known)):
        return True
    keys = [set(each) if type(each) is set else list(each) for each in known]
    if all(each == keys[0] for each in keys[1:]):
        return False
    return all(is_key(key) for each in keys for key in each)


def pair(key: Any, value: Any) -> tuple[Any, Any]:
    """An element of the dynamic list of a dict."""
    return key, value


def keys_in(found: DynamicList, *, is_set: bool) -> int:
    """How many buffers of such a dynamic list hold parts of the keys."""
    if is_set:
        return len(found.buffers)
    return len(part_of(found, 0).buffers)


def part_of(found: DynamicList, at: int) -> DynamicList:
    """The keys of a dict's dynamic list, where `at` is 0, or the values, where it is 1."""
    children = found.kind.spec.children()
    first = children[0].num_leaves if at else 0
    leaves = found.kind.leaves[first : first + children[at].num_leaves]
    kind = replace(found.kind, spec=children[at], leaves=leaves)
    skipped = len(found.kind.computed) - len(kind.computed) if at else 0
    return DynamicList(kind, found.buffers[skipped : skipped + len(kind.computed)], found.count)


def flat(value: Any) -> list[Any]:
    """The leaves of a key."""
    return pytree.tree_leaves(value, is_leaf)
