"""Joins what the variables of a branch or a loop are on all paths; for a loop, to a fixpoint.

`join_paths` gives the abstract value that fits the values of all paths. `solve` widens those of a loop until
an iteration that starts from them ends with them, each time with a run of the body that puts nothing into the
graph. A list that grows needs room for as many elements as the loop can append: its bound tells how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sympy
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects, rebinding, tensor_storage
from aotpipe.canonicalize.trace import dry_run, region_sites, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import (
    abstract_values,
    dynamic_list,
    dynamic_table,
    element_kinds,
    host_scalars,
    trace,
)
from aotpipe.canonicalize.values.abstract_values import (
    AbstractValue,
    Incompatible,
    Leaf,
    Undefined,
    Variables,
)
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.errors import ExportFailed

Values = tuple[Any, ...]
Fixpoint = tuple[list[AbstractValue], list[tensor_storage.Names], dry_run.EffectSummary, frozenset[int]]
"""Of a loop's variables: abstract values and memories; what an iteration does that starts from them; and the
places of those that are lists to which each iteration appends as many elements as there is room for."""
MOST_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class _Note:
    """A fixpoint as its `region_sites.Site` keeps it: the next run of the loop begins with it."""

    variables: tuple[str, ...]
    abstracts: list[AbstractValue]
    names: list[tensor_storage.Notes]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop whose fixpoint is asked for.

    Attributes:
        test, body, variables: As `regions.loop` has them.
        border: Gives the storages numbers.
    """

    test: Callable[[], object]
    body: Callable[[], None]
    variables: Variables
    start: Values
    most: Any
    border: tensor_storage.Border
    site: region_sites.Site


def solve(loop: Loop) -> Fixpoint:
    """Find what the variables of a loop stay from iteration to iteration.

    Raises:
        ExportFailed: They reach no fixpoint.
    """
    if loop.site.fixpoint_note is not None:
        try:
            return _solve(loop)
        except ExportFailed:
            if trace.current().needs:
                raise
            # What another run needed may be more than this one does.
            loop.site.fixpoint_note = None
    return _solve(loop)


def _solve(loop: Loop) -> Fixpoint:
    variables, start, border, site = loop.variables, loop.start, loop.border, loop.site
    at = variables.names
    abstracts, names, values, own = _begun(variables, start, border, site)
    before = tensor_storage.last_given()
    changing: list[str] = []
    left = MOST_ROUNDS
    last_given: int | None = None
    # A round that changes no abstract value adds to the names, of which there are finitely many: those of the
    # results, those around the loop, and those given before `last_given` was set. Only rounds that change an
    # abstract value count.
    while left:
        with runtime_asserts.in_place(), tensor_storage.scope(), region_sites.entered(site):
            if own:
                with dry_run.unrecorded():
                    _, known = carried(abstracts, own)
                border.register(abstracts, values, names, known)
            owns = site.owns_containers
            dynamic_list.note_shared(values, start)
            summary = dry_run.summarize(loop.body, variables, values, test=loop.test, own=own, owns=owns)
        capacities = [_capacity(each, loop, values, summary) for each in range(len(at))]
        trips = _trips(loop, values, summary)
        grown = join_paths(at, [start, values, summary.after], capacities, trips)
        begun = border.names(grown, start, rebinding.alias_set)
        found = tensor_storage.joined(begun, border.names(grown, summary.after, summary.alias_set_of))
        if all(map(_is_same, abstracts, grown)):
            if last_given is not None:
                found = border.stabilized(found, last_given)
            last_given = last_given or tensor_storage.last_given()
            found = tensor_storage.joined(names, found)
            if found == names:
                _check_first_sizes(loop, values, summary)
                site.fixpoint_note = _Note(tuple(at), abstracts, border.noted(names, begun, before))
                filled = (each for each in range(len(at)) if _is_filled(each, loop, values, summary))
                return abstracts, names, summary, frozenset(filled)
        else:
            left -= 1
        columns = [*zip(at, abstracts, grown, strict=True)]
        for name, one, other in columns:
            if any(map(_is_longer, one.leaves, other.leaves)):
                said = f"{_shown(name)} gets longer in every iteration of a loop on a tensor"
                raise refusal(said, abstract_values.LONGER_HINT)
        changing = [name for name, one, other in columns if not _is_same(one, other)]
        abstracts, names = grown, found
        values, own = _stood(abstracts, names)
    raise refusal(
        f"{', '.join(changing)} changes its form in every iteration of a loop on a tensor",
        "keep the shape and the dtype of what the loop computes",
        "loop-changes-form",
    )


