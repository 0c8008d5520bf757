"""What the torch.compile backend did, as frozen types. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from aotpipe.errors import SourceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One graph that torch.compile handed over.

    Attributes:
        number: From 1, in the order in which they came.
        where: The model's first line of it.
        ops: How many ops it computes.
        status: `compiled` (its program answers), `eager` (it fell back), or `waiting` for its first call.
        reason: Why it fell back.
        hint: What to do about that.
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
