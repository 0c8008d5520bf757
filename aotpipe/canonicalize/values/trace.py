"""The one object that holds what is known of the trace that runs; errors and notes with the user's line.

A `Trace` begins with `started` and ends with it. Each module of the canonicalizer keeps its own part of it: a
dataclass of that module, which `part(kind)` gives. Outside of a trace nothing is known: `part` gives an empty
one each time, so that what is noted there is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeVar

import torch

from aotpipe.core.stages import Finding, Severity
from aotpipe.errors import ExportFailed
from aotpipe.model import source

P = TypeVar("P")

OPERATORS_MODULE: Final = "aotpipe.canonicalize.operators.operators"
"""The module that rewritten code calls."""
GENERATED: Final = "__aotpipe"
"""Begins all names that the rewriting makes."""
TEXT: Final = "a text is made of a value that is known to a run of the graph only"
TEXT_FROM_TENSOR: Final = "text-from-tensor"
"""The code of a refusal of such a text."""
TEXT_HINT: Final = "compute with numbers; texts are for errors and for print"


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators that a value calls by itself, where it meets torch or Python.

    Attributes:
        call: `function(*args, **kwargs)`.
        either: One of two results, by whether an optional value is present.
        call_with_optional: A torch function of which an argument is an optional value.
        call_with_list: A torch function of a dynamic list.
        call_chosen, element_chosen: Of several functions or values, what a number chooses.
        require_defined: Asserts that Python's operator has a value for its operands.
        require_index: Lets a `try` around see that an index may be outside of so many elements.
        require: Asserts that a flag is true, else eager raises an error; tells whether it is from then on.
        add_assert: Asserts that a flag is true; what it says is no exception of eager's.
        truth: The truth of a flag on the path that is traced, for which a library asks; None where it asks in
            vain.
        mapped: The list of what a function gives for each item of a list whose length only a run knows.
        items_of: The items of a value of which only a run knows how many there are, else None.
        on_call: What `sys.setprofile` takes, where there are values that only rewritten code knows.
        are_calls_possible: Whether there may be calls that it has to be told of.
    """

    call: Callable[..., Any]
    either: Callable[[Any, Callable[[], Any], Callable[[], Any]], Any]
    call_with_optional: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
    call_with_list: Callable[[Any, Sequence[Any], dict[str, Any]], Any]
    call_chosen: Callable[[Sequence[Any], torch.Tensor, Any, Any], Any]
    element_chosen: Callable[[list[Any], torch.Tensor], Any]
    require_defined: Callable[[Callable[..., Any], Sequence[Any]], None]
    require_index: Callable[[torch.Tensor, Any], None]
    require: Callable[[Any, Exception], bool]
    add_assert: Callable[[torch.Tensor, str], bool]
    truth: Callable[[torch.Tensor], bool | None]
    mapped: Callable[[Callable[[Any], Any], Any], list[Any]]
    items_of: Callable[[Any], Any]
    on_call: Callable[[FrameType, str, Any], object]
    are_calls_possible: Callable[[], bool]


@dataclass(slots=True)
class Trace:
    """What is known of one trace.

    Attributes:
        operators: What values call by themselves; None where no model is traced.
        exact_aliases: Whether traced numbers tell the storages that only a run knows.
        splits_tries: Whether a `try` is run for each way that a tensor may take through it.
        joins_objects: Whether a new object stands for those that a variable of a class of the model's may be.
        splits_containers: Whether paths are kept apart on which a container gets another name.
        unrolls_ranges: Whether a loop over a range of sizes is written out where it is refused as one op; how
            often it runs is a guard then.
        needs: Which of these five something was refused for lack of.
        has_too_many_ways: Whether it was given up for the number of ways through its `try` and path scopes.
        may_unroll: Whether a loop that is traced now is unrolled where its trace is refused.
        modes: How many modes of torch the trace itself put around the model, outside of regions.
        called_at: How many modes of functions were left under the one that called torch last.
        rewrite_now: Rewrites a function for as long as the trace lasts; tells whether that can be.
        is_message: Whether a text that is made now is only shown to the user.
        asking: The codes, by file, line and name, in which a library or code that cannot be rewritten asks
            for the truth of tensors: there each of the two is a path of its own.
        unjoined: The refusals of values that have no common form on two paths, each with the lines of the
            model that ran, the innermost first.
        watches_calls: Whether any value was made that only rewritten code knows.
        is_in_torch: Whether calls are not told of now, as torch runs nothing of the model's.
    """

    operators: Operators | None = None
    exact_aliases: bool = False
    splits_tries: bool = False
    joins_objects: bool = False
    splits_containers: bool = False
    unrolls_ranges: bool = False
    needs: set[str] = field(default_factory=set)
    has_too_many_ways: bool = False
    may_unroll: bool = False
    modes: int = 0
    called_at: int = 0
    findings: dict[Finding, None] = field(default_factory=dict)
    rewrite_now: Callable[[FunctionType], bool] | None = None
    is_message: bool = False
    asking: Collection[tuple[str, int, str]] = ()
    unjoined: list[tuple[ExportFailed, tuple[tuple[CodeType, int], ...]]] = field(default_factory=list)
    watches_calls: bool = False
    is_in_torch: bool = False
    parts: dict[type, Any] = field(default_factory=dict)


