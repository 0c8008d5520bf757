"""Counts, and their text."""

from __future__ import annotations

from aotpipe.errors import SourceLine
from aotpipe.tools.torch_compile.results import Counts, Graph


def test_counts_add_up_and_say_so() -> None:
    counts = Counts(
        graphs=(
            Graph(number=1, where=SourceLine("net.py", 3), ops=5, status="compiled", calls=7),
            Graph(number=2, where=None, ops=1, status="eager", reason="no lowering", eager_calls=2),
            Graph(number=3, where=None, ops=1, status="compiled", eager_calls=1, reasons=(("too large", 1),)),
        )
    )
    assert (counts.compiled, counts.calls, counts.eager_calls) == (2, 7, 3)
    assert [graph.number for graph in counts.fallbacks] == [2]
    assert str(counts).splitlines() == [
        "3 graphs: 2 compiled, 1 eager; 7 calls by programs, 3 eager",
        "  1: net.py:3: 5 ops, compiled",
        "  2: 1 ops, eager (no lowering)",
        "  3: 1 ops, compiled (1 calls: too large)",
    ]
