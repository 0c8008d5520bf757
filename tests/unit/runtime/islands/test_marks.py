from __future__ import annotations

from aotpipe.islands.marking import eager_island
from aotpipe.runtime.islands.marks import MARKS, mark_of


def test_a_marked_function_is_found_by_its_name_and_by_itself():
    @eager_island(name="elsewhere:doubled", arrays="numpy", reason="a table")
    def doubled(x):
        return x * 2

    mark = mark_of(doubled)
    assert mark is MARKS["elsewhere:doubled"]
    assert (mark.function(3), mark.arrays, mark.reason) == (6, "numpy", "a table")
    assert mark_of(len) is None
