"""What the variables of a branch or a loop become, and for a loop: what they stay from trip to trip.

`forms_of` gives the form that fits the values of all paths. `settle` widens those of a loop until a trip that
starts from them ends with them, each time with a run of the body that puts nothing into the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import rebinding, region_results, tensor_storage
from aotpipe.canonicalize.trace import dry_run, list_bounds, region_sites, runtime_asserts
from aotpipe.canonicalize.values import dynamic_list, refusals
from aotpipe.canonicalize.values.abstract_values import (
    Form,
    Leaf,
    OtherSize,
    Undefined,
    Unlike,
    Variables,
    is_leaf,
    meet,
)
from aotpipe.canonicalize.values.refusals import refusal
from aotpipe.errors import ExportFailed

Values = tuple[Any, ...]
MOST_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class Settled:
    """What the variables of a loop are from trip to trip.

    Attributes:
        forms: Of each.
        names: The memories that each of their tensors may be in.
        seen: What a trip does that starts from them.
    """

    forms: list[Form]
    names: list[region_results.Names]
    seen: dry_run.Seen


@dataclass(frozen=True, slots=True)
class _Note:
    """The same, as the next run of the loop begins with it (`places`)."""

    variables: tuple[str, ...]
    forms: list[Form]
    names: list[region_results.Notes]


def settle(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    *,
    most: Any,
    border: region_results.Border,
    place: region_sites.Place,
) -> Settled:
    """Find what the variables of a loop stay from trip to trip.

    Args:
        test: Of the loop; with the others as `regions.loop` has them.
        body: A trip.
        variables: What they read and assign.
        most: How many trips there are at most.
        start: What it starts from.
        border: Gives the memories numbers.
        place: Keeps what is found.

    Raises:
        ExportFailed: They never settle.
    """
    if place.settled is not None:
        try:
            return _settled(test, body, variables, start, most, border, place)
        except ExportFailed:
            if tensor_storage.are_wanted():
                raise
            # What another run needed may be more than this one does.
            place.settled = None
    return _settled(test, body, variables, start, most, border, place)


def _settled(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    most: Any,
    border: region_results.Border,
    place: region_sites.Place,
) -> Settled:
    at = variables.names
    forms, names, values, own = _begun(variables, start, border, place)
    before = tensor_storage.last_given()
    changing: list[str] = []
    left = MOST_ROUNDS
    last_given: int | None = None
    # A round that changes no form adds to the names, of which there are finitely many: those of the results,
    # those around the loop, and those given before `last_given` was set. Only rounds that change one count.
    while left:
        with runtime_asserts.in_place(), tensor_storage.scope(), region_sites.inside(place):
            if own:
                with dry_run.silent():
                    _, known = carried(forms, own)
                border.register(forms, values, names, known)
            seen = dry_run.seen_of(body, variables, values, test=test, own=own)
        rooms = [list_bounds.room(each, start, values, seen, most) for each in range(len(at))]
        grown = forms_of(at, [start, values, seen.after], rooms)
        begun = border.names(grown, start, rebinding.identity)
        found = region_results.joined(begun, border.names(grown, seen.after, seen.identity_of))
        if all(map(_is_same, forms, grown)):
            if last_given is not None:
                found = border.settled(found, last_given)
            last_given = last_given or tensor_storage.last_given()
            found = region_results.joined(names, found)
            if found == names:
                place.settled = _Note(tuple(at), forms, border.noted(names, begun, before))
                return Settled(forms, names, seen)
        else:
            left -= 1
        for name, one, other in zip(at, forms, grown, strict=True):
            if any(map(_is_longer, one.leaves, other.leaves)):
                error = OtherSize("gets longer in every trip of a loop on a tensor")
                raise refusal(f"{_shown(name)} {error}", error.hint)
        changing = [name for name, a, b in zip(at, forms, grown, strict=True) if not _is_same(a, b)]
        forms, names = grown, found
        values, own = _stood(forms, names)
    raise refusal(
        f"{', '.join(changing)} changes its form in every trip of a loop on a tensor",
        "keep the shape and the dtype of what the loop computes",
    )


def _begun(
    variables: Variables, start: Values, border: region_results.Border, place: region_sites.Place
) -> tuple[list[Form], list[region_results.Names], Values, list[torch.Tensor]]:
    """What the first trip starts from: forms, names, values, and the tensors in these that are its own."""
    forms = forms_of(variables.names, [start])
    note = place.settled
    if note is None or note.variables != tuple(variables.names):
        return forms, border.names(forms, start, rebinding.identity), start, []
    columns = zip(variables.names, start, forms, note.forms, strict=True)
    wider = [_wider(*each) for each in columns]
    begun = border.names(wider, start, rebinding.identity)
    names = begun
    if all(map(_has_same_results, wider, note.forms)):
        names = region_results.joined(begun, border.recalled(note.names, begun))
    if names == begun and all(map(_is_same, forms, wider)):
        return wider, names, start, []
    return wider, names, *_stood(wider, names)


def _stood(forms: Sequence[Form], names: Sequence[region_results.Names]) -> tuple[Values, list[torch.Tensor]]:
    """Values of these forms for a trip to start from, and the tensors in them."""
    with dry_run.silent():
        made = stand_ins(forms, names, [])
        return carried(forms, made)[0], made


def _wider(name: str, value: Any, own: Form, last: Form) -> Form:
    """A variable's form, widened to its last one where that can be."""
    if last.is_constant:
        return own
    if own.spec == last.spec and not last.fitted:
        # What no trip changed is what it is now.
        pairs = zip(last.leaves, own.leaves, strict=True)
        last = replace(last, leaves=tuple(a if isinstance(a, Leaf) else b for a, b in pairs))
    elif not all(isinstance(leaf, Leaf) for leaf in last.leaves):
        return own
    leaves = [leaf for leaf in last.leaves if isinstance(leaf, Leaf)]
    if not all(isinstance(size, int) for leaf in leaves for size in leaf.shape):
        return own
    with dry_run.silent():
        made = iter(last.stand_ins())
        stood = last.value(lambda: next(made))
    try:
        (found,) = forms_of([name], [(value,), (stood,)])
    except ExportFailed:
        return own
    return found if _is_same(found, last) else own


