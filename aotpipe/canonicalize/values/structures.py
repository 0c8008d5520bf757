"""Structures of values of which some parts may be None, as torch's trees have them.

A part that may be None is an `OptionalNode`, whose first child is the flag that says whether it is there. So
a list that holds None beside tuples has one structure, whatever each element is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values.chosen_object import is_plain
from aotpipe.canonicalize.values.optional_values import OptionalValue

Flat = tuple[Sequence[Any], pytree.TreeSpec]
"""The leaves of a value, and its structure."""
Role = Literal["plain", "flag", "held"]
"""Of a leaf: the flag of what may be None, a part of what may be None, or neither."""
_LEAF: Final = pytree.tree_structure(0)


class OptionalNode:
    """A part that may be None, as a node; of its leaves, torch's trees make an `OptionalValue`."""

    def __init__(self, present: Any, payload: Any) -> None:
        self.present = present
        self.payload = payload


def _flatten(node: OptionalNode) -> tuple[list[Any], None]:
    return [node.present, node.payload], None


def _unflatten(children: Any, _: None) -> OptionalValue:
    return OptionalValue(*children)


pytree.register_pytree_node(OptionalNode, _flatten, _unflatten, serialized_type_name="aotpipe.Optional")


def is_leaf(value: object) -> bool:
    """What is no structure: torch takes None for an empty one."""
    return value is None or isinstance(value, OptionalValue)


def flatten(value: Any, *, of_leaves: bool) -> Flat:
    """The leaves of a value and its structure, in which what may be None is an `OptionalNode`.

    Of a tensor, a number or a text that may be None, the `OptionalValue` is a leaf, unless a node is made
    `of_leaves`, too.
    """
    leaves, spec = pytree.tree_flatten(value, is_leaf)
    if not any(isinstance(leaf, OptionalValue) for leaf in leaves):
        return leaves, spec

    def node(leaf: Any) -> Any:
        if not isinstance(leaf, OptionalValue):
            return leaf
        present, payload = leaf.flag_of_optional, leaf.payload_of_optional
        while isinstance(payload, OptionalValue):
            present, payload = present.logical_and(payload.flag_of_optional), payload.payload_of_optional
        if not of_leaves and pytree.tree_structure(payload, is_leaf).is_leaf():
            return leaf if payload is leaf.payload_of_optional else OptionalValue(present, payload)
        return OptionalNode(present, pytree.tree_map(node, payload, is_leaf=is_leaf))

    return pytree.tree_flatten(pytree.tree_map(node, value, is_leaf=is_leaf), is_leaf)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of a value, also of what may be None."""
    return [leaf for leaf in flatten(value, of_leaves=True)[0] if isinstance(leaf, torch.Tensor)]


def unified(
    rows: Sequence[Flat],
    *,
    of_leaves: bool,
    lists: Callable[[Sequence[Flat]], pytree.TreeSpec | None] | None = None,
) -> pytree.TreeSpec | None:
    """The structure that all of these fit, in which what is None in some is an `OptionalNode`.

    None where their structures differ otherwise. `lists` gives the structure of lists that have other
    lengths, and None of any that have one.
    """
    there = [row for row in rows if not _is_none(row)]
    has_nodes = any(_is_node(spec) for _, spec in there)
    if has_nodes or len(there) not in (0, len(rows)):
        held = [(leaves[1:], spec.child(1)) if _is_node(spec) else (leaves, spec) for leaves, spec in there]
        inner = unified(held, of_leaves=of_leaves, lists=lists)
        is_flagged = inner is not None and (not inner.is_leaf() or (of_leaves and not _are_texts(held)))
        if inner is None or _is_node(inner) or not (has_nodes or is_flagged):
            return inner
        return pytree.TreeSpec(OptionalNode, None, [_LEAF, inner])
    first = rows[0][1]
    if all(spec.is_leaf() for _, spec in rows):
        return first
    if lists is not None and all(spec.type is list for _, spec in rows):
        found = lists(rows)
        if found is not None:
            return found
    if not all(_is_alike(spec, first) for _, spec in rows):
        return None
    columns = zip(*map(children, rows), strict=True)
    parts = [unified(column, of_leaves=of_leaves, lists=lists) for column in columns]
    known = [each for each in parts if each is not None]
    return pytree.TreeSpec(first.type, first.context, known) if len(known) == len(parts) else None


def _are_texts(rows: Sequence[Flat]) -> bool:
    """Whether leaves are texts and the like: None is one more of the objects that they may be."""
    return all(is_plain(leaves[0]) or bool(getattr(leaves[0], "options", ())) for leaves, _ in rows)


def _is_node(spec: pytree.TreeSpec) -> bool:
    return spec.type is OptionalNode


def _is_none(row: Flat) -> bool:
    leaves, spec = row
    return spec.is_leaf() and leaves[0] is None


def _is_alike(one: pytree.TreeSpec, other: pytree.TreeSpec) -> bool:
    return (
        one.type is other.type
        and one.num_children == other.num_children
        and bool(one.context == other.context)
    )


def children(row: Flat) -> list[Flat]:
    """What a structure holds."""
    leaves, spec = row
    ends = itertools.accumulate((child.num_leaves for child in spec.children()), initial=0)
    return [
        (leaves[start:end], child)
        for (start, end), child in zip(itertools.pairwise(ends), spec.children(), strict=True)
    ]


def aligned(
    row: Flat,
    wanted: pytree.TreeSpec,
    missing: object,
    lists: Callable[[Flat, pytree.TreeSpec], list[Any] | None] | None = None,
) -> list[Any]:
    """The leaves of a value in the places of a structure that `unified` gave; `missing` in those of None.

    `lists` gives those of a list of another length, and None of any other structure.
    """
    leaves, spec = row
    if spec == wanted and not _is_none(row):
        return list(leaves)
    if not _is_node(wanted):
        if wanted.is_leaf() and spec.is_leaf():
            return list(leaves)
        if lists is not None and (found := lists(row, wanted)) is not None:
            return found
        if not _is_alike(spec, wanted):
            raise ValueError("a value has another structure")
        columns = zip(children(row), wanted.children(), strict=True)
        return [leaf for child, inner in columns for leaf in aligned(child, inner, missing, lists)]
    inner = wanted.child(1)
    if _is_none(row):
        return [False, *[missing] * inner.num_leaves]
    if _is_node(spec):
        return [leaves[0], *aligned((leaves[1:], spec.child(1)), inner, missing, lists)]
    return [True, *aligned(row, inner, missing, lists)]


def roles(spec: pytree.TreeSpec, *, held: bool = False) -> Iterator[Role]:
    """What each leaf of a structure is."""
    if spec.is_leaf():
        yield "held" if held else "plain"
    elif _is_node(spec):
        yield "flag"
        yield from roles(spec.child(1), held=True)
    else:
        for child in spec.children():
            yield from roles(child, held=held)


def may_lack(spec: pytree.TreeSpec) -> bool:
    """Whether a part of a structure may be None."""
    return "flag" in roles(spec)


def open_beside_none(spec: pytree.TreeSpec) -> type | None:
    """The class of objects that can be changed of which a part of a structure may be one, or None."""
    held = [] if spec.is_leaf() else spec.children()
    if _is_node(spec):
        context = spec.child(1).context
        # What tells such an object is its class and the names of its attributes.
        if isinstance(context, tuple) and context and context[0] is spec.child(1).type:
            return spec.child(1).type  # type: ignore[no-any-return]
    return next((kind for kind in map(open_beside_none, held) if kind is not None), None)