def _check_first_sizes(loop: Loop, values: Values, summary: dry_run.EffectSummary) -> None:
    """Refuse a loop whose later iterations demand a size that a variable has not before the first one.

    torch takes a size that only a run knows for one that is not broadcast, and asserts that it fits: where a
    variable begins with one element and grows to a row, that assert fails in the first iteration.

    Raises:
        ExportFailed: Names the variable. A caller that can run the first iteration apart does so.
    """
    for name, first, value in zip(loop.variables.names, loop.start, values, strict=True):
        for begun, stood in zip(*map(pytree.tree_leaves, (first, value)), strict=False):
            if not isinstance(begun, torch.Tensor) or not isinstance(stood, torch.Tensor):
                continue
            shapes: Iterator[tuple[Any, Any]] = zip(begun.shape, stood.shape, strict=False)
            sizes = {own.node.expr: size for size, own in shapes if not isinstance(own, int)}
            sizes = {own: size for own, size in sizes.items() if isinstance(size, int)}
            for condition in summary.own_conditions if sizes else ():
                if condition.subs(sizes) is sympy.false:
                    raise refusal(
                        f"{_shown(name)} has the shape {tuple(begun.shape)} before a loop on a tensor, and a "
                        "larger one after an iteration",
                        "give it the shape that it has after an iteration before the loop",
                        "loop-changes-form",
                    )


def _begun(
    variables: Variables, start: Values, border: tensor_storage.Border, site: region_sites.Site
) -> tuple[list[AbstractValue], list[tensor_storage.Names], Values, list[torch.Tensor]]:
    """What the first iteration starts from: what another run of the loop needed, where that can be.

    Returns:
        Abstract values, names, values, and the tensors in these that are the iteration's own.
    """
    abstracts = join_paths(variables.names, [start])
    note = site.fixpoint_note
    if note is None or note.variables != tuple(variables.names):
        return abstracts, border.names(abstracts, start, rebinding.alias_set), start, []
    columns = zip(variables.names, start, abstracts, note.abstracts, strict=True)
    wider = [_wider(*each) for each in columns]
    begun = border.names(wider, start, rebinding.alias_set)
    names = begun
    # Names of the one are names of the other only where both have as many results.
    pairs = zip(wider, note.abstracts, strict=True)
    if all(len(tensor_storage.results(a)) == len(tensor_storage.results(b)) for a, b in pairs):
        names = tensor_storage.joined(begun, border.recalled(note.names, begun))
    if names == begun and all(map(_is_same, abstracts, wider)):
        return wider, names, start, []
    return wider, names, *_stood(wider, names)


def _stood(
    abstracts: Sequence[AbstractValue], names: Sequence[tensor_storage.Names]
) -> tuple[Values, list[torch.Tensor]]:
    """Make values of these abstract values for an iteration to start from, with the tensors in them."""
    with dry_run.unrecorded():
        made = stand_ins(abstracts, names, [])
        return carried(abstracts, made)[0], made


def _wider(name: str, value: Any, own: AbstractValue, last: AbstractValue) -> AbstractValue:
    """A variable's abstract value, widened to its last one where that can be."""
    if last.is_constant:
        return own
    if own.spec == last.spec and not last.fitted:
        # What no iteration changed is what it is now.
        pairs = zip(last.leaves, own.leaves, strict=True)
        last = replace(last, leaves=tuple(a if isinstance(a, Leaf) else b for a, b in pairs))
    elif not all(isinstance(leaf, Leaf) for leaf in last.leaves):
        return own
    if not all(isinstance(size, int) for leaf in last.computed for size in leaf.shape):
        return own
    with dry_run.unrecorded():
        made = iter(last.stand_ins())
        stood = last.value(lambda: next(made))
    try:
        (found,) = join_paths([name], [(value,), (stood,)])
    except ExportFailed:
        return own
    return found if _is_same(found, last) else own


