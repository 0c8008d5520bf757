"""The functions of islands on a host."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aotpipe.errors import IslandNotFound
from aotpipe.islands.marking import eager_island
from aotpipe.runtime.islands.functions import MARKS, functions, mark_of
from tests.unit.islands import models
from tests.unit.runtime.islands.test_chain import ISLAND

HERE = replace(ISLAND, name="tests.unit.islands.models:order")


def test_a_marked_function_is_found_in_the_process_or_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    want = mark_of(models.order)
    assert want is not None
    assert functions([HERE]) == {HERE.name: want.function}
    monkeypatch.delitem(MARKS, HERE.name)
    assert functions([HERE]) == {HERE.name: want.function}


def test_what_is_given_comes_first() -> None:
    assert functions([HERE], {HERE.name: len}) == {HERE.name: len}


def test_an_op_is_found_in_torch() -> None:
    island = replace(ISLAND, name="aten.relu.default", kind="op")
    assert functions([island])["aten.relu.default"] is torch.ops.aten.relu.default


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("no_such_module:f", "function", "cannot be imported"),
        ("os:system", "function", "is not marked"),
        ("os:no_such", "function", "no_such"),
        ("aten.nothing.default", "op", "nothing"),
        ("aten.relu", "op", "no op"),
    ],
)
def test_what_a_host_lacks_or_must_not_be_named_is_refused(name: str, kind: str, message: str) -> None:
    with pytest.raises(IslandNotFound, match=message):
        functions([replace(ISLAND, name=name, kind=kind)])


def test_a_marked_function_is_found_by_its_name_and_by_itself():
    @eager_island(name="elsewhere:doubled", arrays="numpy", reason="a table")
    def doubled(x):
        return x * 2

    mark = mark_of(doubled)
    assert mark is MARKS["elsewhere:doubled"]
    assert (mark.function(3), mark.arrays, mark.reason) == (6, "numpy", "a table")
    assert mark_of(len) is None
