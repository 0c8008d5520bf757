"""The course of a check: a request in, a `Checked` out.

The model is built once. A refusal to make it ready (train mode, examples that it raises on) is an obstacle
like any other; where the check can go on behind it, it does.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from functools import cache
from typing import Any

from aotpipe.build.request import Request
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.state import discovery
from aotpipe.core.stages import Canonical, Finding
from aotpipe.errors import AotpipeError, ExportFailed, SourceLine, SpecInvalid, TrainMode
from aotpipe.islands.sites import recording
from aotpipe.model import source, source_ranges
from aotpipe.model.source_ranges import Place, constructs
from aotpipe.tools.check import baked
from aotpipe.tools.check.agreement import disagreement, is_worth_it, with_fix
from aotpipe.tools.check.attempt import Attempted, attempt
from aotpipe.tools.check.diagnostics import SEVERITIES, Checked, Diagnostic, Rewrite, Step
from aotpipe.tools.check.eager_runs import Observed, observe
from aotpipe.tools.check.obstacles import obstacles, stated_code


def examine(request: Request) -> Checked:
    """Check a model.

    Raises:
        ModelError: It cannot be built, or the Spec contradicts itself.
        NoBuckets, MeshError: The buckets, or the mesh, do not fit it.
    """
    found: list[Diagnostic] = []
    refusals: list[ExportFailed] = []
    with ExitStack() as stack:
        if request.islands:
            stack.enter_context(recording())
        spec = request.load()
        build: Callable[[], Any] = cache(spec.build)  # the model is built at the first call only
        spec = replace(spec, build=build)
        # stdout is the answer's; that the model prints is part of it.
        stack.enter_context(redirect_stdout(io.StringIO()))
        try:
            try:
                with discovery.telling(refusals):
                    canonical = canonicalize(spec)
            except TrainMode as error:
                found.append(Diagnostic.of_error(code="train-mode", error=error))
                for module in build().modules():
                    stack.callback(setattr, module, "training", module.training)
                    module.training = False
                with discovery.telling(refusals):
                    canonical = canonicalize(spec)
            # What the model changes outside of itself, or keeps in a form that no program has.
            found += [Diagnostic.of_error(stated_code(each) or "not-exported", each) for each in refusals]
            return _examined(canonical, found, request)
        except SpecInvalid as error:
            if error.__cause__ is None:
                raise
            found.append(_raised(error, error.__cause__))
            return Checked(name=spec.name, diagnostics=_sorted(found), complete=False)


def _examined(canonical: Canonical, found: list[Diagnostic], request: Request) -> Checked:
    if request.islands:
        from aotpipe.islands.tracing import discover

        discover(canonical)
    observed = {entry.name: observe(entry) for entry in canonical.entries}
    attempted = attempt(canonical, observed, request)
    known = {(each.code, each.message) for each in found}
    found += [e for e in obstacles(attempted.refusals, observed) if (e.code, e.message) not in known]
    found = [with_fix(each, canonical, observed, attempted.replayed) for each in found]
    if not any(each.severity == "error" for each in found):
        pairs = zip(attempted.models, attempted.entries, strict=True)
        seen = {each.name: observed[each.specializes or each.name] for each in attempted.models}
        differing = (disagreement(*pair) for pair in pairs if is_worth_it(pair[0], seen[pair[0].name]))
        found += filter(None, differing)
    found += _surroundings(canonical, observed, attempted)
    found += _told_by_stages(canonical, attempted, found)
    if not attempted.complete:
        found.append(
            Diagnostic.of(
                "check-incomplete",
                "not every stage could be run to its end: there may be more to find",
                hint="check again when the obstacles that were found are gone",
            )
        )
    return Checked(
        name=canonical.spec.name,
        diagnostics=_sorted(found),
        rewrites=tuple(_rewrites(canonical, observed, attempted)),
        signatures=attempted.signatures,
        complete=attempted.complete,
    )


def _told_by_stages(
    canonical: Canonical, attempted: Attempted, found: Collection[Diagnostic]
) -> list[Diagnostic]:
    """The findings of the stages that hold for the model as it is and that `found` does not have."""
    baked_inputs = {each.message.split("`")[1] for each in found if each.code == "baked-input"}
    dropped = {str(each.where) for each in found if each.code == "output-dropped"}
    # What nothing reads in a model with replayed lines, the model may well read.
    untrue = {"unused-input", "integer-output"} if attempted.replayed else set()

    def is_told(finding: Finding) -> bool:
        match finding.code:
            case "control-flow-in-graph":
                return False
            case "talk-left-out":
                return str(finding.where) not in dropped
            case "constant-input":
                return not any(f"'{name}'" in finding.message for name in baked_inputs)
        # `_surroundings` gives the diagnostics of what is baked, with their places.
        return finding.code not in untrue and not finding.code.startswith("baked-")

    findings = (*canonical.findings, *attempted.findings)
    return [_of_finding(each, canonical) for each in findings if is_told(each)]


def _rewrites(
    canonical: Canonical, observed: Mapping[str, Observed], attempted: Attempted
) -> Iterator[Rewrite]:
    """The constructs on varying tensors in the functions that a build rewrote, without replayed lines."""
    for entry in canonical.entries:
        seen = observed[entry.name]
        functions = {
            str(each.where)
            for each in attempted.findings
            if each.entry_point == entry.name and each.code == "control-flow-in-graph"
        }
        made: dict[tuple[str, int, int, str], Rewrite] = {}
        for event in seen.events.values():
            decides = event.node.varies and event.kind in ("truth", "number")
            for each in constructs(event.place) if decides and event.line not in attempted.replayed else ():
                place = event.place
                starts = [each.function, *getattr(each.function, "decorator_list", ())]
                shown = source.shown(place.path)
                if not any(start and f"{shown}:{start.lineno}" in functions for start in starts):
                    continue
                if isinstance(each.node, ast.expr | ast.stmt):
                    place = source_ranges.of_node(place.path, each.node, place.function)
                is_assert = each.what == "if" and event.place in seen.raised
                into = source_ranges.ASSERT if is_assert else each.into
                made[place.path, place.line, place.column, each.what] = Rewrite(
                    what=each.what, into=into, place=place, entry_point=entry.name
                )
        yield from (made[key] for key in sorted(made))


def _surroundings(
    canonical: Canonical, observed: Mapping[str, Observed], attempted: Attempted
) -> Iterable[Diagnostic]:
    """What is fixed, dropped or kept; what several entry points share is said once."""
    names = {name for entry in attempted.entries for name in entry.program.graph_signature.buffers}
    said: dict[tuple[str, str, Place | None], Diagnostic] = {}
    for entry in canonical.entries:
        seen = observed[entry.name]
        kept = {}
        for path in seen.changed:
            # The state of the attribute's own name, or those below it where it holds several.
            own = [name for name in names if name == path or name.startswith(f"{path}.")]
            if own:
                kept[path] = own[0] if len(own) == 1 else f"{path}.*"
        # On what is unread or ignored no result depends.
        for root in (*entry.state.unread, *entry.state.ignored) if entry.state is not None else ():
            seen.changed.pop(root.path, None)
        for each in (*baked.effects(seen), *baked.attributes(seen, kept), *baked.fixed(entry)):
            said.setdefault((each.code, each.message, each.place), each)
    return said.values()


def _raised(error: AotpipeError, cause: BaseException) -> Diagnostic:
    """What the model raised on its own examples, with its own lines as the history."""
    frames = []
    traceback = cause.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if source_ranges.is_model(traceback.tb_frame):
            line = source_ranges.of_line(code.co_filename, traceback.tb_lineno)
            frames.append(source_ranges.at(code, traceback.tb_lasti) or line)
        traceback = traceback.tb_next
    place = frames[-1] if frames else source_ranges.of_source_line(error.where)
    return Diagnostic.of_error(
        code="model-raises",
        error=error,
        where=place.where if place else error.where,
        place=place,
        history=tuple(
            Step(what=f"`{frame.expression}`", place=frame) for frame in frames[-2::-1] if frame.expression
        ),
    )


def _of_finding(finding: Finding, canonical: Canonical) -> Diagnostic:
    """A finding of a stage; what concerns a whole entry point is said at its method."""
    named = [entry for entry in canonical.entries if entry.name == finding.entry_point]
    where = finding.where or source.of_definition((named or canonical.entries)[0].module.forward)
    return Diagnostic(
        severity=finding.severity,
        code=finding.code,
        message=finding.message,
        hint=finding.hint,
        where=where,
        place=source_ranges.of_source_line(where),
        entry_point=finding.entry_point,
    )


def _sorted(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    def key(each: Diagnostic) -> tuple[int, str, int, int]:
        column = each.place.column if each.place else 0
        where = each.where or SourceLine(source.shown("~"), 0)
        return SEVERITIES.index(each.severity), where.path, where.line, column

    return tuple(sorted(found, key=key))