def _is_same(left: AbstractValue, right: AbstractValue) -> bool:
    if left.spec != right.spec:
        return False
    return all(map(abstract_values.is_same, left.leaves, right.leaves))


def _is_longer(before: object, after: object) -> bool:
    """Whether a tensor of which only a run knows the size may have more than it had room for."""
    if not isinstance(before, Leaf) or not isinstance(after, Leaf) or before.cut is None:
        return False
    return before.cut == after.cut and bool(after.shape[before.cut] > before.shape[before.cut])


def join_paths(
    names: Sequence[str], paths: Sequence[Values], capacities: Sequence[Any] = (), trips: Any = None
) -> list[AbstractValue]:
    """The abstract value of each variable, for its values on all paths.

    `capacities` tells how many elements each needs room for, where it is a list that grows, and `trips` how
    often a loop runs at most, of which these are the paths.

    Raises:
        ExportFailed: One has no common abstract value.
    """
    abstracts = []
    capacities = capacities or [None] * len(names)
    for name, capacity, values in zip(names, capacities, zip(*paths, strict=True), strict=True):
        try:
            may_grow = name.replace(".", "_").isidentifier()
            grown = element_kinds.abstract_list(values, capacity, trips=trips) if may_grow else None
            grown = grown or dynamic_table.abstract_table(values, capacity, trips=trips)
            abstract = grown or abstract_values.join_values(values)
        except Incompatible as error:
            refused = refusal(
                f"{_shown(name)} {error}, where a tensor decides which",
                error.hint,
                error.code or "paths-differ",
            )
            if effects.holds_same(values):
                raise effects.InnerContainersDiffer(name, _of_inner(name)) from None
            raise refused from None
        if grown is not None and effects.holds_same(values):
            raise effects.InnerContainersDiffer(name, _of_inner(name))
        if any(leaf.filled for leaf in abstract.computed):
            trace.note(
                "warning",
                "number-became-tensor",
                f"{_shown(name)} is a number on one path and a tensor on another: where eager has the "
                "number, the program has a tensor filled with it",
            )
        if promoted := [leaf for leaf in abstract.computed if leaf.promoted]:
            trace.note(
                "warning",
                "dtype-promoted",
                f"{_shown(name)} has another dtype on each path: in the program it is {promoted[0].dtype} on "
                "all of them",
            )
        if cut := [leaf for leaf in abstract.computed if leaf.cut is not None]:
            trace.note(
                "note",
                "size-from-path",
                f"{_shown(name)} has another size on each path: it is computed with room for "
                f"{cut[0].shape[cut[0].cut or 0]} along dim {cut[0].cut}, and only a run knows its size",
            )
        abstracts.append(abstract)
    return abstracts


def _of_inner(name: str) -> ExportFailed:
    return refusal(
        f"{_shown(name)} holds lists, dicts or objects that are other ones on each path, where a tensor "
        "decides which",
        "put a copy there (`list(row)`), or numbers and tensors",
        "paths-differ",
    )


def _shown(name: str) -> str:
    """The name of a variable in a message; users do not know the names that the rewriting makes."""
    return "what is returned" if "__aotpipe" in name else f"`{name}`"


def tensors_of(abstracts: Sequence[AbstractValue], names: Sequence[str], after: Values) -> list[torch.Tensor]:
    """The graph's part of what variables are after a region.

    Raises:
        ExportFailed: One is another tensor than in the run that saw what the region does: it would be lost.
    """
    for abstract, name, value in zip(abstracts, names, after, strict=True):
        if abstract.fitted or isinstance(value, Undefined):
            continue
        pairs = [*zip(abstract.leaves, abstract.places(value), strict=False)]
        if any(isinstance(leaf, torch.Tensor) and leaf is not given for leaf, given in pairs):
            raise refusal(
                f"{_shown(name)} is another tensor each time that a branch or a loop on a tensor is run",
                "assign a new value (`y = y + 1` for `y += 1`), or clone it before",
            )
        if any(type(leaf) in _PLAIN and not _is_known(leaf, given) for leaf, given in pairs):
            raise refusal(
                f"{_shown(name)} is another value each time that a branch or a loop on a tensor is run",
                "compute it from the inputs alone, in the same way each time",
                "paths-differ",
            )
    return operands_of(abstracts, after)


