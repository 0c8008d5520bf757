"""Where a graph would have to raise: an assert of the program says what eager raises.

`raised(error)` marks the exceptions of the user's own `raise`; `require` puts an assert into the graph. Where
a `try` of the model has a handler for the exception, the two ways on are two paths instead: `Split` tells
`regions.attempt`, which runs that `try` once for each.

`rows[1]` of as many rows as a mask has demands two of them. torch notes such demands for the whole program,
and what follows from them; where they stand in a branch, another path may have fewer rows.
`sizes_collected()` takes such notes back, and `add_size_asserts` says that they hold or that the path is not
taken. `isolated_paths()` takes them back in each path that torch itself traces again.
"""

from __future__ import annotations

import traceback as tracebacks
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, NoReturn

import torch
from torch._guards import detect_fake_mode  # the mode that torch traces under; no public way to it
from torch._higher_order_ops.cond import CondOp
from torch._higher_order_ops.utils import _maybe_run_with_interpreter  # keeps the user's lines
from torch._higher_order_ops.while_loop import WhileLoopOp
from torch.fx import traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.interp import sympy_interp  # no public way to compute a condition of symbols
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.symbol import SymT, symbol_is_type  # no public way to tell the kinds of symbols

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.trace import raised_state, region_sites, return_values, torch_functions
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.trace import message, refusal
from aotpipe.core.stages import KEEPS_WRITES
from aotpipe.errors import AotpipeError, ExportFailed
from aotpipe.model import source

Assert = tuple[torch.Tensor, str]
"""What must hold, and what is said where it does not."""


EXCEPTION_CAUGHT: Final = "exception-caught"
"""The code of a refusal of what is raised where a tensor decides, and caught."""

_MOST_REHEARSALS: Final = 700
_MOST_REGIONS: Final = 3000
Place = tuple[tuple[int, ...], bool, int]
"""Where a tensor decides in a run of a `try`.

The numbers of the `try` inside of it that run now, whether it decides on the innermost of these, and how many
places in that one came before.
"""
Ways = Mapping[Place, bool]
"""The truth of the test at each place where a run of a `try` is to take a certain way."""


@dataclass(slots=True, eq=False)
class Decisions:
    """Which way one run of a `try` takes where a tensor decides.

    Attributes:
        taken: Where that is certain.
        of_paths: Whether it is no `try`, but statements whose variables need no common form (`path_scope`).
        inside: The numbers of the `try` inside of it that run now.
        counts: How many places this run has come to in the innermost of these, of either kind.
        split: What it came to first that is not certain; a `finally` that returns swallows what is raised.
    """

    taken: Ways
    of_paths: bool = False
    inside: tuple[int, ...] = ()
    counts: Counter[bool] = field(default_factory=Counter)
    split: Split | None = None


class Split(BaseException):
    """A tensor decides whether the body of a `try` raises what that has a handler for.

    Or it decides between values that have no common form. No handler of the model's is for this.

    Attributes:
        test: What decides; None where it is known inside of a branch or a loop only.
        refused: What is raised where the values with no common form cannot be kept apart.
    """

    def __init__(
        self,
        decisions: Decisions,
        place: Place | None = None,
        test: Any = None,
        refused: ExportFailed | None = None,
    ) -> None:
        super().__init__()
        self.decisions = decisions
        self.place = place
        self.test = test
        self.refused = refused
        if decisions.split is None or decisions.split.place is None:
            decisions.split = self


STOPS: Final = (AotpipeError, effects.Changed, return_values.Unwritten, Split, GuardOnDataDependentSymNode)
"""What stops a trace, or one run of a region: no handler of the model's is for it."""


@dataclass(frozen=True, slots=True)
class _Catch:
    """The body of a `try` that runs now.

    Attributes:
        kinds: Gives what it has handlers for.
        level: How many regions it is in.
        decisions: Of this run of it; None where it stays Python's own.
    """

    kinds: Callable[[], Any]
    level: int
    decisions: Decisions | None