def _has_same_results(left: Form, right: Form) -> bool:
    """Whether names of the one are names of the other."""
    return len(region_results.results(left)) == len(region_results.results(right))


def _is_same(left: Form, right: Form) -> bool:
    if left.optional is not right.optional or left.spec != right.spec:
        return False
    return all(map(_is_same_leaf, left.leaves, right.leaves))


def _is_same_leaf(left: object, right: object) -> bool:
    if isinstance(left, Leaf) and isinstance(right, Leaf):
        return (
            left.dtype == right.dtype
            and tuple(map(str, left.shape)) == tuple(map(str, right.shape))
            and (left.number, left.optional, left.cut) == (right.number, right.optional, right.cut)
        )
    if left is right:
        return True
    return (
        not isinstance(left, Leaf | torch.Tensor)
        and not isinstance(right, Leaf | torch.Tensor)
        and left == right
    )


def _is_longer(before: object, after: object) -> bool:
    """Whether a tensor of which only a run knows the size may have more than it had room for."""
    if not isinstance(before, Leaf) or not isinstance(after, Leaf) or before.cut is None:
        return False
    return before.cut == after.cut and bool(after.shape[before.cut] > before.shape[before.cut])


# Forms and their tensors.


def forms_of(names: Sequence[str], paths: Sequence[Values], rooms: Sequence[Any] = ()) -> list[Form]:
    """The form of each variable, for its values on all paths.

    Args:
        names: Of the variables.
        paths: Their values on each path.
        rooms: How many elements each needs room for, where it is a list that grows.

    Raises:
        ExportFailed: One has no common form.
    """
    forms = []
    rooms = rooms or [None] * len(names)
    for name, room, values in zip(names, rooms, zip(*paths, strict=True), strict=True):
        try:
            may_grow = name.replace(".", "_").isidentifier()
            form = (dynamic_list.form_of(values, room) if may_grow else None) or meet(values)
        except Unlike as error:
            raise refusal(f"{_shown(name)} {error}, where a tensor decides which", error.hint) from None
        if any(isinstance(leaf, Leaf) and leaf.filled for leaf in form.leaves):
            refusals.note(
                "warning",
                "number-became-tensor",
                f"{_shown(name)} is a number on one path and a tensor on another: where eager has the "
                "number, the program has a tensor filled with it",
            )
        if promoted := [leaf for leaf in form.leaves if isinstance(leaf, Leaf) and leaf.promoted]:
            refusals.note(
                "warning",
                "dtype-promoted",
                f"{_shown(name)} has another dtype on each path: in the program it is {promoted[0].dtype} on "
                "all of them",
            )
        if cut := [leaf for leaf in form.leaves if isinstance(leaf, Leaf) and leaf.cut is not None]:
            refusals.note(
                "note",
                "size-from-path",
                f"{_shown(name)} has another size on each path: it is computed with room for "
                f"{cut[0].shape[cut[0].cut or 0]} along dim {cut[0].cut}, and only a run knows its size",
            )
        forms.append(form)
    return forms


def _shown(name: str) -> str:
    """A variable's name; those of the rewriting are no user's."""
    return "what is returned" if "__aotpipe" in name else f"`{name}`"


def tensors_of(forms: Sequence[Form], names: Sequence[str], after: Values) -> list[torch.Tensor]:
    """The graph's part of what variables are after a region.

    Raises:
        ExportFailed: One is another tensor than in the run that saw what the region does: it would be lost.
    """
    for form, name, value in zip(forms, names, after, strict=True):
        if form.optional or form.fitted or isinstance(value, Undefined):
            continue
        pairs = zip(form.leaves, pytree.tree_leaves(value, is_leaf), strict=False)
        if any(isinstance(leaf, torch.Tensor) and leaf is not given for leaf, given in pairs):
            raise refusal(
                f"{_shown(name)} is another tensor each time that a branch or a loop on a tensor is run",
                "assign a new value (`y = y + 1` for `y += 1`), or clone it before",
            )
    return [tensor for form, value in zip(forms, after, strict=True) for tensor in form.tensors(value)]


def values_of(forms: Sequence[Form], tensors: Iterator[torch.Tensor]) -> Values:
    """The variables of which the graph gives these tensors."""
    return tuple(form.value(lambda: next(tensors)) for form in forms)


def carried(forms: Sequence[Form], tensors: Sequence[torch.Tensor]) -> tuple[Values, list[torch.Tensor]]:
    """The variables that tensors hold, and the tensors behind them, which tell their memory."""
    found = iter(tensors)
    return values_of(forms, found), list(found)


def stand_ins(
    forms: Sequence[Form], names: Sequence[region_results.Names], written: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Tensors of the results' kinds."""
    made = [tensor for form in forms for tensor in form.stand_ins()]
    known = [torch.empty((), dtype=torch.int64) for _ in region_results.counted(forms, names)]
    return [*made, *known, *(torch.empty_like(tensor) for tensor in written)]