@contextmanager
def assigned(owner: object, **attributes: Any) -> Iterator[None]:
    """Let attributes that an object has hold these values while the body runs."""
    before = {name: getattr(owner, name) for name in attributes}
    if (own := getattr(owner, "__dict__", None)) is not None:
        # What a class inherits it inherits again, and a static method stays one.
        before = {name: own[name] for name in attributes if name in own}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


@contextmanager
def pushed(stack: list[Any], top: P) -> Iterator[P]:
    """Let a stack have one more element, which this gives, while the body runs."""
    stack.append(top)
    try:
        yield top
    finally:
        stack.pop()


@contextmanager
def held(variable: ContextVar[Any], value: P) -> Iterator[P]:
    """Let a context variable hold a value, which this gives, while the body runs."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def started(trace: Trace) -> Iterator[Trace]:
    """Begin a trace, and end it with the body."""
    profile = sys.getprofile()
    try:
        with held(_current, trace):
            yield trace
    finally:
        if sys.getprofile() is not profile:
            # A profiler written in C cannot be given back to Python.
            sys.setprofile(profile if callable(profile) else None)


def watch_calls() -> None:
    """From now on there are values that only rewritten code knows: other code must not be given them."""
    trace = current()
    trace.watches_calls = True
    found = trace.operators
    if found is None or trace.is_in_torch or sys.getprofile() is found.on_call:
        return
    if found.are_calls_possible():
        sys.setprofile(found.on_call)


@contextmanager
def watch_ended() -> Iterator[None]:
    """Be told of no more calls once the model has run, or has raised: torch makes most of them."""
    try:
        yield
    finally:
        found = current().operators
        if found is not None and sys.getprofile() is found.on_call:
            sys.setprofile(None)


@contextmanager
def in_torch() -> Iterator[None]:
    """Be told of no calls by code of torch's, or of ours, which makes many; the model's own is `in_model`."""
    trace = current()
    on_call = trace.operators and trace.operators.on_call
    if on_call is None or sys.getprofile() is not on_call:
        yield
        return
    sys.setprofile(None)
    try:
        with assigned(trace, is_in_torch=True):
            yield
    finally:
        sys.setprofile(on_call)


@contextmanager
def in_model() -> Iterator[None]:
    """Be told of calls again, where such code runs a part of the model."""
    trace = current()
    if not trace.is_in_torch or trace.operators is None:
        yield
        return
    sys.setprofile(trace.operators.on_call)
    try:
        with assigned(trace, is_in_torch=False):
            yield
    finally:
        sys.setprofile(None)


def is_on() -> bool:
    """Whether a graph is being traced."""
    return _current.get() is not None


def current() -> Trace:
    """The trace that runs; an empty one, which nobody keeps, outside of a trace."""
    return _current.get() or Trace()


def part(kind: type[P]) -> P:
    """A module's part of the trace that runs, which is made when it is first asked for."""
    parts = current().parts
    if kind not in parts:
        parts[kind] = kind()
    found: P = parts[kind]
    return found


def operators() -> Operators:
    """The operators of the trace that runs."""
    found = current().operators
    assert found is not None, "a value of a trace is used outside of it"
    return found


def refusal(message: str, hint: str, code: str = "") -> ExportFailed:
    """An error for the user's line that called; `code` as `aotpipe check` has it."""
    return ExportFailed(message, hint=hint, where=source.of_caller(), code=code)


def note(severity: Severity, code: str, message: str) -> None:
    """Keep a note about the user's line that called, once."""
    finding = Finding(severity=severity, code=code, message=message, where=source.of_caller())
    current().findings[finding] = None


def message() -> AbstractContextManager[None]:
    """Texts that are made inside may show traced values: nobody computes with them."""
    return assigned(current(), is_message=True)


class _Shown(str):
    """What a message shows of a traced value, whatever its format."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)


def text() -> str:
    """A traced value as a text.

    Raises:
        ExportFailed: Nothing says that the text is a message.
    """
    if current().is_message:
        return _Shown("...")
    raise refusal(TEXT, TEXT_HINT, TEXT_FROM_TENSOR)
