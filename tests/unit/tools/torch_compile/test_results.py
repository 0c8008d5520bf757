"""Counts, and their text."""

from __future__ import annotations

from collections import Counter

from aotpipe.errors import SourceLine
from aotpipe.tools.torch_compile.results import Counts, Graph, GraphCounters


def test_counts_add_up_and_say_so() -> None:
    counts = Counts(
        graphs=(
            Graph(number=1, where=SourceLine("net.py", 3), ops=5, status="compiled", calls=7),
            Graph(number=2, where=None, ops=1, status="eager", reason="no lowering", eager=Counter(again=2)),
            Graph(number=3, where=None, ops=1, status="compiled", eager=Counter({"too large": 1})),
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


def test_each_graph_has_its_number_state_and_calls() -> None:
    counters = GraphCounters()
    first = counters.add(SourceLine("net.py", 3), 5)
    second = counters.add(None, 2)
    first.compiled(compile_s=1.5, ratio=0.25)
    first.calls += 2
    first.eager["too large"] += 1
    second.fell_back("no lowering", "write it another way")
    one, two = counters.counts().graphs
    assert (one.number, one.status, one.calls, one.eager_calls, one.reasons) == (
        1,
        "compiled",
        2,
        1,
        (("too large", 1),),
    )
    assert (two.number, two.status, two.reason, two.hint) == (
        2,
        "eager",
        "no lowering",
        "write it another way",
    )


def test_after_a_reset_nothing_is_counted() -> None:
    counters = GraphCounters()
    counters.add(None, 1)
    counters.reset()
    assert counters.counts().graphs == ()
    assert counters.add(None, 1).number == 1


def test_what_was_counted_stays_as_it_was() -> None:
    counters = GraphCounters()
    graph = counters.add(None, 1)
    before = counters.counts()
    graph.calls += 1
    graph.eager["too large"] += 1
    assert (before.calls, before.eager_calls) == (0, 0)
