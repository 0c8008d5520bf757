"""Finds out what a model keeps between its calls, or says at its line why no program can.

`find(model, entries, changed)` gives the `State` of a model and what a user should know of it. `Untouched`
sees to it that nothing outside of the model changes. Both raise `ExportFailed`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.state import free_variables
from aotpipe.canonicalize.state.slots import State, StateRefused, observe
from aotpipe.canonicalize.values import trace
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.errors import ExportFailed, SourceLine
from aotpipe.model import object_graph, source

# A prime: what repeats itself, such as a generator, which cannot be put back, goes on elsewhere.
_CALLS = 11
_SCALED = 3
_SEED = 0


def find(
    model: nn.Module, entries: Sequence[CanonicalEntry], changed: Sequence[object_graph.Root]
) -> tuple[State | None, list[Finding]]:
    """The state of a model of which one call of an entry point was seen to change something.

    Raises:
        ExportFailed: What it keeps takes another form after every call, and matters.
    """
    findings: list[Finding] = []
    ignored: list[object_graph.Root] = []
    # A method as a module of its own shares the model's __dict__, but what runs is the model's.
    owners = {id(vars(part)): part for part in model.modules()}
    changed = [replace(root, owner=owners.get(id(vars(root.owner)), root.owner)) for root in changed]
    calls = [_call_of(entry) for entry in entries]
    while True:
        roots = [root for root in changed if all(root.identity != each.identity for each in ignored)]
        if not roots:
            return (State((), ((),), ignored=tuple(ignored)) if ignored else None), findings
        try:
            return observe(model, calls, roots, ignored), findings
        except StateRefused as error:
            ignored.append(error.root)
            if all(_is_without_effect(entry) for entry in entries):
                findings.append(
                    Finding(
                        severity="warning",
                        code="state-left-out",
                        message=f"`{error.name}` {error.reason}; it is not kept, since the results were the "
                        "same without it",
                        hint="do not collect it in the model, or return it",
                        where=_line_of(error.root, entries),
                    )
                )
            else:
                refuse(refused(error, entries))


def refused(error: StateRefused, entries: Sequence[CanonicalEntry]) -> ExportFailed:
    """The error for a user, with the line that changes what is kept."""
    return ExportFailed(
        f"`{error.name}` {error.reason}",
        reason="what a model keeps between its calls needs one form",
        code="state-refused",
        hint=error.hint,
        where=_line_of(error.root, entries),
    )


def _call_of(entry: CanonicalEntry) -> Any:
    return partial(example_call.again, entry.module, entry.entry.args, entry.entry.kwargs)


def _line_of(root: object_graph.Root, entries: Sequence[CanonicalEntry]) -> Any:
    for entry in entries:
        with example_call.unchanged(entry.module):
            found = changing(
                _call_of(entry), lambda: object_graph.Record[str]().add(root.key, (root.held.get(root.key),))
            )
        if found is not None:
            return found
    return None


def _is_without_effect(entry: CanonicalEntry) -> bool:
    """Whether earlier calls with other inputs leave the result of each of some calls unchanged."""
    generator = torch.Generator().manual_seed(_SEED)
    given = (entry.entry.args, dict(entry.entry.kwargs))
    inputs, alone = [], []
    for number in range(_CALLS):
        # What the model does not take tells nothing. Its history may matter from the first zero on.
        scaled = _scaled(given, (1, 0, -1)[number % 3])
        others = scaled if number < _SCALED else _other_numbers(given, generator)
        for each in (others, example_call.varied(given, generator)):
            with example_call.unchanged(entry.module), suppress(Exception):
                alone.append(example_call.again(entry.module, *each))
                inputs.append(each)
                break
    try:
        with example_call.unchanged(entry.module):
            in_turn = [example_call.again(entry.module, *each) for each in inputs]
    except Exception:  # noqa: BLE001  # which the call alone does not raise
        return False
    return bool(inputs) and all(map(example_call.is_same, alone, in_turn))


def _scaled(inputs: Any, factor: int) -> Any:
    """The same inputs with their numbers by a factor."""

    def scale(leaf: Any) -> Any:
        return leaf * factor if isinstance(leaf, torch.Tensor) and leaf.dtype != torch.bool else leaf

    return pytree.tree_map(scale, inputs)


def _other_numbers(inputs: Any, generator: torch.Generator) -> Any:
    """The same inputs with noise on the floats, and other integers near those that each tensor has."""

    def vary(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.is_floating_point() or leaf.is_complex():
            return leaf
        low, high = (int(end) for end in leaf.aminmax()) if leaf.numel() else (0, 0)
        if leaf.dtype == torch.bool:
            low, high = 0, 1
        elif low == high:
            low, high = max(low - 1, min(low, 0)), high + 1
        return torch.randint(low, high + 1, leaf.shape, generator=generator).to(leaf)

    return pytree.tree_map(vary, example_call.varied(inputs, generator))


_told: ContextVar[list[ExportFailed] | None] = ContextVar("told", default=None)


def telling(refusals: list[ExportFailed]) -> AbstractContextManager[list[ExportFailed]]:
    """Let what would be refused here be added to a list; what a model keeps is then left out of its state."""
    return trace.held(_told, refusals)


def refuse(error: ExportFailed) -> None:
    """Raise an error, unless it is to be told."""
    if (told := _told.get()) is None:
        raise error
    told.append(error)


class Untouched(free_variables.Outside):
    """What a model's code can reach outside of it, as it is before the model is called."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._traced: dict[str, free_variables.OuterVariable] = {}

    def during_traces(self) -> AbstractContextManager[Untouched]:
        """Let each `tracing()` put back what it changes."""
        return trace.held(_untouched, self)

    def put_back(self) -> None:
        """Put back what a trace changed, beside what `check_traced` is to know of."""
        self._traced |= {place.name: place for place in self.changed(but_added=True)}
        self.restore()

    def refusals(self, entry: CanonicalEntry) -> list[ExportFailed]:
        """An error for each place that a call changes every time, or with which its result changes.

        What is computed once and then the same is left as the first call made it.
        """
        if not self.changed():
            return []
        call = _call_of(entry)
        before = [self.snapshot_of(variable) for variable in self.changed()]
        with example_call.unchanged(entry.module):
            second = call()
        with example_call.unchanged(entry.module):
            third = call()
        moving = [
            variable
            for variable, old in zip(self.changed(), before, strict=False)
            if self.snapshot_of(variable) != old
        ]
        variables = moving or self.changed()
        self.restore()
        with example_call.unchanged(entry.module):
            first = call()
        if not moving and example_call.is_same(first, second) and example_call.is_same(second, third):
            return []
        self.restore()
        return [self.refusal(entry, variable) for variable in variables]

    def check_traced(self, entry: CanonicalEntry) -> None:
        """Refuse what traces, which take every path, changed, but for what they added to tables.

        Raises:
            ExportFailed: Names it, and its line where a call on the example changes it too.
        """
        for variable in self._traced.values():
            error = self.refusal(entry, variable)
            if error.message not in entry.refused:
                refuse(error)

    def refusal(self, entry: CanonicalEntry, variable: free_variables.OuterVariable) -> ExportFailed:
        """The error for a place that a call changes."""
        with example_call.unchanged(entry.module):
            where = changing(_call_of(entry), partial(self.snapshot_of, variable))
        self.restore()
        return ExportFailed(
            f"{entry.name} changes {variable.name}",
            reason="a program has nothing outside of the model to change",
            code="global-changed",
            hint="keep it in an attribute of the module: that becomes state of the program",
            where=where or source.of_definition(entry.module.forward),
        )


