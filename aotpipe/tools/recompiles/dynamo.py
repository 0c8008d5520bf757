"""Counts the programs of torch.compile, with the reason for each: all that `recompiles` takes of torch's own.

torch has no public way to learn why a function was compiled again, so that these are taken:
    torch._dynamo.config            the limit after which torch.compile gives up is lifted, so that all count
    torch._dynamo.reset             programs of earlier runs would be taken for those of this one
    convert_frame.get_and_maybe_log_recompilation_reasons
                                    the one place that holds both the reason and the values of the variables
    torch._dynamo.utils             `graph_break_reasons` and the metrics, which name each compiled function
    torch._guards.CompileContext    tells which function a graph belongs to
Where a later torch lacks one of them, `counting` fails at once with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import torch

from aotpipe.tools.recompiles.guards import Explained, explain

_REASONS: Final = "get_and_maybe_log_recompilation_reasons"
_LIMITS: Final = ("recompile_limit", "accumulated_recompile_limit")
_ENDLESS: Final = 1 << 30
_METRICS: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Why a graph ends before its function does, and where."""

    reason: str
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One program that was made.

    Attributes:
        function, path, line: Of the Python function that it is of; after a graph break that begins there.
        ops: How many ops it computes.
        guard: Why the newest program that was there did not fit; None for the first of a function.
    """

    function: str
    path: str
    line: int
    ops: int
    guard: Explained | None


@dataclass(slots=True)
class Counter:
    """What was made since it was last asked; `limit` is that of torch.compile for a function."""

    limit: int
    _graphs: dict[str, int] = field(default_factory=dict)
    _guards: dict[str, Explained] = field(default_factory=dict)
    _breaks: int = 0

    def backend(self, graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Takes a program and runs it as it is."""
        self._graphs[_current()] = sum(node.op.startswith("call") for node in graph.graph.nodes)
        return graph.forward

    def taken(self) -> tuple[list[Made], list[Break]]:
        """The programs and the graph breaks since the last time."""
        utils = _module("utils")
        metrics = {each.compile_id: each for each in utils.get_compilation_metrics()}
        utils.clear_compilation_metrics()
        made = []
        for compiled, ops in self._graphs.items():
            of = metrics.get(compiled)
            made.append(
                Made(
                    function=of.co_name if of else "",
                    path=of.co_filename if of else "",
                    line=of.co_firstlineno if of else 0,
                    ops=ops,
                    guard=self._guards.get(compiled),
                )
            )
        self._graphs.clear()
        self._guards.clear()
        breaks = [_break(each) for each in utils.graph_break_reasons[self._breaks :]]
        self._breaks = len(utils.graph_break_reasons)
        return made, [each for each in breaks if each is not None]

    def note(self, texts: list[str], frame: Any) -> None:
        """Keep why a function is compiled again; its variables are as they are at this moment only."""
        scope = {**frame.f_locals, "L": frame.f_locals, "G": frame.f_globals}

        def value_of(expression: str) -> Any:
            return eval(expression, {"__builtins__": {"len": len}}, scope)  # noqa: S307  # torch's own guard

        if texts:
            self._guards[_current()] = explain(texts[0], frame.f_code, value_of)


@contextmanager
def counting() -> Iterator[Counter]:
    """Count what `torch.compile(..., backend=counter.backend)` makes; programs made before are forgotten."""
    config, convert, utils = _module("config"), _module("convert_frame"), _module("utils")
    original: Callable[..., list[str]] = getattr(convert, _REASONS)
    counter = Counter(limit=getattr(config, _LIMITS[0]))

    def noted(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> list[str]:
        texts = original(entries, frame, *args, **kwargs)
        counter.note(texts, frame)
        return texts

    torch._dynamo.reset()  # noqa: SLF001  # see the module
    utils.clear_compilation_metrics()
    utils.set_compilation_metrics_limit(_METRICS)
    setattr(convert, _REASONS, noted)
    try:
        with config.patch(**dict.fromkeys(_LIMITS, _ENDLESS)):
            yield counter
    finally:
        setattr(convert, _REASONS, original)
        utils.clear_compilation_metrics()
        utils.set_compilation_metrics_limit(utils.DEFAULT_COMPILATION_METRICS_LIMIT)
        torch._dynamo.reset()  # noqa: SLF001  # see the module


def _break(reason: Any) -> Break | None:
    if not reason.graph_break or not reason.user_stack:
        return None
    frame = reason.user_stack[-1]
    return Break(reason=reason.reason.strip(), path=frame.filename, line=frame.lineno or 0)


def _current() -> str:
    return str(torch._guards.CompileContext.current_compile_id())  # noqa: SLF001  # see the module


def _module(name: str) -> Any:
    return import_module(f"torch._dynamo.{name}")
