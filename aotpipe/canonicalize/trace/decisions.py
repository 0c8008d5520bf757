"""Keeps note of what a trace decided about Python's statements and expressions, for those who ask.

Inside `recorded()` every branch, loop, logical operator, call and index that became part of the graph is
noted with its place in the user's file. Outside of it nothing is noted; that the nodes of a statement's
control-flow op name its path and line (`STATEMENT`) does not depend on it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final, Literal

from torch.fx import traceback

from aotpipe.canonicalize.values import trace
from aotpipe.model import object_graph, source

Kind = Literal["branch", "loop", "raises", "choice", "logic", "call", "index", "item", "answer", "assert"]
Span = tuple[int, int, int, int]
STATEMENT: Final = "aotpipe.statement"
"""Among the `custom` annotations of a control-flow op, the path and the line of the statement that it is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """One statement or expression that became part of a graph.

    Attributes:
        path, line: Where it stands; for a statement its first line.
        span: Of an expression: first and last line, first and last column, as Python counts them.
        names: The variables that a statement may set.
        abstracts: What each of these is afterwards (`abstract_values.AbstractValue`).
        before: What each held before the statement.
        after: What each held after each path.
        taken: What else its bodies read, by name.
        wanted: Of a branch that raises: the truth of the test with which it goes on.
    """

    kind: Kind
    path: str
    line: int
    span: Span | None = None
    names: tuple[str, ...] = ()
    abstracts: tuple[Any, ...] = ()
    before: tuple[Any, ...] = ()
    after: tuple[tuple[Any, ...], ...] = ()
    taken: Mapping[str, Any] = field(default_factory=dict)
    wanted: bool = False


_UNBOUND: Final = object()
_recording: ContextVar[list[Decision] | None] = ContextVar("recording", default=None)


def recorded() -> AbstractContextManager[list[Decision]]:
    """Keep what is decided while the body runs; a recording around it gets nothing of that."""
    return trace.held(_recording, [])


def keep(decisions: Iterable[Decision]) -> None:
    """Note what a recording inside of this one kept: that of a trace which is not given up."""
    if (noted := _recording.get()) is not None:
        noted.extend(decisions)


def statement(kind: Kind, bodies: Sequence[Callable[..., Any]], **details: Any) -> None:
    """Note what became of a statement, by the functions that its bodies are."""
    if (noted := _recording.get()) is None:
        return
    codes = [found for body in bodies if (found := _code(body)) is not None]
    if not codes:
        return
    taken = {name: value for _, cells in codes for name, value in cells.items()}
    code = codes[0][0]
    noted.append(Decision(kind=kind, path=code.co_filename, line=code.co_firstlineno, taken=taken, **details))


@contextmanager
def annotated(bodies: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Give the nodes that the body makes the first line of a statement, as `passes.source_lines` reads it.

    The stack that torch records knows the user's `forward` only, and there the end of the whole statement.
    """
    codes = [found[0] for body in bodies if (found := _code(body)) is not None]
    if not codes:
        yield
        return
    first = min(codes, key=lambda code: code.co_firstlineno)
    place = {STATEMENT: [first.co_filename, first.co_firstlineno]}
    with traceback.preserve_node_meta(), traceback.annotate(place):
        yield


def expression(kind: Kind) -> None:
    """Note what became of the expression that the user's code is computing."""
    if (noted := _recording.get()) is None:
        return
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the code that calls
    while frame is not None and not source.is_model_code(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return
    line, end_line, column, end_column = _positions(frame.f_code)[frame.f_lasti // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return
    span = (line, end_line, column, end_column)
    noted.append(Decision(kind=kind, path=frame.f_code.co_filename, line=line, span=span))


@functools.lru_cache(maxsize=256)
def _positions(code: CodeType) -> tuple[tuple[int | None, int | None, int | None, int | None], ...]:
    return tuple(code.co_positions())


def _code(body: Any) -> tuple[CodeType, dict[str, Any]] | None:
    """The user's code behind a body, and what it reads from around it."""
    while isinstance(body, functools.partial):
        body = body.func
    body = getattr(body, "__wrapped__", body)
    code = getattr(body, "__code__", None)
    if code is None or not source.is_model_code(code.co_filename):
        return None
    cells = zip(code.co_freevars, body.__closure__ or (), strict=True)
    values = {name: object_graph.value_of(cell, _UNBOUND) for name, cell in cells}
    return code, {name: value for name, value in values.items() if value is not _UNBOUND}
