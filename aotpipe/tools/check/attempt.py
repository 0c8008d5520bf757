"""Runs a build's stages up to the compiler, and finds each line of Python that they refuse.

`attempt(canonical, observed, request)` exports and legalizes as a build does. Where an export is refused,
every line at which Python looks into a tensor is replayed: Python gets what eager got there, in place of
traced tensors. Then each line is freed again, in the order of the run: the export that now fails is refused
for that line alone. So every refusal is one that a stage of a build made, and all are found. Gives an
`Attempted`; raises nothing that a model can cause.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree  # torch.export's own flattening; see pytrees

from aotpipe.backends.xla import lowering
from aotpipe.build.chain import Chain
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.canonicalize import modules
from aotpipe.canonicalize.state import discovery
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Canonical, CanonicalEntry, Exported, ExportedEntry, Finding, Legal
from aotpipe.errors import AotpipeError, ExportFailed, LowerFailed, UnsupportedOps
from aotpipe.export import diagnosis, export
from aotpipe.export.diagnosis import GuardLog
from aotpipe.export.tracing import lines_of_helpers
from aotpipe.model import garbage_collector, source_ranges
from aotpipe.model.source import signature_of
from aotpipe.model.source_ranges import Place, deciding
from aotpipe.tools.check.eager_runs import Event, Observed

Line = tuple[str, int]
_Key = tuple[Place, str]
_BUDGET_S: Final = 60.0


@dataclass(slots=True)
class Refusal:
    """What a stage refused; `events` are those of the line that it was refused for, if it is one's fault."""

    error: AotpipeError
    entry_point: str = ""
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Attempted:
    """What came of the attempts.

    Attributes:
        refusals: In the order of the run.
        models: The entry points that were exported, one for each program.
        signatures: Of what was exported; with the state, where it could be legalized.
        replayed: The lines that were replayed to get there.
        complete: Whether every stage was run to its end.
    """

    refusals: list[Refusal] = field(default_factory=list)
    models: list[CanonicalEntry] = field(default_factory=list)
    entries: list[ExportedEntry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    signatures: dict[str, Signature] = field(default_factory=dict)
    replayed: set[Line] = field(default_factory=set)
    complete: bool = True


def attempt(canonical: Canonical, observed: Mapping[str, Observed], request: Request) -> Attempted:
    """Run the stages up to the compiler on each entry point, past each refusal.

    Raises:
        NoBuckets, MeshError: The buckets, or the mesh, do not fit what was exported.
    """
    found = Attempted()
    for entry in canonical.entries:
        one = replace(canonical, entries=(entry,), findings=())
        attempts = _Entry(one, observed[entry.name], found)
        exported = attempts.exported()
        # What the traces changed outside of the model, each once.
        outside = {str(error): error for error in attempts.outside}
        found.refusals += [Refusal(error, entry.name) for error in outside.values()]
        if exported is None:
            found.complete = False
            continue
        found.models += exported.canonical.entries
        found.entries += exported.entries
        found.findings += exported.findings
    if found.models:
        kept = replace(canonical, entries=tuple(found.models))
        exported = Exported(canonical=kept, entries=tuple(found.entries), findings=())
        found.signatures = exported.signatures
        with garbage_collector.paused():
            try:
                found.signatures = _legal(exported, found, request).signatures
            except (UnsupportedOps, LowerFailed) as error:
                found.refusals.append(Refusal(error))
    return found


def is_taken(model: Canonical, observed: Observed, replayed: frozenset[Line]) -> bool:
    """Whether the only entry point of a model is exported with these lines replayed."""
    return isinstance(_Entry(model, observed, Attempted()).export(replayed), Exported)


def _legal(exported: Exported, found: Attempted, request: Request) -> Legal:
    # Nobody compiles the programs: the rules for GPUs do the least to a convolution.
    rulesets = dict.fromkeys("torch-gpu" if each == "torch" else each for each in request.rulesets)
    chain = Chain(request, Recorder(), exported=exported, rulesets=tuple(rulesets))
    if "xla" in request.backends:
        lowering.placed(chain.legals["stablehlo"], chain.buckets, request.mesh, request.rules)
    found.findings += [*chain.exported.findings, *chain.notes]
    return chain.legal


def _last(error: AotpipeError, entry_point: str) -> AotpipeError:
    """The refusal of the last way of exporting, which says more than that of the first."""
    staged = error.__context__
    if not isinstance(staged, Exception) or staged is error.__cause__:
        return error
    said = diagnosis.explain(staged, GuardLog(), entry_point)
    said.__cause__ = staged
    return said


class _Entry:
    def __init__(self, model: Canonical, observed: Observed, found: Attempted) -> None:
        self._model = model
        [self._entry] = model.entries
        self._observed = observed
        self._found = found
        self._until = time.perf_counter() + _BUDGET_S
        self.outside: list[ExportFailed] = []
        self.export = cache(self._exported)  # the same lines once

    def exported(self) -> Exported | None:
        """The program, with what could not be in it replayed; None where that does not help."""
        first = self.export(frozenset())
        if isinstance(first, Exported):
            return first
        lines = self._lines()
        kept = frozenset(lines)
        best = self.export(kept) if lines else first
        if not isinstance(best, Exported):
            # What no tensor's value explains, or a tensor's that eager never looked into.
            self._refuse(best, ())
            self._refuse_beside(best, lines)
            return None
        freed = first
        for line in lines:
            if time.perf_counter() > self._until:
                self._found.complete = False
                break
            got = self.export(kept - {line})
            if isinstance(got, Exported):
                kept -= {line}
                best = got
            else:
                freed = got
                self._refuse(got, self._blamed(got, line, lines))
        if not kept:
            # Each is taken alone, and all are refused together.
            self._refuse(freed, ())
            return None
        self._found.replayed |= kept
        return best

    def _refuse_beside(self, best: AotpipeError, lines: Mapping[Line, list[Event]]) -> None:
        """Find the lines that are refused before something that is refused in any case."""
        for line in lines:
            if time.perf_counter() > self._until:
                break
            got = self.export(frozenset(lines) - {line})
            if isinstance(got, AotpipeError) and (got.message, got.where) != (best.message, best.where):
                self._refuse(got, self._blamed(got, line, lines))

    def _blamed(self, error: AotpipeError, line: Line, lines: Mapping[Line, list[Event]]) -> list[Event]:
        """The events of a line, or of the refused line in the body that it decides about."""
        decided = [deciding(event.place) for event in lines[line] if event.kind == "truth"]
        end = max((getattr(each.node, "end_lineno", 0) for each in decided if each is not None), default=0)
        for other, events in lines.items():
            inside = line[0] == other[0] and line[1] < other[1] <= end
            if inside and error.where == events[0].place.where and events[0].kind != "truth":
                return events
        return lines[line]

    def _refuse(self, error: AotpipeError, events: Iterable[Event]) -> None:
        self._found.refusals.append(Refusal(error, self._entry.name, list(events)))

    def _lines(self) -> dict[Line, list[Event]]:
        """The lines at which Python looks into what varies, in the order of the run."""
        found: dict[Line, list[Event]] = {}
        for event in (*self._observed.first, *self._observed.events.values()):
            if event.node.varies:
                events = found.setdefault(event.line, [])
                if all((event.place, event.kind) != (each.place, each.kind) for each in events):
                    events.append(event)
        return found

    def _exported(self, lines: frozenset[Line]) -> Exported | AotpipeError:
        """Export with these lines replayed."""
        first = {event.line for event in self._observed.first}
        later = [event for event in self._observed.events.values() if event.line not in first]
        events = [event for event in (*self._observed.first, *later) if event.line in lines]
        known = with_replay(self._entry, events)
        try:
            with discovery.telling(self.outside), garbage_collector.paused(), lines_of_helpers():
                return export(replace(self._model, entries=(known,)))
        except AotpipeError as error:
            return _last(error, self._entry.name)
        except Exception as error:  # noqa: BLE001  # what a replayed model raises is the model's own
            return ExportFailed(f"{self._entry.name} raised {type(error).__name__}", reason=str(error))


def with_replay(entry: CanonicalEntry, events: Sequence[Event]) -> CanonicalEntry:
    """The entry point with eager's values at the places of these events, in their order."""
    if not events:
        return entry
    inputs = {event.source: event.operand for event in events if event.kind == "truth" and event.source}
    call = entry.module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = iter(entry.input_names)

        def known(leaf: Any) -> Any:
            name = next(given, "")
            return _constant(inputs[name]) if name in inputs else leaf

        args, kwargs = pytree.tree_map(known, (args, kwargs))
        with _Replay(_recorded(events)):
            return call(*args, **kwargs)

    forward.__signature__ = signature_of(call)  # type: ignore[attr-defined]
    forward.__wrapped__ = call  # type: ignore[attr-defined]
    forward.__name__ = type(entry.module).__name__
    return replace(entry, module=modules.view_of(entry.module, forward))


def _recorded(events: Iterable[Event]) -> Mapping[_Key, list[Any]]:
    """What the function at a place gave, each time: the one that takes, or the one whose result decides."""
    found: dict[_Key, list[Any]] = {}
    for event in events:
        found.setdefault((event.at, event.op), []).append(event.value)
        if event.op == "tolist":
            # A traced tensor has a tolist of its own, made of the items.
            found.setdefault((event.at, "item"), []).extend(pytree.tree_leaves(event.value))
        if event.kind == "truth" and event.node.place is not None:
            found.setdefault((event.node.place, event.node.what), []).append(event.operand)
    return found


def _constant(value: Any) -> Any:
    """Make a tensor anew while the model is traced: torch keeps the value of one that is created then."""
    if isinstance(value, torch.Tensor):
        return torch.tensor(value.tolist(), dtype=value.dtype).reshape(value.shape)
    return value


class _Replay(TorchFunctionMode):
    """Gives what eager got, in the order of the run."""

    def __init__(self, recorded: Mapping[_Key, list[Any]]) -> None:
        super().__init__()
        self._recorded = recorded
        self._names = frozenset(name for _, name in recorded)
        self._next: dict[_Key, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self._names:
            inner = source_ranges.model_frame(sys._getframe(1))  # noqa: SLF001  # the code that calls
            key = (source_ranges.of_frame(inner), name) if inner is not None else None
            if key is not None and (values := self._recorded.get(key)):
                index = self._next.get(key, 0)
                self._next[key] = index + 1
                # What follows a branch may be traced once for each path, and each begins with the first.
                return _constant(values[index % len(values)])
        return func(*args, **(kwargs or {}))