@dataclass(slots=True)
class _Asserts:
    """What a trace knows of exceptions and of asserts.

    Attributes:
        raised: The user's own exceptions by identity, kept alive, so that no other one takes it.
        decisions: Of the `try` that begins to run, the innermost last.
        caught: The bodies of `try` that run now.
        rehearsals: How many runs of a `try` were made of which nothing is left.
        regions: How many regions were run on one of several ways through a `try`.
        collected: The asserts of each region that runs now; None of one that puts them into its graph.
    """

    raised: dict[int, object] = field(default_factory=dict)
    decisions: list[Decisions] = field(default_factory=list)
    caught: list[_Catch] = field(default_factory=list)
    rehearsals: int = 0
    regions: int = 0
    collected: list[list[Assert] | None] = field(default_factory=list)


def raised(make: Callable[[], Any]) -> Any:
    """The exception that `make` gives, as one of the user's own; its text may be made of traced tensors."""
    with message():
        error = make()
        if isinstance(error, type) and issubclass(error, BaseException):
            error = error()
        error.args = tuple("..." if type(each) is ChosenObject else each for each in error.args)
    trace.part(_Asserts).raised[id(error)] = error
    return error


_OF_PYTHON: Final = (ZeroDivisionError, KeyError, IndexError)
"""What an operator of Python raises for values that it knows, and for nothing that a trace does to them."""


_OF_NONE: Final = (TypeError, AttributeError)
_NONE_TYPE: Final = "'NoneType'"
"""What says that a value is None where eager takes none: it is one on the path that is traced."""


def is_of_raise(error: BaseException) -> bool:
    """Whether the user's own `raise` raised this."""
    return id(error) in trace.part(_Asserts).raised


def is_raised(error: BaseException) -> bool:
    """Whether eager raises this too: the user's own `raise` did, or an operator of Python's in their code."""
    if is_of_raise(error):
        return True
    frames = [frame for frame, _ in tracebacks.walk_tb(error.__traceback__)]
    if type(error) in _OF_NONE and _NONE_TYPE in str(error) and len(frames) > 1:
        # An operator of ours computes in the model's place.
        last = frames[-2 if frames[-1].f_globals.get("__name__") == trace.OPERATORS_MODULE else -1]
        return source.is_model_code(last.f_code.co_filename)
    return type(error) in _OF_PYTHON and source.is_model_code(frames[-1].f_code.co_filename)


def refuse_unexplained(error: BaseException) -> None:
    """Refuse a handler for what a trace alone may have raised.

    Raises:
        ExportFailed: There is one; else nothing is raised.
    """
    if not isinstance(error, STOPS) and is_caught(error):
        kind = type(error).__name__
        raise refusal(
            f"{kind} is raised on one path of a branch or a loop on a tensor, and caught: {error}",
            "decide with `if` and `else` in place of `try` and `except`",
            EXCEPTION_CAUGHT,
        ) from error


def catching(kinds: Callable[[], Any], *, may_split: bool) -> AbstractContextManager[Any]:
    """Run the body of a `try` that has handlers for these exceptions; `kinds` gives a tuple."""
    asserts = trace.part(_Asserts)
    decisions = asserts.decisions[-1] if may_split and asserts.decisions else None
    if decisions is not None and decisions.of_paths:
        decisions = None  # of the statements around a `try` that is not run for each way
    return trace.pushed(asserts.caught, _Catch(kinds, region_sites.depth(), decisions))


def path_scope() -> AbstractContextManager[Any]:
    """Run statements once for each path where a variable has no common form on two of them."""
    asserts = trace.part(_Asserts)
    return trace.pushed(asserts.caught, _Catch(tuple, region_sites.depth(), asserts.decisions[-1]))


def deciding(taken: Ways, *, of_paths: bool = False) -> AbstractContextManager[Decisions]:
    """Run a `try` that takes these ways."""
    return trace.pushed(trace.part(_Asserts).decisions, Decisions(taken, of_paths))


