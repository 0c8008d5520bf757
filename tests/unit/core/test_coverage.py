"""What counts of a coverage, and how a goal reads."""

from __future__ import annotations

from aotpipe.core.coverage import Coverage, Goal
from aotpipe.errors import SourceLine

LINE = SourceLine("m.py", 3)
REACHED = Goal(entry_point="forward", kind="branch", what="is true", where=LINE, case="example")
MISSED = Goal(entry_point="forward", kind="branch", what="is false", where=LINE, reason="no input was found")
OPTIONAL = Goal(entry_point="forward", kind="assert", what="fails", where=LINE, optional=True)


def test_an_optional_goal_counts_where_it_was_reached():
    found = Coverage(goals=(REACHED, MISSED, OPTIONAL))
    assert (found.reached, found.total, found.percent) == (1, 2, 50.0)
    assert found.missed == (MISSED,)
    assert Coverage().percent == 100.0


def test_it_goes_to_json_and_back():
    found = Coverage(goals=(REACHED, OPTIONAL), notes=("a note",))
    assert Coverage.from_json(found.to_json()) == found
    assert found.to_json()["percent"] == 100.0


def test_a_goal_reads_with_its_line():
    assert str(MISSED) == "m.py:3: branch is false"
    assert str(Goal(entry_point="decode", kind="size", what="n=2")) == "decode: n=2"
