"""Puts branches and loops on traced tensors into the graph that torch.export traces.

A region is Python code that assigns variables. It is run twice (`running`): once to see what it touches, with
nothing put into the graph, and once inside torch's own control-flow op, with the tensors that it took from
outside replaced by the op's operands. The ops themselves do not look into closures.

A tensor from outside that a region writes in place is copied inside, and the copy is written back after it.
A list, a dict or an object that a region changes is one more variable. A path that raises becomes an assert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import torch
from torch._higher_order_ops.while_loop import while_loop_op  # the public one starts a compiler

from aotpipe.canonicalize.python import (
    aliases,
    bounds,
    decisions,
    dispatch,
    effects,
    growing,
    identities,
    raising,
    refusing,
    returning,
    running,
    sharing,
)
from aotpipe.canonicalize.python.maybes import there
from aotpipe.canonicalize.python.refusing import refusal
from aotpipe.canonicalize.python.values import (
    Form,
    Leaf,
    Unlike,
    Variables,
    meet,
)

_cond: Final[Any] = torch.ops.higher_order.cond
_while_loop: Final[Any] = while_loop_op
Values = tuple[Any, ...]
_MOST_ROUNDS: Final = 8


# Branches.


def branch(test: Any, then: Callable[[], None], other: Callable[[], None], variables: Variables) -> None:
    """`if test: then() else: other()` as one op; sets the variables to what comes of it."""
    for _ in range(_MOST_ROUNDS):
        try:
            _branch(test, then, other, variables)
        except effects.Changed as changed:
            variables = _with_containers(variables, changed)
        else:
            return
    raise _endless_change(variables)


def _branch(test: Any, then: Callable[[], None], other: Callable[[], None], variables: Variables) -> None:
    start = variables.get()
    border = sharing.Border()
    seen: list[running.Seen] = []
    for body, rest, wanted in ((then, other, False), (other, then, True)):
        try:
            with raising.collected() as claims, there(test, holds=not wanted):
                seen.append(running.seen_of(body, variables, start))
            seen[-1].claims += [said for _, said in claims]
        except Exception as error:
            if not raising.is_raised(error):
                raise
            decisions.statement("raises", (then, other), wanted=wanted)
            # What goes on is the other path, or what is around this branch raises too.
            raising.require(test, error, holds=wanted)
            rest()
            return
    forms = _forms(variables.names, [each.after for each in seen])
    names = sharing.joined(*(border.names(forms, each.after, each.identity_of) for each in seen))
    decisions.statement(
        "branch",
        (then, other),
        names=tuple(variables.names),
        forms=tuple(forms),
        before=start,
        after=tuple(each.after for each in seen),
    )
    written = _union(each.written for each in seen)
    outer = _union(each.outer for each in seen)
    chosen = dispatch.predicate(test)
    claimed = [said for each in seen for said in each.claims]
    if all(form.is_constant for form in forms) and not written and not claimed:
        variables.set(_values(forms, iter(())))
        return

    def traced(path: int, body: Callable[[], None]) -> Callable[..., tuple[torch.Tensor, ...]]:
        def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            replaced = running.replaced(outer, operands, written)
            with replaced as now, raising.collected() as claims, there(test, holds=path == 0):
                after = running.ran(body, variables, start)
                results = [
                    tensor for form, value in zip(forms, after, strict=True) for tensor in form.tensors(value)
                ]
                results += border.known(forms, after, names, aliases.identity)
                held = [truth for truth, _ in claims]
                # What only the other path claims holds on this one.
                other = [torch.full((), True) for _ in seen[1 - path].claims]
                truths = [*held, *other] if path == 0 else [*other, *held]
                return running.apart([*results, *(now(tensor) for tensor in written), *truths])

        return run

    if running.is_silent():
        results = [*_stand_ins(forms, names, written), *(torch.full((), True) for _ in claimed)]
    else:
        results = list(_cond(chosen, traced(0, then), traced(1, other), tuple(outer)))
    for truth, said in zip(results[len(results) - len(claimed) :], claimed, strict=True):
        raising.claim(truth, said)
    results = results[: len(results) - len(claimed)]
    _leave(border, forms, names, written, results, variables)


# Loops.


def loop(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    *,
    most: Any = None,
) -> None:
    """`while test(): body()` as one op; sets the variables to what comes of it.

    Args:
        test: A function of the variables.
        body: One that assigns them.
        variables: What they read and assign.
        most: How many trips there are at most, where that is known.
    """
    for _ in range(_MOST_ROUNDS):
        try:
            _loop(test, body, variables, most)
        except effects.Changed as changed:
            variables = _with_containers(variables, changed)
        else:
            return
    raise _endless_change(variables)


def _loop(test: Callable[[], object], body: Callable[[], None], variables: Variables, most: Any) -> None:
    start = variables.live()
    border = sharing.Border()
    try:
        forms, names, seen = _settled(test, body, variables, start, most, border)
    except Exception as error:
        if not raising.is_raised(error):
            raise
        # Each trip raises: there is none.
        raising.require(test(), error, holds=False)
        return
    decisions.statement(
        "loop",
        (body, test),
        names=tuple(variables.names),
        forms=tuple(forms),
        before=start,
        after=(seen.after,),
    )
    written = seen.written
    carried = [tensor for form, value in zip(forms, start, strict=True) for tensor in form.tensors(value)]
    carried += border.known(forms, start, names, aliases.identity)
    state = [*carried, *written]
    outer = [tensor for tensor in seen.outer if all(tensor is not each for each in written)]

    def inside(operands: Sequence[torch.Tensor]) -> tuple[Values, list[torch.Tensor], Any]:
        """The variables, what tells their memory, and the replacement of tensors from outside."""
        # A body may not write what it is given.
        given = [each.clone() for each in operands] if seen.writes_own else operands
        values, known = _carried(forms, given[: len(carried)])
        kept = operands[len(carried) : len(state)]
        return values, known, running.replaced([*written, *outer], [*kept, *operands[len(state) :]], written)

    def going(*operands: torch.Tensor) -> torch.Tensor:
        values, known, replaced = inside(operands)
        with replaced, raising.in_place():
            border.register(forms, values, names, known)
            return running.apart([running.tested(test, variables, values)])[0]

    def trip(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, known, replaced = inside(operands)
        with replaced as now, raising.in_place():
            border.register(forms, values, names, known)
            after = running.ran(body, variables, values)
            results = [
                tensor for form, value in zip(forms, after, strict=True) for tensor in form.tensors(value)
            ]
            results += border.known(forms, after, names, aliases.identity)
            return running.apart([*results, *(now(tensor) for tensor in written)])

    if running.is_silent():
        results = _stand_ins(forms, names, written)
    else:
        results = list(_while_loop(going, trip, running.apart(state), tuple(outer)))
    _leave(border, forms, names, written, results, variables)


def _with_containers(variables: Variables, changed: effects.Changed) -> Variables:
    """The variables, and what the containers that a region changes hold."""
    containers = [each for _, each in changed.containers]
    if any(isinstance(each, set) for each in containers) or effects.lost(containers):
        raise refusal(
            f"a branch or a loop on a tensor changes {changed} in place",
            "assign a new value, or keep tensors in buffers of the module",
        )
    split = len(variables.names)

    def get() -> Values:
        return (*variables.get(), *(effects.contents(each, changed.known) for each in containers))

    def set_(values: Values) -> None:
        variables.set(values[:split])
        for container, value in zip(containers, values[split:], strict=True):
            returning.check_placed(container, value)
            effects.fill(container, value)

    names = (*variables.names, *(name for name, _ in changed.containers))
    return Variables(get, set_, names, variables.watched, variables.dead)


def _endless_change(variables: Variables) -> Exception:
    return refusal(
        f"a branch or a loop on a tensor changes too many things: {', '.join(variables.names)}",
        "assign new values in place of changing objects",
    )


def _settled(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    most: Any,
    border: sharing.Border,
) -> tuple[list[Form], list[sharing.Names], running.Seen]:
    """The forms and the memories that the variables keep from trip to trip, and what a trip touches."""
    values = start
    stand_ins: list[torch.Tensor] = []
    at = variables.names
    forms = grown = _forms(at, [start])
    names = border.names(forms, start, aliases.identity)
    left = _MOST_ROUNDS
    last_given: int | None = None
    while left:
        with raising.in_place(), identities.scope():
            if stand_ins:
                border.register(forms, values, names, _carried(forms, stand_ins)[1])
            seen = running.seen_of(body, variables, values, test=test, own=stand_ins)
        rooms = [bounds.room(place, start, values, seen, most) for place in range(len(at))]
        grown = _forms(at, [start, values, seen.after], rooms)
        found = sharing.joined(
            border.names(grown, start, aliases.identity), border.names(grown, seen.after, seen.identity_of)
        )
        if all(map(_is_same, forms, grown)):
            if last_given is not None:
                found = border.settled(found, last_given)
            last_given = last_given or identities.last_given()
            found = sharing.joined(names, found)
            if found == names:
                return forms, names, seen
        else:
            left -= 1
        forms, names = grown, found
        with running.silent():
            stand_ins = _stand_ins(forms, names, [])
        values, _ = _carried(forms, stand_ins)
    changing = [name for name, a, b in zip(at, forms, grown, strict=True) if not _is_same(a, b)]
    raise refusal(
        f"{', '.join(changing)} changes its form in every trip of a loop on a tensor",
        "keep the shape and the dtype of what the loop computes",
    )


def _is_same(left: Form, right: Form) -> bool:
    if left.optional is not right.optional:
        return False
    return left.spec == right.spec and all(
        (
            a.dtype == b.dtype
            and tuple(map(str, a.shape)) == tuple(map(str, b.shape))
            and (a.number, a.optional) == (b.number, b.optional)
        )
        if isinstance(a, Leaf) and isinstance(b, Leaf)
        else a is b
        or (not isinstance(a, Leaf | torch.Tensor) and not isinstance(b, Leaf | torch.Tensor) and a == b)
        for a, b in zip(left.leaves, right.leaves, strict=True)
    )


# Forms and results.


def _forms(names: Sequence[str], paths: Sequence[Values], rooms: Sequence[Any] = ()) -> list[Form]:
    forms = []
    rooms = rooms or [None] * len(names)
    for name, room, values in zip(names, rooms, zip(*paths, strict=True), strict=True):
        try:
            form = (growing.form_of(values, room) if name.isidentifier() else None) or meet(values)
        except Unlike as error:
            raise refusal(
                f"{_shown(name)} {error}, where a tensor decides which", "give it one form on every path"
            ) from None
        if any(isinstance(leaf, Leaf) and leaf.filled for leaf in form.leaves):
            refusing.note(
                "warning",
                "number-became-tensor",
                f"{_shown(name)} is a number on one path and a tensor on another: where eager has the "
                "number, the program has a tensor filled with it",
            )
        forms.append(form)
    return forms


def _shown(name: str) -> str:
    """A variable's name; those of the rewriting are no user's."""
    return "what is returned" if "__aotpipe" in name else f"`{name}`"


def _values(forms: Sequence[Form], tensors: Iterator[torch.Tensor]) -> Values:
    return tuple(form.value(lambda: next(tensors)) for form in forms)


def _carried(forms: Sequence[Form], tensors: Sequence[torch.Tensor]) -> tuple[Values, list[torch.Tensor]]:
    """The variables that tensors hold, and the tensors behind them, which tell their memory."""
    found = iter(tensors)
    return _values(forms, found), list(found)


def _stand_ins(
    forms: Sequence[Form], names: Sequence[sharing.Names], written: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Tensors of the results' kinds."""
    made = [tensor for form in forms for tensor in form.stand_ins()]
    known = [torch.empty((), dtype=torch.int64) for _ in sharing.counted(forms, names)]
    return [*made, *known, *(torch.empty_like(tensor) for tensor in written)]


def _leave(
    border: sharing.Border,
    forms: Sequence[Form],
    names: Sequence[sharing.Names],
    written: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    variables: Variables,
) -> None:
    """Set the variables to a region's results, and write back what it wrote."""
    split = len(results) - len(written)
    with aliases.told():
        for tensor, result in zip(written, results[split:], strict=True):
            tensor.copy_(result)
    values, known = _carried(forms, results[:split])
    variables.set(values)
    border.register(forms, values, names, known)


def _union(lists: Iterable[list[torch.Tensor]]) -> list[torch.Tensor]:
    found = {id(tensor): tensor for tensors in lists for tensor in tensors}
    return list(found.values())


__all__ = ["branch", "loop"]
