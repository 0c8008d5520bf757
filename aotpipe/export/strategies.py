"""torch.export in a principled order of ways, until one takes the model.

1. Non-strict; where sizes vary, without torch's assumption that no size is 0 or 1
   (`backed_size_oblivious`): the program then holds for these sizes too, or the model's branch on them is
   seen.
2. Where sizes vary, with that assumption. The program is accepted for a range that reaches below 2 only
   after it ran at these sizes and gave eager's numbers.
3. Staged, where the model decides on a tensor in Python: with that control flow as ops of the graph
   (`aotpipe.canonicalize.rewrite`). Where calls differ in what they have, this is the only way
   (`staged`), and where the model keeps state in Python, which is then in buffers
   (`aotpipe.canonicalize.state.lift`).
4. Strict, which reads the Python bytecode and takes some models that plain tracing does not. What such a
   model changes in Python would be lost, and is refused.

Each way is tried with sizes inside the Dims' ranges, then with the example's own. Gives a `Traced`; raises
the first way's error when none works.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, NoReturn

import torch
from torch.export import ExportedProgram
from torch.fx.experimental import _config as symbolic_config  # no public switch for backed_size_oblivious

from aotpipe.canonicalize import correlation, example_call, recurrent_layers
from aotpipe.canonicalize.inputs import flat_module, pytrees
from aotpipe.canonicalize.rewrite import path_scopes, staging
from aotpipe.canonicalize.state import discovery, lift
from aotpipe.canonicalize.state.slots import State, StateRefused
from aotpipe.canonicalize.trace import constants, decisions, saved_results, squeezed_sizes
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.trace.runtime_asserts import EXCEPTION_CAUGHT
from aotpipe.canonicalize.values import tensor_subclasses
from aotpipe.canonicalize.values.trace import TEXT_FROM_TENSOR
from aotpipe.core.dims import Auto, Dim
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.errors import ExportFailed, SourceLine, StaticDim
from aotpipe.export import diagnosis, resized_examples, tied_buffers, tracing
from aotpipe.export.diagnosis import GuardLog, listening
from aotpipe.model import source
from aotpipe.model.garbage_collector import makers_of
from aotpipe.model.object_graph import Root

_MOST_STATES: Final = 24
# Each function costs a trace: the limit refuses a model that decides in more of them in sensible time.
_MOST_REWRITTEN: Final = 20
_MOST_SCOPES: Final = 12
_DECIDES: Final = "control-flow-in-graph"
# What is tried when nothing else has helped: it makes a program for each number of iterations.
_LAST_MODE: Final = "unrolls_ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A program of torch.export's, the assumptions it was made under, and what to tell the user.

    `kept` are the buffers that a call which fails an assert may leave changed; `decided` is what this trace
    made part of the graph, and none that was given up.
    """

    program: ExportedProgram
    log: GuardLog
    findings: tuple[Finding, ...]
    state: State | None = None
    kept: frozenset[str] = frozenset()
    decided: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way of calling torch.export.

    Attributes:
        strict: Whether the bytecode is read.
        all_sizes: Whether sizes of 0 and 1 are treated as any other.
        assumes_sizes: Whether the program may be wrong at these sizes.
        changed: Values of Dims other than the example's.
    """

    strict: bool = False
    all_sizes: bool = False
    assumes_sizes: bool = False
    changed: Mapping[str, int]


def trace(entry: CanonicalEntry) -> Traced:
    """Export one entry point, with `entry.dims` varying.

    Raises:
        ExportFailed: torch.export refused it in every way.
        StaticDim: It refused because a Dim is a constant.
    """
    with discovery.Untouched(entry.module).during_traces() as untouched:
        traced = _explained(entry)
        untouched.check_traced(entry)
    return traced


def _explained(entry: CanonicalEntry) -> Traced:
    try:
        return _traced(entry)
    except ExportFailed as error:
        begun = _begun(entry)
        if begun is None and diagnosis.is_refused_for_sizes(error):
            begun = _called_with_other_sizes(entry)
        if begun is not None:
            return begun
        error.where = error.where or source.of_definition(entry.module.forward)
        fixed = isinstance(error, StaticDim) and resized_examples.fixed_beside(entry)
        if fixed:
            error.hint = f"{fixed}; or {error.hint}"
        raise


def _begun(entry: CanonicalEntry) -> Traced | None:
    """The program of a model as its first call leaves it, where that answers as the first one does.

    Such a call registers hooks, or makes objects, which no program can: `if not self.hooked: ...`. Where the
    model decides on tensors, another first call may leave it otherwise.
    """
    state = entry.state
    if state is None or not all(map(state.is_set_once, state.roots)):
        return None
    if not resized_examples.begins_alike(entry):
        return None
    unchanged = example_call.unchanged(entry.module)
    with unchanged, example_call.writing_nothing(entry.module) as is_unwritten, suppress(ExportFailed):
        example_call.again(entry.module, entry.entry.args, entry.entry.kwargs)
        if not is_unwritten():
            return None
        traced = _traced(replace(entry, state=None))
        if any(finding.code == _DECIDES for finding in traced.findings):
            return None
        names = ", ".join(f"`{root.path}`" for root in state.roots)
        said = f"the program begins as the first call leaves the model, which answers as before it: {names}"
        return replace(traced, findings=(*traced.findings, entry.finding("state-recomputed", said)))
    return None


def _called_with_other_sizes(entry: CanonicalEntry) -> Traced | None:
    """The program of a model that was called before, and keeps what depends on the sizes of that call.

    A call of the same sizes takes what is kept, and the program would hold for them alone. It is traced as a
    call of sizes beyond the Dims' ranges leaves the model, where that answers as before it.
    """
    sizes = resized_examples.beyond(entry)
    if entry.state is not None or entry.guarded or not sizes or not resized_examples.begins_alike(entry):
        return None
    unchanged = example_call.unchanged(entry.module)
    with (
        unchanged as watch,
        example_call.writing_nothing(entry.module) as is_unwritten,
        suppress(ExportFailed),
    ):
        if resized_examples.called(entry, sizes) is not None or not is_unwritten():
            return None
        state = State((), ((),), ignored=tuple(watch.unregistered()))
        if not state.ignored or not resized_examples.recomputes(entry, state):
            return None
        traced = _traced(replace(entry, state=state))
        return replace(traced, findings=(*traced.findings, _recomputed(entry, state.ignored)))
    return None


def _recomputed(entry: CanonicalEntry, roots: Iterable[Root], where: SourceLine | None = None) -> Finding:
    names = ", ".join(f"`{root.path}`" for root in roots)
    said = f"each call computes anew what depends on its sizes, and nothing is kept of it: {names}"
    return entry.finding("state-recomputed", said, where=where)


def _traced(entry: CanonicalEntry) -> Traced:
    if entry.state is not None and entry.state.roots:
        return _stateful(entry, entry.state)
    try:
        if entry.adapter is not None:
            # The flags are traced from the start: without staged operators a branch would be taken for good.
            return staged(entry)
        return _stateless(entry)
    except lift.UnknownState as late:
        return _stateful(entry, late.state)
    except StateRefused as error:
        raise discovery.refused(error, [entry]) from error


def _stateless(entry: CanonicalEntry) -> Traced:
    changed, at_bound = resized_examples.inside(entry)
    first: ExportFailed | None = None
    rewritten: ExportFailed | None = None
    cause: Exception | None = None
    blamed: dict[FunctionType, CodeType] = {}
    for strategy in _strategies(dynamic=any(entry.dims.values()), changed=changed):
        if strategy.strict and cause is not None:
            if rewritten is None and (
                diagnosis.is_data_dependent(cause) or diagnosis.is_about_control_flow(cause)
            ):
                # Strict mode seldom takes it, and leaves Python's own operators in the graph where it does.
                try:
                    return staged(entry, first, codes=blamed)
                except ExportFailed as error:
                    rewritten = error
            if not _may_strict_mode_help(cause, rewritten):
                break
        with listening() as log, discovery.tracing():
            try:
                program = _export(entry, strategy)
            except (lift.UnknownState, StateRefused):
                raise
            except Exception as error:  # noqa: BLE001 torch.export raises what the model raises
                if first is None:
                    first, cause = diagnosis.explain(error, log, entry.name), error
                    first.__cause__ = cause
                    if diagnosis.is_data_dependent(cause):
                        blamed = _deciding(cause, log, {}, {})
                continue
        if diagnosis.has_partial_numbers(program):
            # Backends compute on where Python would raise; staged code asserts that it would not.
            if strategy.strict:
                continue
            return staged(entry, first)
        follows = diagnosis.reads_constants(program) or diagnosis.writes_rows_of_data(program)
        if not strategy.strict and follows:
            # Rewritten code follows what is made of Python's numbers alone, and reads it while it is traced;
            # it asserts that there is a row of an index.
            with suppress(ExportFailed):
                return staged(entry, first)
        if strategy.assumes_sizes and not resized_examples.agree(entry, program):
            continue
        if entry.guarded and (followed := _followed(entry, log, first, strategy)) is not None:
            return followed
        findings = [*(at_bound if strategy.changed else ()), *_findings(entry, strategy, first)]
        return Traced(program=program, log=log, findings=tuple(findings))
    assert first is not None
    if cause is not None and rewritten is None and diagnosis.may_rewriting_help(cause):
        try:
            return staged(entry, first)
        except ExportFailed as error:
            error.of_sizes |= diagnosis.is_refused_for_sizes(first)
            raise
    raise rewritten or first


def _may_strict_mode_help(cause: BaseException, rewritten: ExportFailed | None) -> bool:
    # Strict mode makes an assert of what is raised, whatever catches it, and a text of a symbol's name.
    is_taken_wrongly = rewritten is not None and rewritten.code in (EXCEPTION_CAUGHT, TEXT_FROM_TENSOR)
    is_taken_wrongly |= isinstance(cause.__cause__, tracing.CaughtByModel)
    return not is_taken_wrongly and diagnosis.may_strict_mode_help(cause)


def _followed(
    entry: CanonicalEntry, log: GuardLog, first: ExportFailed | None, strategy: Strategy
) -> Traced | None:
    """A program of rewritten code that follows the sizes which became numbers of Python's, if any did.

    Kept as a guard, such a number fixes the size. Under torch's assumption of sizes other than 0 and 1, a
    program of parts (`x.split(32)`) takes no size of which the last part is one row, so that it comes last.
    """
    rounding = (function for codes in log.rounding for function in staging.running(codes))
    rewritten = staging.rewritten_codes(rounding)
    for all_sizes in (True, False) if strategy.all_sizes else (False,):
        with suppress(ExportFailed):
            return _rewritten(entry, first, None, dict(rewritten), all_sizes=all_sizes) if rewritten else None
    return None


def _findings(entry: CanonicalEntry, strategy: Strategy, first: ExportFailed | None) -> Iterator[Finding]:
    """What to tell of a program that was exported in some way, after what torch.export refused `first`."""
    where = first.where if first else None
    if strategy.assumes_sizes and resized_examples.reached(entry):
        message = "torch.export assumed that no size is 0 or 1; there the program was compared with the model"
        yield entry.finding("small-sizes-compared", message, where=where)
    if strategy.strict:
        message = f"exported in strict mode; plain tracing refused: {first.reason if first else ''}"
        yield entry.finding("strict-export", message.rstrip(": "), where=where)


def _stateful(entry: CanonicalEntry, state: State) -> Traced:
    """Export with what the model keeps in Python in buffers.

    What the state has to hold is known one after another, as calls are traced that leave something new.
    """
    notes: list[Finding] = []
    codes: dict[FunctionType, CodeType] = {}
    for _ in range(_MOST_STATES):
        lifted = lift.LiftedModel(entry.module, state)
        # What decides on a tensor does so whatever else is state; where paths are kept apart may be another.
        codes = staging.rewritten_codes(codes)
        try:
            traced = staged(entry, None, lifted.module, codes)
            kept = lifted.name_state(traced.program)
        except lift.UnknownState as late:
            state = late.state
            continue
        except StateRefused as error:
            refused = discovery.refused(error, [entry])
            beside = [root for root in state.roots if root.held is error.root.held]
            less = (state.without([error.root]), state.without([error.root, *beside]))
            recomputed = (each for each in less if resized_examples.recomputes(entry, each))
            found = next(recomputed, None) if error.of_sizes else None
            if found is None:
                raise refused from error
            notes.append(_recomputed(entry, found.ignored[len(state.ignored) :], refused.where))
            state = found
            continue
        return replace(traced, state=state, kept=kept, findings=(*traced.findings, *notes))
    root = state.roots[-1]
    what = f"was something new in each of {_MOST_STATES} traces of a call"
    hint = "keep tensors, numbers and texts, and make objects once, in `__init__`"
    raise discovery.refused(StateRefused(root, (root.path,), what, hint), [entry])


def staged(
    entry: CanonicalEntry,
    first: ExportFailed | None = None,
    module: torch.nn.Module | None = None,
    codes: dict[FunctionType, CodeType] | None = None,
) -> Traced:
    """Export with control flow on tensors as ops of the graph.

    Where calls may lack something, the model is first traced once, with flags on what may be missing, so that
    its own `is None` and `key in batch` are branches of the graph. Where that is refused, or the program then
    differs from the model on a combination of flags, the whole model is traced once for each combination, if
    there are few enough.

    `first` is the error of exporting the model as it is, where that was tried; `module` takes the model's
    state from buffers, where there is one. `codes` are the functions that are known to decide on tensors and
    their rewritten code; those that are found are added.

    Raises:
        ExportFailed: It has no such form, or none that gives the model's answers.
    """
    codes = {} if codes is None else codes
    if entry.adapter is None:
        return _rewritten(entry, first, module, codes)
    codes.update(staging.rewritten_codes(entry.adapter.functions()))
    try:
        found = _rewritten(entry, None, module, codes)
    except ExportFailed as error:
        refused = error
    else:
        wrong = _disagreement(entry, found.program)
        if wrong is None:
            return found
        refused = wrong
    if not 0 < len(entry.adapter.structure.parts) <= flat_module.MOST_FLAGS:
        raise refused
    with entry.adapter.by_flags():
        try:
            found = _rewritten(entry, None, module, {})
        except ExportFailed as error:
            raise refused from error
    if _disagreement(entry, found.program) is not None:
        raise refused
    return found


def _disagreement(entry: CanonicalEntry, program: ExportedProgram) -> ExportFailed | None:
    """The error for the first combination of flags on which program and model differ."""
    assert entry.adapter is not None
    structure = entry.adapter.structure
    cases = flat_module.cases(structure)
    inputs = next(
        (each for each in cases if not resized_examples.agrees_on(entry, program, ((each,), {}))), None
    )
    if inputs is None:
        return None
    lacking = ", ".join(part.name for part in structure.parts if not inputs[part.flag])
    return ExportFailed(
        f"{f'without {lacking} ' if lacking else ''}the program differs from the model",
        reason="the model decides on what a call has in a way that is not seen in its code",
        hint="ask by name: `key in batch`, `batch.get(key)`, `x is None`",
        where=source.of_definition(structure.call),
    )


def _rewritten(
    entry: CanonicalEntry,
    first: ExportFailed | None,
    module: torch.nn.Module | None,
    codes: dict[FunctionType, CodeType],
    *,
    all_sizes: bool = False,
) -> Traced:
    """Export with functions rewritten: those given, and those that decide on a tensor.

    Which those are is known one after another, as torch.export comes to them.
    """
    changed, at_bound = resized_examples.inside(entry)
    strategy = Strategy(assumes_sizes=any(entry.dims.values()), all_sizes=all_sizes, changed=changed)
    modes: dict[str, bool] = {}
    scopes: dict[tuple[str, int], None] = {}
    asking: set[tuple[str, int, str]] = set()
    unjoined: list[Exception] = []
    values: dict[str, torch.Tensor] = {}
    if entry.fixes_buffers and not entry.guarded:
        values = constants.registered_values(entry.module)

    def attempt(strategy: Strategy) -> _Tried:
        with discovery.tracing():
            tried = _tried(entry, strategy, codes, module, values, modes, scopes, asking)
        if isinstance(tried.found, ExportFailed) and tried.is_final:
            # The first refusal tells which variable has no common form.
            _raise_refusal(entry, unjoined[0] if unjoined else tried.found, tried.log, first)
        if (
            isinstance(tried.found, Exception)
            and tried.unjoined
            and entry.guarded
            and _LAST_MODE in tried.needs
        ):
            # The loop can be written out, as the program is one for a part of the sizes.
            return tried
        if isinstance(tried.found, Exception) and tried.unjoined:
            # Values with no common form are kept apart from the nearest statement on, or from one around it.
            unjoined.append(tried.found)
            modes.update(dict.fromkeys(tried.needs & {"splits_containers"}, True))
            begun = ((path_scopes.beginning(code.co_filename, line), code) for code, line in tried.unjoined)
            new = ((scope, code) for scope, code in begun if scope is not None and scope not in scopes)
            if len(scopes) < _MOST_SCOPES and (scope := next(new, None)) is not None:
                scopes[scope[0]] = None
                functions = [*codes, *staging.running([scope[1]])]
                codes.update(staging.rewritten_codes(functions, scopes))
                return attempt(strategy)
        needs = tried.needs - {_LAST_MODE}
        if isinstance(tried.found, Exception) and not needs <= modes.keys():
            # An in-place write may reach names that only a run knows; a tensor may decide on a handler, or
            # which object a variable is. To follow these is slow, or refuses more.
            if "joins_objects" in needs - modes.keys() and scopes:
                scopes.clear()
                codes.update(staging.rewritten_codes(codes))
            modes.update(dict.fromkeys(needs, True))
            return attempt(strategy)
        if tried.unjoined:
            return tried._replace(found=unjoined[0])
        if tried.written:
            # A path that the trace has come to writes what it took for the same in every call.
            for name in tried.written:
                del values[name]
            return attempt(strategy)
        return tried

    found, log, notes, needs, *_, decided = attempt(strategy)
    while not isinstance(found, ExportedProgram):
        if isinstance(found, lift.UnknownState | StateRefused):
            raise found
        # Any exception of a function that is not rewritten yet may be caused by a traced value.
        new = _deciding(found, log, codes, scopes) if len(codes) < _MOST_REWRITTEN else {}
        if new:
            codes |= new
        elif diagnosis.is_about_sizes(found) and not strategy.all_sizes:
            # A number computed from a size may be 0 or 1 where the size is not.
            strategy = replace(strategy, all_sizes=True)
        elif values:
            values.clear()  # it may be refused for what follows from a value that is another in a later call
        elif (code := _asking(found)) is not None and code not in asking:
            asking.add(code)
        elif _LAST_MODE in needs and _LAST_MODE not in modes and entry.guarded:
            # One program for all sizes is better than one for each number of iterations.
            modes[_LAST_MODE] = True
        else:
            of_sizes = _LAST_MODE in needs and _LAST_MODE not in modes
            _raise_refusal(entry, found, log, first, of_sizes=of_sizes)
        found, log, notes, needs, *_, decided = attempt(strategy)
    program = found
    if strategy.assumes_sizes and not resized_examples.agree(entry, program):
        if not strategy.all_sizes:
            found, log, notes, *_, decided = attempt(replace(strategy, all_sizes=True))
        if (
            found is program
            or not isinstance(found, ExportedProgram)
            or not resized_examples.agree(entry, found)
        ):
            raise ExportFailed(
                f"{entry.name} {diagnosis.OTHER_AT_0_OR_1}",
                hint="give that Dim min=2, and the sizes below it an entry point of their own",
                where=first.where if first else None,
            )
        program = found
    findings = list(at_bound if changed else ())
    for function in codes:
        said = f"{function.__qualname__} decides on tensors: its branches and loops are part of the graph"
        where = source.of_definition(function)
        findings.append(entry.finding(_DECIDES, said, where=where))
    findings += [replace(note, entry_point=entry.name) for note in notes]
    return Traced(program=program, log=log, findings=tuple(findings), decided=tuple(decided))


def _asking(error: Exception) -> tuple[str, int, str] | None:
    """The code in which a library, or an unwritable generator, asked for the truth of a tensor."""
    is_asked = diagnosis.is_data_dependent(error) or isinstance(error, Unwritten)
    return staging.asking(error) if is_asked else None


def _raise_refusal(
    entry: CanonicalEntry,
    found: Exception,
    log: GuardLog,
    first: ExportFailed | None,
    *,
    of_sizes: bool = False,
) -> NoReturn:
    """Raise the error of the rewritten model where that says why, else that of the model as it was.

    `of_sizes`: whether a loop over sizes was refused, which may be written out for some sizes.
    """
    explained = diagnosis.explain(found, log, entry.name)
    explained.of_sizes |= of_sizes
    told = isinstance(found, ExportFailed | Unwritten | RecursionError)
    told = told or diagnosis.is_data_dependent(found) or diagnosis.is_chosen_child(found)
    if first is None or told or diagnosis.is_refused_for_sizes(explained):
        raise explained from found
    refused = diagnosis.with_rewritten(first, explained)
    refused.__context__ = found
    raise refused from first.__cause__


class _Tried(NamedTuple):
    """A program, or what torch.export raised; `needs` names modes of `staging` that may do better.

    `written` names what was taken for the same in every call, and is not. `unjoined` are the lines that ran
    where two paths had values of no common form, the innermost first. `is_final` where each further attempt
    would have as many ways as this one, which had too many.
    """

    found: ExportedProgram | Exception
    log: GuardLog
    findings: tuple[Finding, ...]
    needs: set[str]
    written: Collection[str] = ()
    unjoined: Sequence[tuple[CodeType, int]] = ()
    is_final: bool = False
    decided: Sequence[Decision] = ()


def _tried(
    entry: CanonicalEntry,
    strategy: Strategy,
    codes: dict[FunctionType, CodeType],
    module: torch.nn.Module | None,
    values: Mapping[str, torch.Tensor],
    modes: Mapping[str, bool],
    scopes: Collection[tuple[str, int]],
    asking: Collection[tuple[str, int, str]],
) -> _Tried:
    ranges = entry.entry.value_ranges
    upper_bounds = {
        place: math.floor(ranges[name][1])
        for place, name in enumerate(entry.input_names)
        if name in ranges and math.isfinite(ranges[name][1])
    }
    multiples = {
        (place, axis): (dim.scale, dim.offset)
        for place, name in enumerate(entry.input_names)
        for axis, dim in entry.dims.get(name, {}).items()
        if isinstance(dim, Dim) and dim.scale > 1
    }
    operators = staging.staging(
        entry.module, asking=asking, upper_bounds=upper_bounds, multiples=multiples, values=values, **modes
    )
    with (
        operators as known,
        staging.swapped(codes, scopes),
        listening() as log,
        tracing.light_traces(),
        decisions.recorded() as decided,
    ):
        try:
            program = _export(entry, strategy, module)
        except Exception as error:  # noqa: BLE001 torch.export raises what the model raises
            lines = next((lines for refused, lines in known.unjoined if refused is error), ())
            return _Tried(error, log, (), known.needs, unjoined=lines, is_final=known.has_too_many_ways)
        written = constants.written()
        return _Tried(program, log, tuple(known.findings), known.needs, written, decided=decided)


def _deciding(
    error: Exception, log: GuardLog, known: Collection[FunctionType], scopes: Collection[tuple[str, int]]
) -> dict[FunctionType, CodeType]:
    """The functions that an error came from, or that round a size, with their rewritten code."""
    to_blame = [
        function for each in (error, *diagnosis.handled(error)) for function in staging.deciding(each)
    ]
    # One whose code was rewritten before in another function is made anew by each call of the model.
    codes = {function.__code__ for function in known}
    made = [function.__code__ for function in to_blame if function.__code__ in codes]
    makers = (each for code in made for each in makers_of(code) if each.__code__ not in codes)
    new = [*itertools.islice(makers, 1), *(each for each in to_blame if each not in known)]
    # An array of numpy's of a fixed size may fail in a later function, beside a size that still varies; so
    # may an error that no function is to blame for.
    if diagnosis.is_about_sizes(error) or not new:
        running = (function for codes in log.fixing for function in staging.running(codes))
        new += [function for function in running if function not in known]
    return staging.rewritten_codes(new, scopes)


def _strategies(*, dynamic: bool, changed: Mapping[str, int]) -> Iterator[Strategy]:
    sizes = (changed, {}) if changed else ({},)
    if dynamic:
        yield from (Strategy(all_sizes=True, changed=values) for values in sizes)
    yield from (Strategy(assumes_sizes=dynamic, changed=values) for values in sizes)
    yield from (Strategy(strict=True, assumes_sizes=dynamic, changed=values) for values in sizes)


def _export(
    entry: CanonicalEntry, strategy: Strategy, module: torch.nn.Module | None = None
) -> ExportedProgram:
    """Export a model, or in its place a module that takes its state from buffers."""
    args, kwargs = resized_examples.resized(entry, strategy.changed)
    # torch.export takes a tensor that is passed twice for one input; a call may pass two tensors.
    args, kwargs = pytrees.clone_tensors((args, kwargs))
    shapes = torch_shapes(entry, args, kwargs)
    unchanged = example_call.unchanged(entry.module, traced=True)
    with (
        unchanged,
        torch.no_grad(),
        # What it finds the best order of products with takes no sizes that vary.
        torch.backends.opt_einsum.flags(enabled=shapes is None and torch.backends.opt_einsum.is_available()),
        _sizes(strategy),
        _kernels(),
        tracing.extremes_decide(),
        tracing.numbers_may_be_nan(),
        tracing.texts_are_refused(),
        tracing.data_is_traced(),
        tracing.inference_is_no_grad(),
        tracing.sizes_are_followed(),
        tracing.metas_are_eagers(),
        tracing.quiet(),
        tracing.transforms_are_left(),
        tracing.scans_own_their_carry(),
        tracing.guards_are_kept() if entry.guarded else nullcontext(),
    ):
        strict = strategy.strict and module is None
        effects = tracing.lost_effects_are_raised() if strict else nullcontext()
        watched = lift.watching(entry.module, entry.state) if module is None and not strict else nullcontext()
        types = nullcontext() if strict else _classes_kept(entry.module, module or entry.module)
        with _diagnosed(), effects, watched, types:
            program = torch.export.export(
                entry.module if module is None else module, args, kwargs, dynamic_shapes=shapes, strict=strict
            )
    diagnosis.require_no_transform(program, entry.name)
    diagnosis.require_solutions(program, entry.name)
    tied_buffers.merge(program)
    if module is None:
        lift.require_known_writes(entry.module, entry.state, program)
    return program


@contextmanager
def _sizes(strategy: Strategy) -> Iterator[None]:
    oblivious = symbolic_config.patch(backed_size_oblivious=strategy.all_sizes)  # type: ignore[attr-defined]
    squeezed = nullcontext() if strategy.strict else squeezed_sizes.decided()
    with oblivious, squeezed, tracing.axes_of_one_dim_are_one():
        yield


@contextmanager
def _diagnosed() -> Iterator[None]:
    with tracing.refusals_are_raised(), tracing.lines_of_helpers():
        yield


@contextmanager
def _kernels() -> Iterator[None]:
    with recurrent_layers.scanned(), correlation.traced(), saved_results.known():
        yield


@contextmanager
def _classes_kept(model: torch.nn.Module, traced: torch.nn.Module) -> Iterator[None]:
    types, keys = tracing.types_are_eagers(model), tracing.modules_are_keys(model)
    modules, dispatches = tracing.modules_are_themselves(), tracing.dispatches_are_eagers(model)
    classes = tensor_subclasses.kept(traced)
    with types, keys, modules, dispatches, classes, tracing.raising_modules_are_left():
        yield


def torch_shapes(
    entry: CanonicalEntry, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The Dims in torch's form: nested as the method's parameters are; None where nothing varies."""
    if not any(entry.dims.values()):
        return None
    made: dict[str, torch.export.Dim] = {}
    leaf_names = iter(entry.input_names)

    def form(leaf: Any) -> Any:
        wanted = entry.dims.get(next(leaf_names), {})
        if isinstance(leaf, torch.Tensor):
            return {axis: _torch_dim(dim, made) for axis, dim in wanted.items()} or None
        return _torch_hint(wanted[0]) if wanted else None

    positional = [pytrees.map_children_first(form, value) for value in args]
    keywords = {key: pytrees.map_children_first(form, value) for key, value in kwargs.items()}
    return dict(source.signature_of(entry.module.forward).bind(*positional, **keywords).arguments)


def _torch_dim(dim: Dim | Auto, made: dict[str, torch.export.Dim]) -> Any:
    if isinstance(dim, Auto):
        return torch.export.Dim.AUTO(min=dim.min, max=dim.max)
    root: Any = made.setdefault(dim.name, torch.export.Dim(dim.name, min=dim.min, max=dim.max))
    scaled = root * dim.scale if dim.scale > 1 else root
    return scaled + dim.offset if dim.offset else scaled


def _torch_hint(dim: Dim | Auto) -> Any:
    """A number's Dim: torch.export takes hints only."""
    kind = torch.export.Dim.AUTO if isinstance(dim, Auto) else torch.export.Dim.DYNAMIC
    return kind(min=dim.min, max=dim.max)