@contextmanager
def rehearsing(taken: Ways, *, of_paths: bool = False) -> Iterator[Decisions]:
    """Run a `try` of which nothing is left: those around it have come to nothing, and nothing is asserted.

    Raises:
        ExportFailed: The ways through all of them are too many to be traced in a minute.
    """
    asserts = trace.part(_Asserts)
    asserts.rehearsals += 1
    if asserts.rehearsals > _MOST_REHEARSALS:
        raise _too_many_ways(of_paths=of_paths)
    back = _decided(asserts)
    with deciding(taken, of_paths=of_paths) as decisions, collected():
        try:
            yield decisions
        finally:
            back()


def count_region() -> None:
    """Count a region that is run on one of several ways through a `try`.

    Raises:
        ExportFailed: The ways through all of them are too many to be traced in a minute.
    """
    asserts = trace.part(_Asserts)
    if not any(each.taken for each in asserts.decisions):
        return
    asserts.regions += 1
    if asserts.regions > _MOST_REGIONS:
        raise _too_many_ways(of_paths=asserts.decisions[-1].of_paths)


def _too_many_ways(*, of_paths: bool) -> Exception:
    trace.current().has_too_many_ways = True
    if of_paths:
        return refusal(
            "tensors decide at too many places between values that have no common form",
            "give a variable one form on every path: the same keys, lengths and classes",
            "paths-differ",
        )
    return refusal(
        "tensors decide at too many places whether the bodies of `try` raise",
        "let each `try` hold the one line that it is for, or decide with `if` and `else`",
        EXCEPTION_CAUGHT,
    )


@contextmanager
def trying(taken: Ways, *, of_paths: bool = False) -> Iterator[Decisions]:
    """Run a `try`; where it splits, those around it have come to nothing, and nothing is asserted."""
    asserts = trace.part(_Asserts)
    back, forget = _decided(asserts), raised_state.notes_begun()
    # An assert is noted where it is made, as in the run that counts: what it leaves in the state is what was
    # written by then.
    with deciding(taken, of_paths=of_paths) as decisions, collected(noted=True) as claimed:
        yield decisions
    if decisions.split is not None:
        back()
        forget()
        return
    for truth, said in claimed:
        _put_assert(truth, said, keeps=False)


def _decided(asserts: _Asserts) -> Callable[[], None]:
    """What lets each `try` around have come to as many places as now."""
    around = [(each, each.counts.copy(), each.split) for each in asserts.decisions]

    def back() -> None:
        for each, counts, split in around:
            each.counts, each.split = counts, split

    return back


def require(test: Any, error: BaseException, *, holds: bool) -> bool:
    """Assert that a test that decides between going on and raising `error` has a certain truth.

    Tells whether that holds for all that comes after it.

    Raises:
        Split: Eager would go on in a handler, and what this run does is not decided yet.
        ExportFailed: Eager would go on in a handler of what cannot be run for each way.
    """
    truth = torch_functions.predicate(test)
    if is_caught(error):
        found = places()
        decided = decision(found)
        if decided is None:
            split(error, found, truth)
        elif decided is not holds:
            raise raised(lambda: error)
        return False
    with message():  # the text of an exception of one argument is made here
        said = f"{type(error).__name__}: {error}".rstrip(": ")
    return add_assert(truth if holds else truth.logical_not(), said)


def is_caught(error: BaseException) -> bool:
    """Whether a `try` of the model, around what is traced now, has a handler for an exception."""
    return_values.check_tried()
    return _catch_of(error) is not None


def _catch_of(error: BaseException) -> _Catch | None:
    return next(
        (each for each in reversed(trace.part(_Asserts).caught) if isinstance(error, each.kinds())), None
    )


def kinds_of(split: Split) -> Callable[[], Any]:
    """What the `try` has handlers for that is to be run for both truths of a test."""
    return next(each.kinds for each in trace.part(_Asserts).caught if each.decisions is split.decisions)


