"""Counts the graphs of the torch.compile backend and their calls: frozen results and counters. Torch-free."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from aotpipe.errors import SourceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One graph that torch.compile handed over.

    Attributes:
        number: From 1, in the order in which they came.
        where: The model's first line in it.
        status: `compiled` (its program answers), `eager` (it fell back), or `waiting` for its first call.
        calls: How many calls its program answered.
        eager_calls: How many were run eagerly, also those of a compiled graph.
        reasons: For each reason of such a call, how many there were.
        compile_s: What the stages took.
        islands: The ops without a lowering that run eagerly between the parts of its program.
        ratio: The largest share of the allowed error that an element of the first answer used.
    """

    number: int
    where: SourceLine | None
    ops: int
    status: str
    reason: str = ""
    hint: str = ""
    calls: int = 0
    eager_calls: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    compile_s: float = 0.0
    ratio: float = 0.0
    islands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """All graphs since the start of the process, or since `reset`."""

    graphs: tuple[Graph, ...]

    @property
    def compiled(self) -> int:
        """How many graphs have a program."""
        return sum(graph.status == "compiled" for graph in self.graphs)

    @property
    def fallbacks(self) -> tuple[Graph, ...]:
        """The graphs that run eagerly, with their reasons."""
        return tuple(graph for graph in self.graphs if graph.status == "eager")

    @property
    def islands(self) -> int:
        """How many ops of compiled graphs run eagerly."""
        return sum(len(graph.islands) for graph in self.graphs)

    @property
    def calls(self) -> int:
        """How many calls of graphs programs answered."""
        return sum(graph.calls for graph in self.graphs)

    @property
    def eager_calls(self) -> int:
        """How many calls of graphs were run eagerly."""
        return sum(graph.eager_calls for graph in self.graphs)

    def __str__(self) -> str:
        graphs = f"{len(self.graphs)} graphs: {self.compiled} compiled, {len(self.fallbacks)} eager"
        lines = [f"{graphs}; {self.calls} calls by programs, {self.eager_calls} eager"]
        for graph in self.graphs:
            place = f"{graph.where}: " if graph.where else ""
            why = graph.reason or "; ".join(f"{count} calls: {reason}" for reason, count in graph.reasons)
            eager = f"{', '.join(graph.islands)} run eagerly" if graph.islands else ""
            said = "; ".join(filter(None, (eager, why)))
            lines.append(
                f"  {graph.number}: {place}{graph.ops} ops, {graph.status}{f' ({said})' if said else ''}"
            )
        return "\n".join(lines)


@dataclass(slots=True)
class GraphCounter:
    """Counts the calls of one graph."""

    graph: Graph
    calls: int = 0
    eager: Counter[str] = field(default_factory=Counter)

    def compiled(self, *, compile_s: float, ratio: float, islands: tuple[str, ...] = ()) -> None:
        """Record that the graph has a program."""
        self.graph = replace(self.graph, status="compiled", compile_s=compile_s, ratio=ratio, islands=islands)

    def fell_back(self, reason: str, hint: str = "") -> None:
        """Record that the graph runs eagerly from now on."""
        self.graph = replace(self.graph, status="eager", reason=reason, hint=hint)

    def counted(self) -> Graph:
        """The graph with its calls up to now."""
        reasons = tuple(sorted(self.eager.items()))
        return replace(self.graph, calls=self.calls, eager_calls=self.eager.total(), reasons=reasons)


class GraphCounters:
    """The counters of all graphs, for all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: list[GraphCounter] = []

    def add(self, where: SourceLine | None, ops: int) -> GraphCounter:
        """A counter of a new graph."""
        with self._lock:
            number = len(self._counters) + 1
            counter = GraphCounter(Graph(number=number, where=where, ops=ops, status="waiting"))
            self._counters.append(counter)
            return counter

    def counts(self) -> Counts:
        """The graphs and calls of this process, and what fell back with its reasons."""
        with self._lock:
            return Counts(graphs=tuple(each.counted() for each in self._counters))

    def reset(self) -> None:
        """Begin to count anew; programs stay, and the calls of their graphs are not counted any more."""
        with self._lock:
            self._counters = []


COUNTERS: Final = GraphCounters()
"""The counters of this process."""
