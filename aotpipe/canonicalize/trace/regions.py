"""Puts branches and loops on traced tensors into the graph that torch.export traces.

A region is Python code that assigns variables. It is run twice (`dry_run`): once to see what it touches, with
nothing put into the graph, and once inside torch's own control-flow op, with the tensors that it took from
outside replaced by the op's operands. The ops themselves do not look into closures.

A tensor from outside that a region writes in place is copied inside, and the copy is written back after it.
A list, a dict or an object that a region changes is one more variable. A path that raises becomes an assert.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch._higher_order_ops.while_loop import while_loop_op  # the public one starts a compiler
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects, rebinding, tensor_storage, views
from aotpipe.canonicalize.trace import (
    decisions,
    dry_run,
    fixpoint,
    raised_state,
    region_sites,
    return_values,
    runtime_asserts,
    torch_functions,
)
from aotpipe.canonicalize.trace.dry_run import Values
from aotpipe.canonicalize.trace.runtime_asserts import add_size_asserts, sizes_collected
from aotpipe.canonicalize.values import host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import (
    UNDEFINED,
    AbstractValue,
    Undefined,
    Variables,
    is_same,
)
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.dynamic_list import note_shared
from aotpipe.canonicalize.values.optional_values import OptionalValue, assume, assuming, imply_joined
from aotpipe.canonicalize.values.structures import is_leaf
from aotpipe.canonicalize.values.tensor_subclasses import plain
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.errors import ExportFailed

_cond: Final[Any] = torch.ops.higher_order.cond
_while_loop: Final[Any] = while_loop_op
_NO_WAYS: Final[runtime_asserts.Ways] = MappingProxyType({})
_MOST_WAYS: Final = 8


def branch(
    test: Any,
    then: Callable[[], None],
    other: Callable[[], None],
    variables: Variables,
    *,
    of_try: bool = False,
) -> None:
    """`if test: then() else: other()` as one op; sets the variables to what comes of it."""
    places = runtime_asserts.places(of_try=of_try)
    if (decided := runtime_asserts.decision(places)) is not None:
        with assuming(test, holds=decided):
            (then if decided else other)()
        return

    def put(found: Variables, site: region_sites.Site) -> None:
        _branch(test, then, other, found, site, places, variables)

    _with_changed_containers(variables, lambda each: each.get(), put, is_loop=False)


def _branch(
    test: Any,
    then: Callable[[], None],
    other: Callable[[], None],
    variables: Variables,
    site: region_sites.Site,
    places: dict[runtime_asserts.Decisions, runtime_asserts.Place],
    assigned: Variables,
) -> None:
    """A branch whose variables are those that its statements assign, and what it changes in place."""
    start = variables.get()
    border = tensor_storage.Border()
    summaries: list[dry_run.EffectSummary] = []
    for body, rest, holds in ((then, other, True), (other, then, False)):
        try:
            summaries.append(_summary(test, body, variables, start, site, holds=holds))
        except (runtime_asserts.Split, Exception) as error:  # noqa: BLE001  # raised again below
            _raise_unless_asserted(error, places, test)
            decisions.statement("raises", (then, other), wanted=not holds)
            if raised_state.writes_before(error):
                _keep_writes(test, body, assigned, holds=holds)
            # What goes on is the other path, or what is around this branch raises too.
            lasts = runtime_asserts.require(test, error, holds=not holds)
            with assuming(test, holds=not holds), trace.in_model():
                rest()
            if lasts and not dry_run.is_unrecorded():
                assume(test, holds=not holds)
            return
    paths = [each.after for each in summaries]
    runtime_asserts.split_containers(variables.names, paths, places, test)
    try:
        abstracts = fixpoint.join_paths(variables.names, paths)
    except ExportFailed as refused:
        runtime_asserts.split_paths(refused, places, test)
    names = tensor_storage.joined(
        *(border.names(abstracts, each.after, each.alias_set_of) for each in summaries)
    )
    decisions.statement(
        "branch",
        (then, other),
        names=tuple(variables.names),
        abstracts=tuple(abstracts),
        before=start,
        after=tuple(paths),
    )
    for each in summaries:
        dry_run.note_sizes(each, partial(fixpoint.operands_of, abstracts, each.after))
    shared = views.shared_memory(
        _union(each.outer for each in summaries), _union(each.written for each in summaries)
    )
    outer, written = shared.outer, shared.written
    chosen = plain(torch_functions.predicate(test))
    for each, holds in zip(summaries, (True, False), strict=True):
        add_size_asserts(each.size_conditions, chosen, holds=holds)
    claimed = [said for each in summaries for said in each.asserts]
    if all(abstract.is_constant for abstract in abstracts) and not written and not claimed:
        _set(variables, fixpoint.values_of(abstracts, iter(())), paths)
        return

    def traced(path: int, body: Callable[[], None]) -> Callable[..., tuple[torch.Tensor, ...]]:
        def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            replaced = dry_run.replaced(outer, operands[: len(outer)], shared)
            inner, assumed = region_sites.entered(site, path == 0), assuming(test, holds=path == 0)
            with inner, replaced as now, runtime_asserts.collected() as asserts, assumed:
                with sizes_collected():
                    after = dry_run.run_region(body, variables, start)
                results = fixpoint.tensors_of(abstracts, variables.names, after)
                results += border.known(abstracts, after, names, rebinding.alias_set)
                held = runtime_asserts.padded(asserts, len(summaries[path].asserts))
                # What only the other path claims holds on this one.
                other = [torch.full((), True) for _ in summaries[1 - path].asserts]
                truths = [*held, *other] if path == 0 else [*other, *held]
                return dry_run.unaliased([*results, *(now(tensor) for tensor in written), *truths])

        return run

    if dry_run.is_unrecorded():
        dry_run.note_read(chosen)
        results = [*fixpoint.stand_ins(abstracts, names, written), *(torch.full((), True) for _ in claimed)]
    else:
        operands = (*map(plain, outer), *dry_run.sizes_of(summaries, outer))
        # torch runs the paths, and then the graphs of them.
        with sizes_collected(), decisions.annotated((then, other)), trace.in_torch():
            results = list(_cond(chosen, traced(0, then), traced(1, other), operands))
    split = len(results) - len(claimed)
    _leave(border, abstracts, names, written, results[:split], variables, paths)
    # The state is by now what a path left at an assert that failed in it.
    for truth, said in zip(results[split:], claimed, strict=True):
        runtime_asserts.add_assert(truth, said)
    _note_upper_bounds(variables, paths)
    for flag, then_, other_ in zip(variables.get(), *paths, strict=True):
        imply_joined(flag, test, then_, other_)


def _keep_writes(test: Any, body: Callable[[], None], variables: Variables, *, holds: bool) -> None:
    """Put what a path writes to the state before it raises into the graph; all else of it is dropped."""
    start = variables.get()
    # Attributes are variables like those of the function, which nothing reads once it has raised.
    places = [at for at, name in enumerate(variables.names) if not name.isidentifier()]

    def get() -> Values:
        found = variables.get()
        return tuple(found[at] for at in places)

    def set_(values: Values) -> None:
        found = list(start)
        for at, value in zip(places, values, strict=True):
            found[at] = value
        variables.set(tuple(found))

    def raising() -> None:
        try:
            body()
        except Exception as error:
            if not runtime_asserts.is_raised(error):
                raise
        set_(get())

    paths = (raising, _nothing) if holds else (_nothing, raising)
    names = tuple(variables.names[at] for at in places)
    try:
        branch(test, *paths, Variables(get, set_, names, variables.watched))
    except ExportFailed:
        raised_state.warn("the state")


def _nothing() -> None:
    """What the other path of a branch does."""


def _summary(
    test: Any,
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    site: region_sites.Site,
    *,
    holds: bool,
) -> dry_run.EffectSummary:
    """What the path of a branch does on which its test has this truth."""
    path = region_sites.entered(site, holds)
    with path, runtime_asserts.collected() as asserts, assuming(test, holds=holds):
        found = dry_run.summarize(body, variables, start)
    found.asserts += [said for _, said in asserts]
    return found


def attempt(body: Callable[[], None], variables: Variables, *, of_paths: bool = False) -> None:
    """`body()`, a `try` statement: a branch, where a tensor decides whether it comes to a handler.

    With `of_paths` it is other statements, and a branch where a tensor decides between values that have no
    common form.
    """
    with runtime_asserts.inside_try():
        _attempt(body, variables, _NO_WAYS, of_paths=of_paths)


def _attempt(
    body: Callable[[], None], variables: Variables, taken: runtime_asserts.Ways, *, of_paths: bool
) -> None:
    """Run a `try` once for each way through it; `taken` says which way this run takes.

    What decides is computed by a run up to there, of which nothing else is left.
    """
    start = variables.get()
    summary = dry_run.EffectSummary()
    if dry_run.is_unrecorded():
        if (found := _unsplit(body, variables, start, taken, of_paths=of_paths)) is None:
            return
    else:
        with runtime_asserts.rehearsing(taken, of_paths=of_paths) as decisions:
            try:
                dry_run.summarize(body, variables, start, summary=summary)
            except (ExportFailed, return_values.Unwritten):
                raise
            except (runtime_asserts.Split, Exception):  # noqa: BLE001, S110  # the run that counts raises it again
                pass
        found = decisions.split
    if found is None:
        with runtime_asserts.deciding(taken, of_paths=of_paths) as decisions:
            try:
                body()
            except runtime_asserts.Split as split:
                if split.decisions is not decisions:
                    raise
        if decisions.split:
            raise refusal(
                "a `try` takes another way each time it is traced",
                "decide with `if` and `else` in place of `try` and `except`",
                "paths-differ",
            )
        return
    if found.refused is not None and (found.place is None or len(taken) >= _MOST_WAYS):
        raise found.refused
    if found.place is None:
        raise refusal(
            "what the test of a loop on a tensor raises is caught outside of the loop",
            "let the `try` stand inside of the loop, or leave the loop with `break`",
            "paths-differ",
        )
    if len(taken) >= _MOST_WAYS:
        raise refusal(
            f"tensors decide at more than {_MOST_WAYS} places whether the body of one `try` raises",
            "let each `try` hold what it is for, or decide with `if` and `else`",
            "paths-differ",
        )
    place = found.place
    test = found.test
    if not dry_run.is_unrecorded():
        test = _decides(body, variables, start, taken, summary, of_paths=of_paths)

    def way(truth: bool) -> Callable[[], None]:
        return lambda: _attempt(body, variables, {**taken, place: truth}, of_paths=of_paths)

    branch(test, way(True), way(False), variables, of_try=True)


def path_scope(body: Callable[[], None], variables: Variables) -> None:
    """`body()`: a branch, where a tensor decides between values that have no common form."""

    def scoped() -> None:
        with runtime_asserts.path_scope():
            body()

    attempt(scoped, variables, of_paths=True)


def _unsplit(
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    taken: runtime_asserts.Ways,
    *,
    of_paths: bool,
) -> runtime_asserts.Split | None:
    """Run a `try` in a run of which nothing is recorded; where a tensor decides, it is taken back.

    One run tells both what decides and what comes of it: with two of each, those inside of others would be
    run twice as often at each level.
    """
    snapshot = effects.Snapshot([*zip(variables.names, start, strict=True), *variables.watched()])
    with runtime_asserts.trying(taken, of_paths=of_paths) as decisions:
        try:
            body()
        except runtime_asserts.Split as split:
            if split.decisions is not decisions:
                raise
        except Exception:
            if decisions.split is None:
                raise
    if decisions.split is not None:
        snapshot.restore()
        snapshot.forget()
        variables.set(start)
    return decisions.split


def _decides(
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    taken: runtime_asserts.Ways,
    summary: dry_run.EffectSummary,
    *,
    of_paths: bool,
) -> torch.Tensor:
    """What decides on the way that a run of a `try` takes next, which is put into the graph alone."""
    shared = views.shared_memory(summary.outer, summary.written)
    copied = dry_run.replaced(shared.written, shared.written, shared)
    rehearsing = runtime_asserts.rehearsing(taken, of_paths=of_paths)
    with rehearsing as decisions, copied, suppress(runtime_asserts.Split, Exception):
        dry_run.run_region(body, variables, start)
    assert decisions.split is not None, "a run of a `try` goes another way the second time"
    test: torch.Tensor = decisions.split.test
    return test


def _raise_unless_asserted(
    error: BaseException, places: dict[runtime_asserts.Decisions, runtime_asserts.Place], test: Any
) -> None:
    """Raise what a path of a branch raised, or a split of a `try` around it; not what eager raises, too."""
    if isinstance(error, runtime_asserts.Split):
        if error.place is not None or error.decisions not in places:
            raise error
        place = places[error.decisions]
        raise runtime_asserts.Split(error.decisions, place, test, error.refused) from None
    if not runtime_asserts.is_raised(error):
        runtime_asserts.refuse_unexplained(error)
        raise error
    if runtime_asserts.is_caught(error):
        runtime_asserts.split(error, places, test)


def _note_upper_bounds(variables: Variables, paths: Sequence[Values]) -> None:
    """A number is at most what it is at most on either path, and one of those that it may be there."""
    for value, given in zip(variables.get(), zip(*paths, strict=True), strict=True):
        options = [host_scalars.choices(each) for each in given]
        if host_scalars.is_host_scalar(value) and all(options):
            host_scalars.note_choices(value, sorted({each for values in options for each in values}))
        highest = [top for each in given if (top := host_scalars.upper_bound(each)) is not None]
        if host_scalars.is_host_scalar(value) and len(highest) == len(given):
            host_scalars.note_upper_bound(value, max(highest))


def loop(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    *,
    most: Any = None,
    runs_most: Callable[[], bool] = lambda: False,
    ends_at_asserts: bool = False,
) -> None:
    """`while test(): body()` as one op; sets the variables to what comes of it.

    `most` is how many iterations there are at most, where that is known; `runs_most` tells, once the loop was
    traced, whether there are as many in every call. `ends_at_asserts` where the body itself keeps its asserts
    from the graph, and an iteration that fails one is the last.
    """

    def put(found: Variables, site: region_sites.Site) -> None:
        _loop(test, body, found, most, site, runs_most=runs_most, ends_at_asserts=ends_at_asserts)

    try:
        _with_changed_containers(variables, Variables.live, put, is_loop=True)
    except _AssertsAfterWrites:
        _asserting_loop(test, body, variables, most)
    except runtime_asserts.Split as split:
        if split.place is not None:
            raise
        split.decisions.split = None
        if split.refused is not None:
            raise split.refused from None
        _raising_loop(test, body, variables, most, runtime_asserts.kinds_of(split))


class _AssertsAfterWrites(Exception):
    """An iteration of a loop may fail an assert after something was written to the state."""


def _asserting_loop(
    test: Callable[[], object], body: Callable[[], None], variables: Variables, most: Any
) -> None:
    """A loop that ends at the iteration which fails an assert; the asserts come after it."""
    numbers: dict[str, int] = {}
    failed: list[Any] = [0]  # the number of the assert, from 1

    def iteration() -> None:
        with runtime_asserts.collected(noted=True) as asserts:
            body()
        number = torch.full((), 0)
        for truth, said in reversed(asserts):
            number = torch.where(truth, number, numbers.setdefault(said, len(numbers) + 1))
        failed[0] = host_scalars.as_host_scalar(number)

    held = variables.with_item(failed, "the assert that failed")
    loop(lambda: _unended(failed, test), iteration, held, most=most, ends_at_asserts=True)
    for said, number in numbers.items():
        if torch_functions.is_staged(failed[0]):
            runtime_asserts.add_assert(torch_functions.predicate(failed[0] != number), said)


def _raising_loop(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    most: Any,
    kinds: Callable[[], Any],
) -> None:
    """A loop whose iterations may raise what a `try` around the loop has a handler for.

    Each iteration is a `try` of its own, which notes the exception and ends the loop; it is raised after it.
    """
    errors: list[_Thrown] = []  # of the run of an iteration that was the last
    ended: list[Any] = [0]  # the number of the exception that ended the loop, from 1
    # What an exception of each class and structure holds that is computed.
    structures: list[tuple[type, pytree.TreeSpec]] = []
    held: list[list[Any]] = [[UNDEFINED] for _ in range(_MOST_ERRORS)]

    def caught() -> None:
        try:
            with runtime_asserts.catching(kinds, may_split=True):
                body()
        except runtime_asserts.STOPS:
            raise
        except kinds() as error:
            thrown = _Thrown.of(error)
            at = next((at for at, each in enumerate(errors) if each.is_same(thrown)), len(errors))
            errors[at:] = errors[at:] or [thrown]
            ended[0] = at + 1
            if thrown.computed:
                held[_place(thrown.structure)][0] = thrown.computed

    def _place(structure: tuple[type, pytree.TreeSpec]) -> int:
        if structure not in structures:
            structures.append(structure)
        if (at := structures.index(structure)) >= _MOST_ERRORS:
            raise refusal(
                f"a loop raises more than {_MOST_ERRORS} kinds of exceptions that hold what it computes",
                "let the exceptions hold texts alone, or leave the loop with `break`",
                runtime_asserts.EXCEPTION_CAUGHT,
            ) from None
        return at

    def iteration() -> None:
        errors.clear()
        attempt(caught, carried)

    carried = variables.with_item(ended, "the exception")
    for each in held:
        carried = carried.with_item(each, "what the exception holds")
    loop(lambda: _unended(ended, test), iteration, carried, most=most)
    for at, thrown in enumerate(errors):
        error = thrown.error
        if thrown.computed:
            error = thrown.with_computed(held[_place(thrown.structure)][0])
        if torch_functions.is_staged(ended[0]):
            runtime_asserts.require(ended[0] == at + 1, error, holds=False)
        elif ended[0] == at + 1:
            raise error


_MOST_ERRORS: Final = 8


@dataclass(frozen=True, slots=True)
class _Thrown:
    """An exception that an iteration of a loop raises.

    Attributes:
        leaves: What its arguments and attributes hold.
        spec: How they hold it.
    """

    error: Exception
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec

    @classmethod
    def of(cls, error: Exception) -> _Thrown:
        """The exception with what it holds now."""
        leaves, spec = pytree.tree_flatten((error.args, vars(error)), is_leaf)
        return cls(error, tuple(leaves), spec)

    @property
    def computed(self) -> tuple[Any, ...]:
        """What of that a graph computes."""
        return tuple(filter(_is_computed, self.leaves))

    @property
    def structure(self) -> tuple[type, pytree.TreeSpec]:
        """What exceptions have in common of which the same leaves are computed."""
        places = pytree.tree_unflatten([_is_computed(leaf) for leaf in self.leaves], self.spec)
        return type(self.error), pytree.tree_structure(places)

    def is_same(self, other: _Thrown) -> bool:
        """Whether two exceptions differ in nothing but what is computed."""
        if type(self.error) is not type(other.error) or self.spec != other.spec:
            return False
        pairs = zip(self.leaves, other.leaves, strict=True)
        return all(_is_computed(one) if _is_computed(two) else is_same(one, two) for one, two in pairs)

    def with_computed(self, values: Iterable[Any]) -> Exception:
        """The exception with this in the place of what is computed."""
        given = iter(values)
        leaves = [next(given) if _is_computed(leaf) else leaf for leaf in self.leaves]
        self.error.args, attributes = pytree.tree_unflatten(leaves, self.spec)
        vars(self.error).update(attributes)
        return self.error


def _is_computed(leaf: object) -> bool:
    """Whether a graph computes a leaf, or may do so in another iteration: a number of the first one, say."""
    return isinstance(leaf, (torch.Tensor, OptionalValue, *_NUMBERS)) or type(leaf) is ChosenObject


_NUMBERS: Final = (bool, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


def _unended(ended: Sequence[Any], test: Callable[[], object]) -> object:
    """The test of a loop, where its one number is 0; else False."""
    found: list[object] = [False]

    def ask() -> None:
        found[0] = torch_functions.truth_of(test())

    if torch_functions.is_staged(ended[0]):
        branch(ended[0] == 0, ask, _nothing, Variables.of_list(found, "the test"))
    elif not ended[0]:
        ask()
    return found[0]


def _loop(
    test: Callable[[], object],
    body: Callable[[], None],
    variables: Variables,
    most: Any,
    site: region_sites.Site,
    *,
    runs_most: Callable[[], bool],
    ends_at_asserts: bool,
) -> None:
    start = variables.live()
    if site.owns_containers and effects.have_second_names(variables.names, start):
        raise _changes_too_much(variables.names)
    border = tensor_storage.Border()
    try:
        loop = fixpoint.Loop(test, body, variables, start, most, border, site)
        with raised_state.in_loop() as seen:
            abstracts, names, summary, filled = fixpoint.solve(loop)
    except dry_run.TestChanges:
        raise
    except Exception as error:
        if not runtime_asserts.is_raised(error):
            runtime_asserts.refuse_unexplained(error)
            raise
        if runtime_asserts.is_caught(error):
            runtime_asserts.split(error, {}, None)
        # Each iteration raises: there is none.
        with trace.in_model():
            is_going = test()
        runtime_asserts.require(is_going, error, holds=False)
        return
    if not ends_at_asserts and seen.asserts and (seen.writes or raised_state.is_written()):
        raise _AssertsAfterWrites
    _check_copies(variables, abstracts, [start, summary.after], owns=site.owns_containers)
    decisions.statement(
        "loop",
        (body, test),
        names=tuple(variables.names),
        abstracts=tuple(abstracts),
        before=start,
        after=(summary.after,),
    )
    if summary.size_conditions:
        add_size_asserts(summary.size_conditions, dry_run.run_test(test, variables, start), holds=True)
    dry_run.note_sizes(summary, partial(fixpoint.operands_of, abstracts, summary.after))
    shared = views.shared_memory(summary.outer, summary.written)
    written = shared.written
    carried = fixpoint.operands_of(abstracts, start)
    carried += border.known(abstracts, start, names, rebinding.alias_set)
    state = [*carried, *written]
    outer = [tensor for tensor in shared.outer if all(tensor is not each for each in written)]

    @contextmanager
    def inside(operands: Sequence[torch.Tensor]) -> Iterator[tuple[Values, dry_run.Replacement]]:
        """The variables of an iteration, and what stands for a tensor from outside."""
        with sizes_collected():
            # A body may not write what it is given.
            given = [each.clone() for each in operands] if summary.writes_own else operands
            values, known = fixpoint.carried(abstracts, given[: len(carried)])
            note_shared(values, start)
            kept = operands[len(carried) : len(state)]
            beside = operands[len(state) : len(state) + len(outer)]
            replaced = dry_run.replaced([*written, *outer], [*kept, *beside], shared)
            with replaced as now, runtime_asserts.in_place(), region_sites.entered(site):
                border.register(abstracts, values, names, known)
                yield values, now

    def going(*operands: torch.Tensor) -> torch.Tensor:
        with inside(operands) as (values, _):
            return dry_run.unaliased([dry_run.run_test(test, variables, values)])[0]

    def iteration(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with inside(operands) as (values, now):
            after = dry_run.run_region(body, variables, values, owns=site.owns_containers)
            # That a list fits its room is asserted here, of which what is around the loop knows nothing.
            with raised_state.unnoted():
                results = fixpoint.tensors_of(abstracts, variables.names, after)
            results += border.known(abstracts, after, names, rebinding.alias_set)
            return dry_run.unaliased([*results, *(now(tensor) for tensor in written)])

    if dry_run.is_unrecorded():
        results = fixpoint.stand_ins(abstracts, names, written)
    else:
        beside = (*map(plain, outer), *dry_run.sizes_of([summary], [*state, *outer]))
        with sizes_collected(), decisions.annotated((test, body)), trace.in_torch():
            results = list(_while_loop(going, iteration, dry_run.unaliased(state), beside))
    full = filled if runs_most() else ()
    _leave(border, abstracts, names, written, results, variables, [start, summary.after], full)


def _check_copies(
    variables: Variables, abstracts: Sequence[AbstractValue], paths: Sequence[Values], *, owns: bool
) -> None:
    """Refuse a loop that changes in place what a list or a dict has a copy of in the next iteration.

    `paths` are what the variables are before and after an iteration, each of which begins with copies of
    their containers where it `owns` these.

    Raises:
        ExportFailed: In eager the list or the dict has the thing itself.
    """
    columns = zip(abstracts, *paths, strict=True)
    kept = [value for abstract, *values in columns if not abstract.is_constant for value in values]
    if effects.is_copied_and_changed(variables.changed, kept, kept if owns else ()):
        names = variables.names[-len(variables.changed) :] if variables.changed else variables.names
        shown = ", ".join(f"`{name}`" for name in names)
        raise refusal(
            f"a loop on a tensor changes {shown} in place, and has one of them by another name, or puts it "
            "into a list or a dict that grows",
            "put a copy there: `items.append(list(row))`, `table[key] = dict(row)`",
            "python-object-changed",
        )


def _with_changed_containers(
    variables: Variables,
    start: Callable[[Variables], Values],
    put: Callable[[Variables, region_sites.Site], None],
    *,
    is_loop: bool,
) -> None:
    """Let `put` put a region into the graph; what it is found to change in place is one more variable."""
    site = region_sites.current()
    for at, marks in enumerate(site.changed):
        values = zip(variables.names, start(variables), strict=True)
        changed = effects.again([*values, *variables.watched()], marks)
        if changed is None:
            del site.changed[at:]
            break
        variables = _with_containers(variables, changed, site.opened)
    first = variables
    first_names = frozenset(first.names)
    for _ in range(fixpoint.MOST_ROUNDS):
        try:
            # The body is the model's: `run_region` is told of its calls.
            with trace.in_torch():
                put(variables, site)
        except effects.Changed as changed:
            added = variables.names[len(first.names) :]
            again = [name for name, _ in changed.containers if name in added]
            are_assigned = {name.partition(".")[0] for name in again} <= {*first.names}
            if is_loop and again and are_assigned and not site.owns_containers:
                # It is assigned in a loop as well: each iteration begins with another container.
                site.owns_containers = True
                del site.changed[:]
                variables = first
                continue
            variables = _with_containers(variables, changed, site.opened)
            site.changed.append(changed.marks)
        except effects.InnerContainersDiffer as differ:
            name, added = str(differ), variables.names[len(first.names) :]
            if name in site.opened or name not in added:
                raise differ.refused from None
            site.opened.add(name)
            if is_loop and not site.owns_containers and not first_names.isdisjoint(added):
                # Each iteration begins with another container.
                site.owns_containers = True
                del site.changed[:]
                variables = first
        else:
            return
    raise _changes_too_much(variables.names)


def _changes_too_much(names: Sequence[str]) -> ExportFailed:
    return refusal(
        f"a branch or a loop on a tensor changes too many things: {', '.join(names)}",
        "assign new values in place of changing objects",
        "python-object-changed",
    )


def _with_containers(variables: Variables, changed: effects.Changed, opened: Collection[str]) -> Variables:
    """The variables of a region, and what the containers hold that it changes in place.

    Of a container that is `opened` it is what the containers inside hold, too.
    """
    containers = [each for _, each in changed.containers]
    names_of = [name for name, _ in changed.containers]
    may_open = {name for name, each in changed.containers if id(each) not in changed.attributes}
    if not all(map(effects.is_variable, containers)):
        raise refusal(
            f"a branch or a loop on a tensor changes {changed} in place",
            "assign a new value, or keep tensors in buffers of the module",
            "python-object-changed",
        )
    split = len(variables.names)
    unread = [each for each in containers if variables.is_unread is not None and variables.is_unread(each)]

    def contents(name: str, container: Any) -> Any:
        is_opened = name in opened and name in may_open
        return effects.contents(container, () if is_opened else changed.known)

    def get() -> Values:
        return (*variables.get(), *map(contents, names_of, containers))

    def set_(values: Values) -> None:
        variables.set(values[:split])
        for container, value in zip(containers, values[split:], strict=True):
            if isinstance(value, Undefined) and any(container is each for each in unread):
                continue
            return_values.check_placed(container, value)
            effects.fill(container, value)

    names = (*variables.names, *names_of)
    dead = [
        *variables.dead,
        *(split + at for at, each in enumerate(containers) if any(each is other for other in unread)),
    ]
    held = (*variables.changed, *containers)
    return Variables(get, set_, names, variables.watched, dead, variables.is_unread, held)


def _leave(
    border: tensor_storage.Border,
    abstracts: Sequence[AbstractValue],
    names: Sequence[tensor_storage.Names],
    written: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    variables: Variables,
    paths: Sequence[Values],
    full: Iterable[int] = (),
) -> None:
    """Set the variables to a region's results, and write back what it wrote.

    `full` are the places of lists that have as many elements as there is room for.
    """
    split = len(results) - len(written)
    with rebinding.told():
        for tensor, result in zip(written, results[split:], strict=True):
            tensor.copy_(result)
    values, known = fixpoint.carried(abstracts, results[:split])
    for at in full:
        values[at][0].is_full = True
    _set(variables, values, paths)
    border.register(abstracts, values, names, known)


def _set(variables: Variables, values: Values, paths: Sequence[Values]) -> None:
    """Set the variables after a region; a variable that is one object on all paths stays that object."""
    columns = zip(values, zip(*(map(effects.original, path) for path in paths), strict=True), strict=True)
    kept = tuple(
        first if type(first) is type(value) and all(other is first for other in rest) else value
        for value, (first, *rest) in columns
    )
    note_shared(kept, *paths)
    variables.set(kept)
    effects.note_results(variables.names, paths, kept, variables.is_unread)


def _union(lists: Iterable[list[torch.Tensor]]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensors in lists for tensor in tensors}.values())