def places(*, of_try: bool = False) -> dict[Decisions, Place]:
    """Count a place where a tensor decides, in each `try` whose body runs outside of the regions in it.

    `of_try`: the decision is one on a `try` inside of these, which has been run up to where it is for. It has
    a number of its own, as those before that keep theirs.
    """
    found: dict[Decisions, Place] = {}
    for each in _counting():
        found[each] = (each.inside, of_try, each.counts[of_try])
        each.counts[of_try] += 1
    return found


def _counting() -> list[Decisions]:
    """Of each `try` whose body runs outside of the regions in it."""
    level = region_sites.depth()
    caught = trace.part(_Asserts).caught
    return [each.decisions for each in caught if each.decisions is not None and each.level == level]


@contextmanager
def inside_try() -> Iterator[None]:
    """Run a `try` for each way through it; each `try` around it gives the places in it numbers of their own.

    Its first runs take back what they count, so that each run finds a place by the same number. What comes
    after it must have none of these: what is decided there would be taken for what decides in it.
    """
    around = [(each, each.inside, each.counts) for each in _counting()]
    for each, inside, counts in around:
        each.inside, each.counts = (*inside, counts[False]), Counter()
    try:
        yield
    finally:
        for each, inside, counts in around:
            counts[False] += 1
            each.inside, each.counts = inside, counts


def decision(places: dict[Decisions, Place]) -> bool | None:
    """The truth that a test has in this run of a `try`; None where no run has decided on it."""
    taken = (each.taken[place] for each, place in places.items() if place in each.taken)
    return next(taken, None)


def split(error: BaseException, places: dict[Decisions, Place], test: Any) -> NoReturn:
    """Let the `try` that has a handler for an exception be run for both truths of a test.

    Raises:
        Split: It can be.
        ExportFailed: It cannot; or the trace has to be made anew for that.
    """
    catch = _catch_of(error)
    assert catch is not None, "asked for an exception that is caught"
    if catch.decisions is not None:
        raise Split(catch.decisions, places.get(catch.decisions), test)
    trace.current().needs.add("splits_tries")
    raise _refused(error)


def split_paths(refused: ExportFailed, places: dict[Decisions, Place], test: Any) -> NoReturn:
    """Let the statements around a branch be run for both truths of its test, with values of no common form.

    Raises:
        Split: They can be.
        ExportFailed: That which refuses such values; the trace that is made anew has such statements.
    """
    trace.current().unjoined.append((refused, tuple(effects.lines_of_model())))
    if (decisions := _scope()) is None:
        raise refused
    raise Split(decisions, places.get(decisions), test, refused)


def truth_of_path(test: Any, refused: ExportFailed) -> bool:
    """The truth that a test has on the path that is traced, of values that no graph can join.

    Raises:
        Split: The statements around are to be run for both truths.
        ExportFailed: They cannot be: that which refuses such values.
    """
    found = places()
    if (decided := decision(found)) is not None:
        return decided
    split_paths(refused, found, torch_functions.predicate(test))


def split_containers(
    names: Sequence[str], paths: Sequence[Sequence[Any]], places: dict[Decisions, Place], test: Any
) -> None:
    """Let the statements around a branch be run for both truths, where it gives containers a second name.

    Raises:
        Split: It does, and they can be.
    """
    if not trace.current().splits_containers or (decisions := _scope()) is None:
        return
    if (place := places.get(decisions)) is not None and effects.get_second_names(names, paths):
        raise Split(decisions, place, test)


def refused_here() -> ExportFailed | None:
    """What refuses a container that a tensor chooses, where statements can be run once for each of them."""
    if not trace.current().splits_containers or _scope() is None:
        return None
    return refusal(
        "an element that a tensor chooses is changed under a second name",
        "change it where it is: `groups[i].append(v)`",
        "paths-differ",
    )


def _scope() -> Decisions | None:
    """The innermost statements that run now once for each path where values have no common form."""
    caught = reversed(trace.part(_Asserts).caught)
    return next((each.decisions for each in caught if each.decisions and each.decisions.of_paths), None)


