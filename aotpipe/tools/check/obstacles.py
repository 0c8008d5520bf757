"""From what the stages refused to obstacles: a code, the exact expression, the reason, the value's history.

Takes the refusals of `attempt` with the events of their lines; gives one `Diagnostic` for each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, OPAQUE, below, dotted
from aotpipe.errors import (
    AotpipeError,
    ExportFailed,
    IslandsNotAllowed,
    SourceLine,
    StaticDim,
    UnsupportedOps,
)
from aotpipe.model.source_ranges import around, deciding, of_source_line
from aotpipe.tools.check.attempt import Refusal
from aotpipe.tools.check.diagnostics import Diagnostic
from aotpipe.tools.check.eager_runs import Event, Kind, Observed

_BY_KIND: Final[Mapping[Kind, str]] = {
    "truth": "branch-on-tensor",
    "number": "number-from-tensor",
    "size": "size-from-data",
    "array": "tensor-to-numpy",
    "text": "text-from-tensor",
}
_ORDER: Final[Sequence[Kind]] = ("array", "text", "number", "size", "truth")
"""The event that explains most comes first: what takes a value out of torch before what only decides."""
_HINTS: Final[Mapping[str, str]] = {
    "number-from-tensor": "keep it a 0-d tensor; for a size, pad to the largest and mask what lies beyond",
    "size-from-data": "keep the size: mask with torch.where, or take the largest with topk of a fixed k",
    "tensor-to-numpy": "use torch's function of that name, or let it run in Python: aotpipe.eager_island",
    "text-from-tensor": "choose by the tensor itself: torch.where, an index, or torch.cond",
    "raises-on-tensor": "write it as `assert`, which becomes an assert of the program",
    "recursion-on-data": "write it as a loop over tensors of a fixed size, with a bound for its trips",
    "list-grows": "loop over `range(N)` and `break`, so that the list has a bound",
    "no-source": "put the code in a file",
}
_SAID: Final[Mapping[str, str]] = {
    "branch-on-tensor": "Python decides on {}, a tensor's value",
    "number-from-tensor": "{} takes a number out of a tensor",
    "size-from-data": "the size of {} depends on data",
    "tensor-to-numpy": "{} takes a tensor out of torch",
    "text-from-tensor": "{} makes a text of a tensor's value",
    "raises-on-tensor": "{} decides whether an exception is raised",
    "recursion-on-data": "{} decides whether the function calls itself again",
    "no-source": "Python decides on a tensor's value in code whose source is not there",
}
# Of these the stage's own message says more than the expression.
_OWN_WORDS: Final = frozenset(
    "exception-caught list-grows loop-changes-form paths-differ "
    "python-object-changed written-in-place".split()
)
_ADVICE: Final = "run torch.export.draft_export"


def obstacles(refusals: Sequence[Refusal], observed: Mapping[str, Observed]) -> Iterator[Diagnostic]:
    """One diagnostic per refusal; where one line only led to another, that one alone."""
    own = {event.place.where for refusal in refusals for event in refusal.events}
    for refusal in refusals:
        if isinstance(refusal.error, UnsupportedOps) and refusal.error.ops:
            yield from _unsupported(refusal.error, observed)
            continue
        mine = {event.place.where for event in refusal.events}
        if not mine or refusal.error.where not in own - mine:
            yield _obstacle(refusal, observed.get(refusal.entry_point))


def _unsupported(error: UnsupportedOps, observed: Mapping[str, Observed]) -> Iterator[Diagnostic]:
    for op in error.ops:
        # What computes with a symbol of torch's is a function of Python.
        kind: Kind | None = "number" if op.name.startswith("<") else None
        kind = "size" if "depends on data" in op.reason else kind
        event = _taken_at(op.where, kind, observed) if kind else None
        said = f"{op.name} has no lowering" if op.reason.startswith("has no") else f"{op.name} {op.reason}"
        if event is not None:
            code = _BY_KIND[event.kind]
            yield _of_event(event, code, _said(code, event), reason=said, hint=_HINTS[code])
            continue
        more = f"met {op.count} times, first here" if op.count > 1 else ""
        own = {"where": op.where, "place": of_source_line(op.where)}
        yield Diagnostic.of("op-without-lowering", said, reason=more, hint=error.hint, seen=True, **own)


def _taken_at(where: SourceLine | None, kind: Kind, observed: Mapping[str, Observed]) -> Event | None:
    """The event of a line that takes a value of this kind out of a tensor that varies."""
    events = (event for each in observed.values() for event in each.events.values())
    return next((e for e in events if e.kind == kind and e.node.varies and e.place.where == where), None)


def _of_event(event: Event, code: str, message: str, **more: str) -> Diagnostic:
    return Diagnostic.of(code, message, place=event.place, history=event.node.history(), seen=True, **more)


def _said(code: str, event: Event) -> str:
    return _SAID[code].format(f"`{event.place.expression}`" if event.place.expression else "this")


def _obstacle(refusal: Refusal, observed: Observed | None) -> Diagnostic:
    error = refusal.error
    event = min(refusal.events, key=lambda each: _ORDER.index(each.kind), default=None)
    code = _code(error, event, observed)
    hint = _HINTS.get(code, "") or (error.hint if _ADVICE not in error.hint else "")
    more = {"hint": hint, "entry_point": refusal.entry_point}
    if event is None:
        return Diagnostic.of_error(code, error, **more)
    message = _said(code, event) if code in _SAID else error.message
    return _of_event(event, code, message, reason=_reason(code, error, event), **more)


def _code(error: AotpipeError, event: Event | None, observed: Observed | None) -> str:
    if isinstance(error, StaticDim):
        return "static-dim"
    if isinstance(error.__cause__, RecursionError) or "RecursionError" in error.message:
        return "recursion-on-data"
    if (stated := stated_code(error)) is not None:
        return stated
    if event is None:
        return "not-exported"
    if not event.place.text:
        return "no-source"
    if event.kind == "truth":
        if observed and event.place in observed.raised and deciding(event.place) is not None:
            return "raises-on-tensor"
        if _is_recursive(event):
            return "recursion-on-data"
    return _BY_KIND[event.kind]


def stated_code(error: AotpipeError) -> str | None:
    """The code that a refusal gives itself, if it does."""
    if isinstance(error, IslandsNotAllowed):
        return "stays-python"
    return (error.code or None) if isinstance(error, ExportFailed) else None


def _is_recursive(event: Event) -> bool:
    """Whether the function that decides calls itself."""
    found = deciding(event.place)
    function = found.function if found else None
    name = getattr(function, "name", None)
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call)) if function and name else ()
    return any(dotted(call.func) in (name, f"self.{name}") for call in calls)


def _reason(code: str, error: AotpipeError, event: Event) -> str:
    lines = [error.reason] if error.reason else []
    if code in _OWN_WORDS:
        found = deciding(event.place)
        return "\n".join([*lines, *([f"this {found.what} would become {found.into}"] if found else [])])
    if code == "branch-on-tensor" and (why := _why_not_rewritten(event)):
        return why
    if error.where is not None and error.where != event.place.where:
        there = of_source_line(error.where)
        lines.insert(0, f"{error.where} needs it" + (f": {there.text.strip()}" if there else ""))
    return "\n".join(lines)


def _why_not_rewritten(event: Event) -> str:
    """Why the control flow of a function is not rewritten; empty where no reason is known."""
    found = deciding(event.place)
    if found is None:
        if any(isinstance(node, COMPREHENSIONS) for node in around(event.place)):
            return "the test of a comprehension is left as it is"
        return "the value is used where Python itself wants a bool"
    for node in (found.function, *below(found.function)) if found.function else ():
        match node:
            case ast.Lambda() if node is found.function:
                return "a lambda is left as it is"
            case ast.AsyncFunctionDef() if node is found.function:
                return "an async function is left as it is"
            case ast.Yield() | ast.YieldFrom():
                return "a generator is left as it is"
            case ast.Call(func=ast.Name(id=called)) if called in OPAQUE:
                return f"a function that calls {called}() is left as it is"
    return ""
