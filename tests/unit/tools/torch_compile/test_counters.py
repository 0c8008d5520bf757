"""Graphs and calls are counted."""

from __future__ import annotations

from aotpipe.errors import SourceLine
from aotpipe.tools.torch_compile.counters import Ledger


def test_each_graph_has_its_number_state_and_calls() -> None:
    ledger = Ledger()
    first = ledger.open(SourceLine("net.py", 3), 5)
    second = ledger.open(None, 2)
    first.compiled(compile_s=1.5, ratio=0.25)
    first.calls += 2
    first.eager["too large"] += 1
    second.fell_back("no lowering", "write it another way")
    one, two = ledger.counts().graphs
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
    ledger = Ledger()
    ledger.open(None, 1)
    ledger.reset()
    assert ledger.counts().graphs == ()
    assert ledger.open(None, 1).number == 1