def truth(flag: Any) -> bool | None:
    """The truth that a flag has on the path that is traced, where a library asks for it.

    None where code asks that is to be rewritten first.

    Raises:
        Split: The statements around are to be run for both.
        ExportFailed: They cannot be.
    """
    codes = [frame.f_code for frame, _ in tracebacks.walk_stack(None)]
    at = next(at for at, each in enumerate(codes) if source.is_model_code(each.co_filename))
    code = codes[at]
    asking = trace.current().asking
    if not asking or (return_values.is_unwritten(code) and key_of(code) not in asking):
        return None
    found = places()
    if (decided := decision(found)) is not None:
        return decided
    unread = next((each.co_qualname for each in codes[:at] if each.co_filename == "<string>"), None)
    refused = refusal(
        "a library, or code that cannot be rewritten, asks for the truth of a tensor",
        f"put the code of `{unread}` in a file, where it can be read"
        if unread
        else "loop with `for`, and decide with `if` and `else`",
        "branch-on-tensor",
    )
    split_paths(refused, found, torch_functions.predicate(flag))


def key_of(code: CodeType) -> tuple[str, int, str]:
    """What tells a function's code from others, also where it is compiled anew."""
    return code.co_filename, code.co_firstlineno, code.co_name


def refuse_caught(error: BaseException) -> None:
    """Refuse a handler of `try` for an exception that a run alone raises.

    Raises:
        ExportFailed: There is one around what is traced now.
    """
    if is_caught(error):
        raise _refused(error)


def _refused(error: BaseException) -> Exception:
    said = f"{type(error).__name__} is raised where a tensor decides, and caught"
    return refusal(said, "decide with `if` and `else` in place of `try` and `except`", EXCEPTION_CAUGHT)


def add_assert(truth: torch.Tensor, said: str) -> bool:
    """Put an assert into the graph; whether it holds for all that comes after it."""
    return _put_assert(truth, said, keeps=raised_state.note(truth))


def _put_assert(truth: torch.Tensor, said: str, *, keeps: bool) -> bool:
    stack = trace.part(_Asserts).collected
    if stack and (asserts := stack[-1]) is not None:
        # An op of the region reads a flag from outside: what no op reads is no operand of the region.
        asserts.append((truth.clone(), said))
        return False
    marked = traceback.annotate({KEEPS_WRITES: True}) if keeps and not stack else nullcontext()
    with traceback.preserve_node_meta(), marked:
        torch._assert_async(truth, said)  # noqa: SLF001  # what torch.export keeps
    return not stack


def padded(asserts: list[Assert], wanted: int) -> list[torch.Tensor]:
    """The truths of as many asserts as the run that saw a path has found.

    What that run asked of a number that it had asked for before, this one may ask inside: then it makes other
    asserts.
    """
    truths = [truth for truth, _ in asserts]
    if wanted and len(truths) > wanted:
        truths = [*truths[: wanted - 1], torch.stack(truths[wanted - 1 :]).all()]
    if not wanted:
        for truth, said in asserts:
            torch._assert_async(truth, said)  # noqa: SLF001  # what torch.export keeps
    return [*truths[:wanted], *(torch.full((), True) for _ in range(wanted - len(truths)))]


@contextmanager
def collected(*, noted: bool = False) -> Iterator[list[Assert]]:
    """Inside, asserts are collected: torch drops a branch that gives no result, with its asserts.

    `noted`: they belong to the region that runs, whose state goes by them.
    """
    asserts: list[Assert] = []
    notes = nullcontext() if noted else raised_state.unnoted()
    with notes, trace.pushed(trace.part(_Asserts).collected, asserts):
        yield asserts


def in_place() -> AbstractContextManager[object]:
    """Inside, asserts go into the graph that is traced."""
    return trace.pushed(trace.part(_Asserts).collected, None)


def environment(*values: object) -> Any:
    """The symbols of the mode that these values, or what is traced now, belong to; None without one."""
    mode = detect_fake_mode(values)
    return mode.shape_env if mode else None