_untouched: ContextVar[Untouched | None] = ContextVar("untouched", default=None)


@contextmanager
def tracing() -> Iterator[None]:
    """One trace of the model, which leaves tensors of torch's own in what it changes outside: put back."""
    try:
        yield
    finally:
        if (untouched := _untouched.get()) is not None:
            untouched.put_back()


def changing(call: Callable[[], object], snapshot: Callable[[], object]) -> SourceLine | None:
    """The first line of the model's code after which a snapshot is another than before a call.

    None where that is not seen, as when a C extension changes it.
    """
    before = snapshot()
    at: SourceLine | None = None
    found: SourceLine | None = None

    def step(frame: FrameType, event: str, _: Any) -> Any:
        # A line has run when the next one begins, or when its function returns.
        nonlocal at, found
        if found is None and snapshot() != before:
            found = at
            return None
        at = _line(frame if event != "return" else frame.f_back)
        return step

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        return step if found is None and source.is_model_code(frame.f_code.co_filename) else None

    tracer = sys.gettrace()
    sys.settrace(enter)
    # Whoever calls the model without a tracer sees what it raises.
    with suppress(Exception):
        try:
            call()
        finally:
            sys.settrace(tracer)
    return found


def _line(frame: FrameType | None) -> SourceLine | None:
    while frame is not None and not source.is_model_code(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else SourceLine(source.shown(frame.f_code.co_filename), frame.f_lineno)