_PLAIN: Final = (bool, int, float, str, type(None))


def _is_known(before: Any, now: Any) -> bool:
    """Whether a value is the one that the run which saw what a region does has left."""
    return type(now) is type(before) and (now == before or (now != now and before != before))  # NaN


def operands_of(abstracts: Sequence[AbstractValue], values: Values) -> list[torch.Tensor]:
    """The graph's part of the variables."""
    columns = zip(abstracts, values, strict=True)
    return [tensor for abstract, value in columns for tensor in abstract.tensors(value)]


def values_of(abstracts: Sequence[AbstractValue], tensors: Iterator[torch.Tensor]) -> Values:
    """The variables of which the graph gives these tensors."""
    return tuple(abstract.value(lambda: next(tensors)) for abstract in abstracts)


def carried(
    abstracts: Sequence[AbstractValue], tensors: Sequence[torch.Tensor]
) -> tuple[Values, list[torch.Tensor]]:
    """The variables that tensors hold, and the tensors behind them, which tell their memory."""
    found = iter(tensors)
    return values_of(abstracts, found), list(found)


def stand_ins(
    abstracts: Sequence[AbstractValue], names: Sequence[tensor_storage.Names], written: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Tensors of the results' kinds."""
    made = [tensor for abstract in abstracts for tensor in abstract.stand_ins()]
    known = [torch.empty((), dtype=torch.int64) for _ in tensor_storage.counted(abstracts, names)]
    return [*made, *known, *(torch.empty_like(tensor) for tensor in written)]


def _is_filled(at: int, loop: Loop, values: Values, summary: dry_run.EffectSummary) -> bool:
    """Whether a variable is a list that is as long as its room if `loop.most` iterations run."""
    start, items, after = (each[at] for each in (loop.start, values, summary.after))
    if loop.most is None or not all(type(each) is list for each in (start, items, after)):
        return False
    if len(items) != 1 or not dynamic_list.is_dynamic_list(items) or not dynamic_list.is_dynamic_list(after):
        return False
    if after[0].count is not items[0].count or dynamic_list.is_dynamic_list(after[1:]):
        return False
    return all(each.is_full for each in start if type(each) is dynamic_list.DynamicList)


def _capacity(at: int, loop: Loop, values: Values, summary: dry_run.EffectSummary) -> Any:
    """How many elements a variable needs room for, if it is a list that grows; else None.

    `values` are what an iteration started from, which `summary` tells of.
    """
    most = loop.most
    columns = [each[at] for each in (loop.start, values, summary.after)]
    if any(map(dynamic_table.is_dynamic_table, columns)):
        columns = [[] if isinstance(each, Undefined) else dynamic_table.segments(each) for each in columns]
    if not all(type(each) is list for each in columns):
        return None
    start, items, after = columns
    growth = dynamic_list.slots(after) - dynamic_list.slots(items)
    if isinstance(growth, torch.SymInt) and growth.node.expr.is_number:
        growth = int(growth)  # of two capacities that follow one Dim
    if not isinstance(growth, int):
        raise refusal(
            "a list grows in a loop by a number of elements that varies",
            "append the same number in each iteration",
            "list-grows",
        )
    if growth <= 0:
        return dynamic_list.slots(items)
    first = dynamic_list.slots(start)
    if most is not None:
        return first + most * growth
    own = [
        limit.value - off
        for limit, base, off in _limits(summary)
        if not limit.floor and _is_count_of(items, base)
    ]
    if own:
        return dynamic_list.sym_max(first, min(own) - 1 + growth)
    counted = _counted(loop, values, summary)
    if counted is not None:
        return first + counted * growth
    if not dynamic_list.is_dynamic_list(items):
        return dynamic_list.slots(after)  # the next round tells
    room = _assumed_room(loop.start, values, summary)
    named = _shown(loop.variables.names[at])
    said = (
        f"{named} grows in a loop whose number of iterations no counter proves: it has room for {{}} elements"
    )
    if growth > _MOST_ROOM // room:
        raise refusal(
            f"{named} is made of its own parts in each iteration, and nothing says how long it gets",
            "change it where it is: `items[i] = value`, `del items[i]`",
            "list-grows",
        )
    # As many rounds as the fixpoint takes have the same room.
    wanted = max(first + room * growth, dynamic_list.slots(items))
    found = dynamic_list.Assumed(wanted, said.format(wanted))
    hint = (
        "a call that needs more fails an assert; let the loop's test say `len(items) < N` to give it another"
    )
    trace.note("warning", "list-room-assumed", f"{found.said}; {hint}")
    return found


def _counted(loop: Loop, values: Values, summary: dry_run.EffectSummary) -> int | None:
    """How many iterations a counter that the loop's test compares allows; None where there is none."""
    counts = [
        -(-(limit.value - off - begun) // step)
        for limit, base, off in _limits(summary)
        for begun, step in _steps(base, loop.start, values, summary.after, down=limit.floor)
    ]
    return max(0, min(counts)) if counts else None


def _trips(loop: Loop, values: Values, summary: dry_run.EffectSummary) -> Any:
    """How many iterations a loop has at most, or is assumed to have."""
    counted = _counted(loop, values, summary) if loop.most is None else loop.most
    if counted is not None:
        return counted
    return dynamic_list.Assumed(_assumed_room(loop.start, values, summary), "")


# Iterations of a loop that empties a list, or whose test says nothing of a counter or of a length.
_UNCOUNTED: Final = 256
# More elements than this come of a list that each round of the fixpoint finds longer by its own length.
_MOST_ROOM: Final = 2**24


def _assumed_room(start: Values, values: Values, summary: dry_run.EffectSummary) -> int:
    """How many iterations a loop may have whose counter moves where a tensor decides, or which has none."""
    found: list[int] = []
    for limit, base, off in _limits(summary):
        for first, given in zip(start, values, strict=True):
            # Of what has no lower bound, 0 is taken for it: the assert tells.
            begun = first if isinstance(first, int) else host_scalars.upper_bound(first) if limit.floor else 0
            if given is base and begun is not None:
                found.append(max(0, begun + off - limit.value if limit.floor else limit.value - off - begun))
    return sum(found) if found else _UNCOUNTED


def most_in_range(start: Any, stop: Any, step: int) -> Any:
    """How many numbers a range has at most, as an int or a SymInt; None where only a run knows."""
    ends = [host_scalars.upper_bound(end) if isinstance(end, torch.Tensor) else end for end in (start, stop)]
    if step > 0 and isinstance(start, int) and isinstance(ends[1], int):
        return len(range(start, ends[1], step))
    if step < 0 and isinstance(ends[0], int) and isinstance(stop, int):
        return len(range(ends[0], stop, step))
    if any(isinstance(end, torch.Tensor) or torch_functions.is_traced(end) for end in (start, stop)):
        return None
    away = stop - start if step > 0 else start - stop
    return dynamic_list.sym_max((away + abs(step) - 1) // abs(step), 0)


def _limits(summary: dry_run.EffectSummary) -> Iterator[tuple[host_scalars.Limit, torch.Tensor, int]]:
    for limit in summary.limits:
        yield (limit, *host_scalars.from_base(limit.number))


def _is_count_of(items: list[Any], base: torch.Tensor) -> bool:
    return len(items) == 1 and dynamic_list.is_dynamic_list(items) and items[0].count is base


def _steps(
    base: torch.Tensor, start: Values, values: Values, after: Values, *, down: bool
) -> Iterator[tuple[int, int]]:
    """The first value of an iteration's counter (the highest, if it goes down), and what each one adds."""
    for first, given, last in zip(start, values, after, strict=True):
        begun = host_scalars.upper_bound(first) if down or isinstance(first, int) else None
        if given is base and begun is not None:
            step = host_scalars.distance(base, last)
            if step is not None and (step < 0 if down else step > 0):
                yield begun, step
        if (
            not down
            and type(given) is list
            and _is_count_of(given, base)
            and not dynamic_list.is_dynamic_list(first)
        ):
            added = last[1:] if dynamic_list.is_dynamic_list(last) and last[0].count is base else []
            if added and not dynamic_list.is_dynamic_list(added):
                yield len(first), len(added)
