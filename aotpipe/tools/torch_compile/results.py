"""Counts the graphs of the torch.compile backend and their calls. Torch-free."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from aotpipe.errors import SourceLine


@dataclass(slots=True, kw_only=True)
class Graph:
    """One graph that torch.compile handed over.

    Attributes:
        number: From 1, in the order in which they came.
        where: The model's first line in it.
        status: `compiled` (its program answers), `eager` (it fell back), or `waiting` for its first call.
        calls: How many calls its program answered.
        eager: For each reason of a call that was run eagerly, how many there were.
        compile_s: What the stages took.
        islands: The ops without a lowering that run eagerly between the parts of its program.
        ratio: The largest share of the allowed error that an element of the first answer used.
    """

    number: int
    where: SourceLine | None
    ops: int
    status: str = "waiting"
    reason: str = ""
    hint: str = ""
    calls: int = 0
    eager: Counter[str] = field(default_factory=Counter)
    compile_s: float = 0.0
    ratio: float = 0.0
    islands: tuple[str, ...] = ()

    @property
    def eager_calls(self) -> int:
        """How many calls were run eagerly, also those of a compiled graph."""
        return self.eager.total()

    @property
    def reasons(self) -> tuple[tuple[str, int], ...]:
        """For each reason of such a call, how many there were."""
        return tuple(sorted(self.eager.items()))

    def compiled(self, *, compile_s: float, ratio: float, islands: tuple[str, ...] = ()) -> None:
        """Record that the graph has a program."""
        self.status, self.compile_s, self.ratio, self.islands = "compiled", compile_s, ratio, islands

    def fell_back(self, reason: str, hint: str = "") -> None:
        """Record that the graph runs eagerly from now on."""
        self.status, self.reason, self.hint = "eager", reason, hint


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


class GraphCounters:
    """All graphs, for all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: list[Graph] = []

    def add(self, where: SourceLine | None, ops: int) -> Graph:
        """A new graph, which counts its own calls."""
        with self._lock:
            graph = Graph(number=len(self._graphs) + 1, where=where, ops=ops)
            self._graphs.append(graph)
            return graph

    def counts(self) -> Counts:
        """The graphs and calls of this process up to now, and what fell back with its reasons."""
        with self._lock:
            return Counts(graphs=tuple(copy.deepcopy(self._graphs)))

    def reset(self) -> None:
        """Begin to count anew; programs stay, and the calls of their graphs are not counted any more."""
        with self._lock:
            self._graphs = []


COUNTERS: Final = GraphCounters()
"""The counters of this process."""