def as_size(env: Any, symbol: Any) -> Any:
    """One of torch's symbols as a number of Python's."""
    hint = env.backed_var_to_val.get(symbol)
    return env.create_symintnode(symbol, hint=None if hint is None else int(hint))


@contextmanager
def sizes_collected(*values: object) -> Iterator[list[Any]]:
    """Inside, demands on sizes from outside hold for what is inside alone.

    `values` tell the mode that is traced under, if no other thing does.

    Yields:
        The demands, afterwards, as conditions on torch's symbols.
    """
    found: list[Any] = []
    env = environment(*values)
    if env is None or not any(map(_is_unbacked, env.var_to_range)):
        yield found
        return
    # torch's own notes: it has no way to take a demand back.
    ranges = {symbol: known for symbol, known in env.var_to_range.items() if _is_unbacked(symbol)}
    replaced = dict(env.replacements)
    axioms = dict(env.axioms)
    noted = {symbol: len(each) for symbol, each in env.deferred_runtime_asserts.items()}
    try:
        yield found
    finally:
        for symbol in ranges:
            each = env.deferred_runtime_asserts.get(symbol, [])
            new = each[noted.get(symbol, 0) :]
            found += [one.expr for one in new]
            del each[noted.get(symbol, 0) :]
            if not each:
                env.deferred_runtime_asserts.pop(symbol, None)
        if found or any(env.var_to_range[symbol] != known for symbol, known in ranges.items()):
            env.var_to_range.update(ranges)
            for symbol in ranges:
                if symbol in replaced:
                    env.replacements[symbol] = replaced[symbol]
                else:
                    env.replacements.pop(symbol, None)
            env.axioms = axioms
            _forget(env)


def add_size_asserts(size_conditions: Iterable[Any], test: torch.Tensor, *, holds: bool) -> None:
    """Put an assert into the graph for each condition: it holds, or the test has another truth."""
    for condition in size_conditions:
        env = environment()
        symbols = {symbol: as_size(env, symbol) for symbol in condition.free_symbols}
        # Op by op: of a whole condition torch traces functions that no program holds.
        truth = torch_functions.predicate(sympy_interp(PythonReferenceAnalysis, symbols, condition))
        elsewhere = test.logical_not() if holds else test
        said = f"a size that depends on data does not fit: {condition} does not hold"
        add_assert(elsewhere.logical_or(truth), said)


def _is_unbacked(symbol: Any) -> bool:
    return symbol_is_type(symbol, SymT.UNBACKED_INT)


def _forget(env: Any) -> None:
    """Make torch ask anew what it has found of sizes; it remembers that for as long as these numbers stay."""
    env.num_deferred_runtime_asserts += 1
    env._replacements_version_counter += 1  # noqa: SLF001
    env._update_version_counter()  # noqa: SLF001
    # Answers that it takes for good, and ops that it then asks nothing of.
    for asked in (
        env.guard_or_defer_runtime_assert,
        env._maybe_guard_rel,  # noqa: SLF001
        env._inner_evaluate_expr,  # noqa: SLF001
        env.constrain_symbol_range,
    ):
        asked.cache_clear()
    env.fake_tensor_cache.clear()


@contextmanager
def isolated_paths() -> Iterator[None]:
    """Inside, each path of torch's own branches and loops is traced with what is known around it alone.

    For programs that were exported: what their paths demand is among their asserts.
    """
    # torch hands the paths of a program from one of its own modes to the next: each begins with such a call.
    cond, while_loop = (trace.assigned(op, __call__=_isolated(op.__call__)) for op in (CondOp, WhileLoopOp))
    with cond, while_loop:
        yield


def _isolated(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        with sizes_collected(*torch.utils._pytree.tree_leaves(args)):  # noqa: SLF001
            return call(self, *(_path(each) if callable(each) else each for each in args), **kwargs)

    return called


def _path(function: Callable[..., Any]) -> Callable[..., Any]:
    run = _maybe_run_with_interpreter(function)  # type: ignore[no-untyped-call]

    def path(*operands: Any) -> Any:
        with sizes_collected(*operands):
            return run(*operands)

    return path
